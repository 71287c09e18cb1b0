"""Run the calls that messages suggest."""

from __future__ import annotations

import re

import deltalake
import polars as pl

import qbeast

__all__ = ["run_cure"]

_COPY = r"(from deltalake import [\w, ]+; )?qbeast\.write_table\(.*, new, columns=\[.*?\]\)"


def run_cure(message: str, *, columns: str = '["id"]', call: str = _COPY) -> str:
    """Run the call in a message, and return the path of the new table."""
    match = re.search(call, message)
    assert match is not None, message
    code = re.sub(r"columns=\[.*?\]", lambda _: f"columns={columns}", match[0])
    new = "cured"
    exec(code, {"qbeast": qbeast, "pl": pl, "deltalake": deltalake, "new": new})  # noqa: S102 - our own messages are tested
    return new
