"""Results of operations, and values whose unknown attributes have hints."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn

import polars as pl

from qbeast_core.support.frames import html_of
from qbeast_core.support.hints import result_hint, result_item_hint
from qbeast_core.support.process import terminal_columns
from qbeast_core.support.text import in_lines, shortened

_FEW: Final = 8
_MAX_CHARACTERS: Final = 100


class Hinted:
    """A value whose unknown attributes and keys raise errors with a hint."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers report unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            hint = "" if name.startswith("_") else result_hint(name, self._members(), pl.DataFrame)
            msg = f"{type(self).__name__} has no attribute {name!r}.{hint}"
            raise AttributeError(msg, name=name, obj=self)

        def __getitem__(self, key: object) -> NoReturn:
            msg = f"{type(self).__name__} is not subscriptable.{result_item_hint(key, self._members())}"
            raise TypeError(msg)

        def _members(self) -> list[str]:
            return [name for name in dir(type(self)) if not name.startswith("_") and name != "derived"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Result(Hinted):
    """Result of an operation on a table.

    Attributes
    ----------
    version : int
        The new version; the current version if nothing was committed, -1 if there is no table.
    committed : bool
        Whether a version was committed. False: there was nothing to do, or it was a dry run.
    dry_run : bool
        Whether it was a dry run: nothing was changed, and the other attributes say what would be done.
    """

    version: int
    committed: bool
    dry_run: bool = False

    # Names of properties to print and convert like fields.
    derived: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(map(len, facts))
        lines = [type(self).__name__, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]
        return in_lines(lines, terminal_columns())

    def _repr_html_(self) -> str:
        """Return the facts as HTML for a notebook, with the frames."""
        values = (getattr(self, item.name) for item in fields(self))
        frames = [value for value in values if isinstance(value, pl.DataFrame)]
        return html_of(
            type(self).__name__, {name: escape(fact) for name, fact in self._facts().items()}, *frames
        )

    def _facts(self) -> dict[str, str]:
        """Return the facts to print. Fields with their default value are omitted."""
        shown = ((item.name, getattr(self, item.name), item.default) for item in fields(self) if item.repr)
        names = [name for name, value, default in shown if default is MISSING or value != default]
        facts = {name: getattr(self, name) for name in (*names, *self.derived)}
        # A hint is one sentence of any length.
        return {name: str(fact) if name == "hint" else _words(fact) for name, fact in facts.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values. Frames become lists of dicts.

        Examples
        --------
        >>> Result(version=3, committed=True).to_dict()
        {'version': 3, 'committed': True, 'dry_run': False}
        """
        names = [*(item.name for item in fields(self)), *self.derived]
        return {name: _plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetadataResult(Result):
    """Result of `Table.set_properties`, `Table.add_columns` and `Table.widen_columns`.

    Attributes
    ----------
    changed : tuple of str
        Properties or columns that were set, added or widened; empty if the table had them already.
    rewritten_files : int
        Number of data files written with a wider type. They replace as many files or more.
    """

    changed: tuple[str, ...]
    rewritten_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FilesResult(Result):
    """Result of an operation that writes data files.

    Attributes
    ----------
    files, bytes : int
        Number and size of the data files written.
    engine : {"memory", "spill", "spark"}
        Whether the rows were in memory, were sorted through temporary files, or were written by executors of Spark.
    spilled_bytes : int
        Number of bytes written to temporary files.
    """

    files: int
    bytes: int
    engine: Literal["memory", "spill", "spark"] = "memory"
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RewriteResult(FilesResult):
    """Result of an operation that replaces data files.

    Attributes
    ----------
    plan : polars.DataFrame
        The files to replace, and why.
    revision_id : int
        Revision of the files written last; the newest revision of the table if no file was written.
    new_revision : bool
        Whether a new revision was added.
    attempts : int
        Number of attempts to commit.
    """

    plan: pl.DataFrame = field(repr=False)
    revision_id: int
    new_revision: bool
    attempts: int

    derived: ClassVar[tuple[str, ...]] = ("files_removed", "bytes_removed")

    @property
    def files_removed(self) -> int:
        """Number of files that were, or would be, replaced."""
        return self.plan.height

    @property
    def bytes_removed(self) -> int:
        """Size of the files that were, or would be, replaced."""
        return int(self.plan["bytes"].sum())


def _words(value: object) -> str:
    """Format a value for people: thousands separators, no quotes."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_words(item)}" for name, item in value.items())
    if isinstance(value, tuple):
        text = ", ".join(map(_words, value[:_FEW]))
        few = len(value) <= _FEW and len(text) <= _MAX_CHARACTERS
        return text if few else f"{len(value):,}, from {_words(value[0])} to {_words(value[-1])}"
    return str(shortened(value))


def _plain(value: object) -> object:
    if isinstance(value, pl.DataFrame):
        return value.to_dicts()
    return list(value) if isinstance(value, tuple) else value
