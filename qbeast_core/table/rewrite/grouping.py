"""Files whose rows are written together, and what filters open before and after (format 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.table.index.live_index import Index
from qbeast_core.tree.pages import FILTER_SHARE, Boxes, Gain


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The files of a table as boxes in the space of a revision."""

    state: Index
    revision: Revision
    gain: Gain

    @staticmethod
    def of(state: Index, number: int | None = None) -> Grouping | None:
        """Return the files in the space of a revision, by default the newest. None: it has no columns to compare."""
        snapshot = state.snapshot
        revision = snapshot.config.revisions.get(number) if number else state.newest
        if revision is None or not revision.columns:
            return None
        names = map(snapshot.columns.stored_name, revision.columns)
        importance = [snapshot.config.importance.get(name, 1.0) for name in names]
        largest = max(int(state.rows.max(initial=0)), sizing().min_file_rows)
        gain = Gain(int(state.rows.sum()), importance, float(largest))
        return Grouping(state, revision, gain)

    def sets(self, tree: int, files: I64Array, units: I64Array, is_certain: BoolArray) -> list[I64Array]:
        """Return the files of a tree to rewrite, as sets.

        Files of the same number in `units` stay together. Files that are certain are rewritten in any case.
        """
        _, unit = np.unique(units, return_inverse=True)
        unit = np.asarray(unit, np.int64)
        count = int(unit.max()) + 1
        is_free = np.zeros(count, np.bool_)
        is_free[unit[is_certain]] = True
        joined = self.gain.joined(self._boxes(tree, files, unit, count), is_free)
        alone = np.setdiff1d(np.flatnonzero(is_free), np.concatenate([*joined, np.zeros(0, np.int64)]))
        return [files[np.isin(unit, members)] for members in [*joined, *alone[:, None]]]

    def opened(self, groups: Sequence[I64Array] = ()) -> dict[str, float]:
        """Return the share of the rows that a filter on each column opens, after some files are written together.

        The filter takes 1/30 of the values of the column. It opens the whole of files without pages that divide these
        columns.
        """
        state, files = self.state, self.state.snapshot.files
        _, key = np.unique(files["modification_time"].to_numpy(), return_inverse=True)
        numbers = [
            number
            for number, item in state.snapshot.config.revisions.items()
            if item.columns == self.revision.columns
        ]
        is_paged = np.isin(state.revision_of, numbers)
        # A file without such pages is a box of its own.
        key = np.where(is_paged, key, files.height + np.arange(files.height))
        for number, group in enumerate(groups):
            key[group], is_paged[group] = 2 * files.height + number, True
        opened, total = np.zeros(len(self.revision.columns)), 0.0
        for tree, here in enumerate(state.files_by_tree):
            _, unit = np.unique(key[here], return_inverse=True)
            boxes = self._boxes(tree, here, np.asarray(unit, np.int64), int(unit.max(initial=-1)) + 1)
            paged = np.zeros(len(boxes), np.bool_)
            paged[unit] = is_paged[here]
            whole = np.minimum((boxes.highest - boxes.lowest).T + FILTER_SHARE, 1.0)
            shares: F64Array = np.where(
                paged, np.minimum(self.gain.sides(boxes).T + FILTER_SHARE, 1.0), whole
            )
            opened, total = opened + shares @ boxes.rows, total + float(boxes.rows.sum())
        shares_opened = (opened / max(total, 1.0)).round(4).tolist()
        return dict(zip(self.revision.columns, shares_opened, strict=True))

    def _boxes(self, tree: int, files: I64Array, unit: I64Array, count: int) -> Boxes:
        """Return the boxes of files of a tree, by the number of their unit."""
        at = np.searchsorted(self.state.files_by_tree[tree], files)
        axes = [axis.at(at) for axis in self.state.axes(self.revision, tree)]
        return Boxes.of_groups(axes, self.state.rows[files], unit, count)


def opened_shares(state: Index, groups: Sequence[I64Array] = ()) -> dict[str, float]:
    """Return what a filter on each column opens, see `Grouping.opened`; nothing for a table without index."""
    grouping = Grouping.of(state) if state.snapshot.config.is_indexed else None
    return {} if grouping is None else grouping.opened(groups)


def shares_text(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Describe what filters open before and after.

    >>> shares_text({"day": 0.3, "user": 0.05}, {"day": 0.1, "user": 0.05})
    'day 30 % -> 10 %, user 5 %'
    """
    pairs = {name: (_percent(share), _percent(after.get(name, share))) for name, share in before.items()}
    return ", ".join(f"{name} {' -> '.join(dict.fromkeys(pair))}" for name, pair in pairs.items())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 and round(1000 * share) % 10 else f"{100 * share:.0f} %"
