"""Values of answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import orjson

__all__ = ["to_json"]

# Times as ISO 8601; microseconds are kept, UTC is spelled +00:00.
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def to_json(data: Mapping[str, Any]) -> str:
    r"""Return one JSON document: NaN and infinities as null, bytes in hexadecimal, decimals as text.

    Examples
    --------
    >>> to_json({"rows": 3, "price": Decimal("1.50"), "key": b"\x00\xff"}).split()
    ['{', '"rows":', '3,', '"price":', '"1.50",', '"key":', '"00ff"', '}']
    """
    return orjson.dumps(data, default=_spell, option=_OPTIONS).decode()


def _spell(value: object) -> object:
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case tuple() | set() | frozenset():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            return str(value)
