"""Calls that messages advise, done as they stand."""

from __future__ import annotations

import re

import deltalake
import polars as pl

import qbeast

__all__ = ["run_cure"]

_COPY = r"(from deltalake import [\w, ]+; )?qbeast\.write_table\(.*, new, columns=\[.*?\]\)"


def run_cure(message: str, *, columns: str = '["id"]', call: str = _COPY) -> str:
    """Do what a message says, and return the path of the new table."""
    found = re.search(call, message)
    assert found is not None, message
    code = re.sub(r"columns=\[.*?\]", lambda _: f"columns={columns}", found[0])
    new = "cured"
    exec(code, {"qbeast": qbeast, "pl": pl, "deltalake": deltalake, "new": new})  # noqa: S102 - our own advice is what is tested
    return new
