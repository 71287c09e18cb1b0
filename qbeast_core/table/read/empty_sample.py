"""Warn of a sample that holds no row where some were to be expected: the index keys are few."""

from __future__ import annotations

import warnings
from typing import Final

from qbeast_core.errors import EmptySampleWarning
from qbeast_core.table.read.reader import Reader, Sample, ScanPlan
from qbeast_core.table.runtime import caller_stacklevel

__all__ = ["warn_if_empty"]

_LEAST: Final = 20
"""Rows to be expected; of so many independent rows none is left out once in half a billion samples."""


def warn_if_empty(reader: Reader, sample: Sample | None, job: ScanPlan | None = None) -> None:
    """Warn when the index alone tells that a sample holds no row, and many were to be expected.

    Nothing is read: a sample that begins at 0 is empty where no block begins below its end. Of files without index
    nothing is known, so no warning is given.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    sample : float, tuple or None
        As it was asked for.
    job : ScanPlan, optional
        Of this sample without a filter, if it is there already.
    """
    if sample is None:
        return
    first, last = sample if isinstance(sample, tuple) else (0.0, sample)
    rows = int(reader.snapshot.files["num_records"].fill_null(0).sum())
    expected = (last - first) * rows
    if expected < _LEAST or (job or reader.plan(None, sample)).selection.opened.any():
        return
    message = (
        f"the sample {sample} of {reader.snapshot.uri!r} holds no row, where about {expected:,.0f} of {rows:,} were to "
        f"be expected: rows with equal values of {list(reader.indexed)} enter a sample together (cluster sampling), "
        "and such values are few. Take a larger sample, or index a column of many values as well in a new table."
    )
    warnings.warn(message, EmptySampleWarning, stacklevel=caller_stacklevel())
