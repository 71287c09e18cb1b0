"""What workers are sent to summarise rows by, before it is known where they go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.table.data.frames import ArrowStream
from qbeast_core.table.engine.target import RowShape
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, summarise

__all__ = ["SummaryTask"]

_NO_RULES: Final = '{"fields":[]}'


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Summarises rows of the indexed columns; picklable.

    Parameters
    ----------
    schema : polars.Schema
        The indexed columns in order, of the table's types.
    cube_size : int, optional
        Rows that a cube will aim at, where that is known: how large a sample has to be.
    limits : SampleLimits
        How large a summary may be: the same for parts and for what they merge to.
    """

    schema: pl.Schema
    cube_size: int | None = None
    limits: SampleLimits = DOMAIN_LIMITS

    def summarise(self, rows: ArrowStream | pl.DataFrame, *, first_row: int) -> IndexSummary:
        """Summarise one batch.

        Parameters
        ----------
        rows : anything with ``__arrow_c_stream__``
            The indexed columns alone, in order.
        first_row : int
            A number that no other row of the input has, nor the next ones have: 0 or more, below 2**63.

        Returns
        -------
        IndexSummary
            With a sample that a tree can be drawn from, and the sum of weights.
        """
        frame = RowShape(_NO_RULES, self.schema, merge=False).fit(rows)
        names = list(self.schema)
        found = summarise(frame, names, first_row=first_row, limits=self.limits)
        return replace(found, weight_sum=int(frame_weights(frame, names).sum(dtype=np.int64)))
