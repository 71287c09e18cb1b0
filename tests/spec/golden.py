"""Metadata texts that the JVM wrote; data/PROVENANCE.md tells how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

Kind = Literal["revision", "configuration", "blocks", "flat tags"]

_FILE = Path(__file__).parent / "data" / "golden.jsonl"


def golden(kind: Kind, *, holding: str | None = None) -> list[Any]:
    """Return the values of a kind as test parameters, or those that hold a key; none at all is an error."""
    records = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
    found = [
        pytest.param(one["value"], id=f"{one['writer']}-{one['table']}-{number}")
        for number, one in enumerate(records)
        if one["kind"] == kind and (holding is None or holding in one["value"])
    ]
    if not found:
        msg = f"{_FILE} holds no {kind}, or none with {holding!r}"
        raise AssertionError(msg)
    return found
