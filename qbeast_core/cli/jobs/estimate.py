"""Aggregates of a table, estimated from a sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.grid import frame_grid
from qbeast_core.cli.jobs.opening import on_table
from qbeast_core.cli.screen import remark
from qbeast_core.errors import InvalidInputError
from qbeast_core.runtime import ProgressCallback

# A name and an aggregate: no aggregate begins with a name and a sign of equality.
_NAMED: Final = re.compile(r"\s*([^\W\d]\w*)\s*=(.*)", re.DOTALL)


@on_table("estimating")
def estimate(
    table: qbeast.Table, _progress: ProgressCallback | None, *, aggregates: Sequence[str], **options: Any
) -> Answer:
    """Estimate aggregates; the exit code does not depend on whether the error was reached, the answer tells."""
    found = table.estimate(_named(aggregates), **options)
    facts = {
        "met": found.met,
        "complete": found.complete,
        "confidence": found.confidence,
        "fraction": found.fraction,
        "rows_read": found.rows_read,
        "bytes_opened": found.bytes_opened,
        "bytes_total": found.bytes_total,
        "design_effect": found.design_effect,
        "notes": list(found.notes),
        "rows": found.frame.to_dicts(),
    }
    return Answer(parts=(*frame_grid(found.frame), *map(remark, (found.summary, *found.notes))), data=facts)


def _named(texts: Sequence[str]) -> list[str] | dict[str, str] | str:
    """Return aggregates by name where one is given before a sign of equality; else as they are, a query by itself."""
    matches = [_NAMED.fullmatch(text) for text in texts]
    if len(texts) == 1 and matches[0] is None:
        return texts[0]
    asked: dict[str, str] = {}
    for text, match in zip(texts, matches, strict=True):
        name, aggregate = (match[1], match[2]) if match else (text, text)
        if name in asked:
            msg = f"two aggregates are called {name!r}; nothing was read"
            raise InvalidInputError(msg, argument="aggregates")
        asked[name] = aggregate
    return asked if any(matches) else list(texts)
