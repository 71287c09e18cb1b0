"""The Thrift structs of CarbonData as values, named as in its format module."""
