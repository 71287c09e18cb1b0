"""The Qbeast format as frozen pydantic values; knows no engine."""
