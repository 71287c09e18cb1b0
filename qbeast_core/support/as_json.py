"""Values as JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from qbeast_core.support.plain_text import HIDDEN

# Times as ISO 8601; microseconds are kept, UTC is +00:00.
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def to_json(data: Mapping[str, Any]) -> str:
    r"""Return a JSON document: NaN and infinities as null, bytes in hexadecimal, decimals as text.

    Control characters are escaped for terminals; parsers of the document get the same values.

    >>> from decimal import Decimal
    >>> to_json({"rows": 3, "price": Decimal("1.50"), "key": b"\x00\xff"}).split()
    ['{', '"rows":', '3,', '"price":', '"1.50",', '"key":', '"00ff"', '}']
    """
    text = orjson.dumps(data, default=_convert, option=_OPTIONS).decode()
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _convert(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case set() | frozenset():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            return str(value)
