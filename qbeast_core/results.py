"""Results of operations: the version, whether a commit was made, files and rows added and removed."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from html import escape
from typing import Any, ClassVar, Final, Literal

import polars as pl

from qbeast_core.support.html import html_of
from qbeast_core.support.plain_text import in_lines, shortened

_FEW: Final = 8
_MAX_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Result:
    """Outcome of an operation on a table.

    Attributes
    ----------
    version : int
        The version that it made; the present one if it made none, -1 if there is no table.
    committed : bool
        Whether it made a version. False: there was nothing to do, or it was a dry run.
    dry_run : bool
        Whether it changed nothing and the facts are those of a real run.
    """

    version: int
    committed: bool
    dry_run: bool = False

    # Names of properties that are printed and converted like fields.
    derived: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(map(len, facts))
        return in_lines(
            [type(self).__name__, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]
        )

    def _repr_html_(self) -> str:
        """Return the same for a notebook, and frames below it."""
        values = (getattr(self, one.name) for one in fields(self))
        frames = [value for value in values if isinstance(value, pl.DataFrame)]
        return html_of(
            type(self).__name__, {name: escape(fact) for name, fact in self._facts().items()}, *frames
        )

    def _facts(self) -> dict[str, str]:
        """Return the printed facts: those that differ from the default."""
        given = ((one.name, getattr(self, one.name), one.default) for one in fields(self) if one.repr)
        names = [name for name, value, usual in given if usual is MISSING or value != usual]
        return {name: _words(getattr(self, name)) for name in (*names, *self.derived)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; frames are lists of dicts.

        Examples
        --------
        >>> Result(version=3, committed=True).to_dict()
        {'version': 3, 'committed': True, 'dry_run': False}
        """
        names = [*(one.name for one in fields(self)), *self.derived]
        return {name: _plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetadataResult(Result):
    """Outcome of `Table.set_properties`, `Table.add_columns` and `Table.widen_columns`.

    Attributes
    ----------
    changed : tuple of str
        Properties or columns that were set, added or widened; empty if the table had them.
    rewritten_files : int
        Data files written in a wider type, which replace as many or more.
    """

    changed: tuple[str, ...]
    rewritten_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FilesResult(Result):
    """Outcome of an operation that writes data files.

    Attributes
    ----------
    files, bytes : int
        Data files written, and their bytes.
    engine : {"memory", "spill", "spark"}
        Whether this machine held the rows, or moved them through temporary files, or executors of Spark did.
    spilled_bytes : int
        Bytes written to temporary files.
    """

    files: int
    bytes: int
    engine: Literal["memory", "spill", "spark"] = "memory"
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RewriteResult(FilesResult):
    """Outcome of an operation that puts data files in the place of others.

    Attributes
    ----------
    plan : polars.DataFrame
        The files that are, or would be, taken out, and why.
    revision_id : int
        Of the files written last; the newest of the table if there are none.
    new_revision : bool
        Whether rows needed a new one.
    attempts : int
        Versions tried.
    """

    plan: pl.DataFrame = field(repr=False)
    revision_id: int
    new_revision: bool
    attempts: int

    derived: ClassVar[tuple[str, ...]] = ("files_removed", "bytes_removed")

    @property
    def files_removed(self) -> int:
        """Files taken out, or that would be."""
        return self.plan.height

    @property
    def bytes_removed(self) -> int:
        """Their bytes."""
        return int(self.plan["bytes"].sum())


def _words(value: object) -> str:
    """Format a value for people: numbers in groups of three digits, no quotes."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_words(one)}" for name, one in value.items())
    if isinstance(value, tuple):
        listed = ", ".join(map(_words, value[:_FEW]))
        few = len(value) <= _FEW and len(listed) <= _MAX_CHARACTERS
        return listed if few else f"{len(value):,}, from {_words(value[0])} to {_words(value[-1])}"
    return str(shortened(value))


def _plain(value: object) -> object:
    if isinstance(value, pl.DataFrame):
        return value.to_dicts()
    return list(value) if isinstance(value, tuple) else value
