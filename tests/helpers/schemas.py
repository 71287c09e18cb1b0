"""Random schemas of every Delta type, with nested columns."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st

FLAT = st.sampled_from(
    [
        pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64(), pl.String(), pl.Binary(),
        pl.Boolean(), pl.Date(), pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Decimal(38, 10), pl.Decimal(5, 0),
    ]
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "é x"])
TYPES = st.recursive(
    FLAT,
    lambda inner: st.builds(pl.List, inner) | st.dictionaries(NAMES, inner, min_size=1).map(pl.Struct),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(NAMES, TYPES, min_size=1).map(pl.Schema)
