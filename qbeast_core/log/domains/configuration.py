"""The configuration of a metadata domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from qbeast_core.errors import InvalidMetadataError


def configuration_of(domains: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the configuration of a domain as JSON; empty if the table does not have the domain.

    >>> configuration_of({"a": '{"x":1}'}, "a"), configuration_of({}, "a")
    ({'x': 1}, {})
    """
    text = domains.get(name) or "{}"
    try:
        configuration = orjson.loads(text)
    except ValueError:
        configuration = None
    if not isinstance(configuration, dict):
        problem = f"the metadata domain {name!r} is damaged: {text[:100]!r} is not an object of JSON"
        message = f"{problem}."
        raise InvalidMetadataError(message)
    return cast("dict[str, Any]", configuration)
