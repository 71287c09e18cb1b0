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
    actual = [
        pytest.param(item["value"], id=f"{item['writer']}-{item['table']}-{number}")
        for number, item in enumerate(records)
        if item["kind"] == kind and (holding is None or holding in item["value"])
    ]
    if not actual:
        msg = f"{_FILE} holds no {kind}, or none with {holding!r}"
        raise AssertionError(msg)
    return actual
