"""Decoders for pages, measures, dictionaries and rows of CarbonData 1.x."""
