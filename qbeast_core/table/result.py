"""What a write did."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.spec.revision import Revision

__all__ = ["WriteResult", "transformers_of"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Outcome of `qbeast.write_table`.

    Attributes
    ----------
    version : int
        Version of the table that holds the rows; the present one when nothing was written.
    written : bool
        False when mode ``"ignore"`` met a table, or `txn` had been applied before.
    rows, files, bytes : int
        Rows, data files and bytes added.
    cubes : int
        Cubes that took rows.
    revision_id : int
        Revision the rows are indexed with.
    new_revision : bool
        Whether this write made it.
    transformers : dict of str to str
        How each indexed column is indexed: ``"linear"``, ``"quantiles"``, ``"hashing"`` or ``"histogram"``.
    cube_size : int
        Rows a cube aims to hold.
    design_effect : float or None
        Of the table with these rows in it, see `Table.design_effect`: ``sum(m_k ** 2) / n`` over its index keys,
        how many times the variance of a sampled count is that of independent rows. 1.0 is the best.
    attempts : int
        Commits tried; more than one when other writers were faster.
    staged_files : int
        Those of `files` without index, because what another writer committed meanwhile left their rows no place
        in the tree. Reads are right, and `Table.optimize` indexes them.
    """

    version: int
    written: bool
    rows: int
    files: int
    bytes: int
    cubes: int
    revision_id: int
    new_revision: bool
    transformers: dict[str, str]
    cube_size: int
    design_effect: float | None
    attempts: int
    staged_files: int = 0

    @staticmethod
    def untouched(version: int, revision: Revision | None, design_effect: float | None = None) -> WriteResult:
        """Return the outcome of a write that had nothing to do."""
        return WriteResult(
            version=version,
            written=False,
            rows=0,
            files=0,
            bytes=0,
            cubes=0,
            revision_id=revision.revision_id if revision else 0,
            new_revision=False,
            transformers=transformers_of(revision),
            cube_size=revision.desired_cube_size if revision else 0,
            design_effect=design_effect,
            attempts=0,
        )


def transformers_of(revision: Revision | None) -> dict[str, str]:
    """Return how each column of a revision is indexed.

    Examples
    --------
    >>> transformers_of(None)
    {}
    """
    return {t.column_name: t.kind for t in revision.column_transformers} if revision else {}
