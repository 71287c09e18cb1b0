"""Joins of an estimate: frames, and tables with the same sampling key."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, get_args

import polars as pl

from qbeast_core.io.location import Location
from qbeast_core.plan.nodes import named_columns
from qbeast_core.sampling.sums import JoinHow, Lookup
from qbeast_core.table.data.expressions import Predicate, condition_of, evaluating
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.estimate.sum_task import refuse
from qbeast_core.table.index.counts import index_call
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.snapshot.snapshot import newest_snapshot

if TYPE_CHECKING:
    from qbeast_core.sql.clauses import TextJoin


_HOWS: Final = get_args(JoinHow)


class OneVersion(Protocol):
    """A `Table`."""

    @property
    def planner(self) -> Planner:
        """Planner of reads."""
        ...


Joinable: TypeAlias = FrameLike | OneVersion | str | os.PathLike[str]


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A join of an estimate; the tuples ``(other, on)`` and ``(other, on, how)`` are short for it.

    Parameters
    ----------
    other : Table, frame, str or path-like
        A table whose sampling key is `on`, or its path (for the newest version, with the storage options of the
        estimated table), or a frame.
    on : str or sequence of str
        Columns that are equal in both. For a table: the sampling key of both tables, which are the columns of
        ``sample_by``, or the indexed columns of a table without it. Null matches nothing.
    how : {"left", "inner", "semi", "anti"}, default "left"
        As `polars.DataFrame.join`: all rows with the columns of their matches, only rows with a match, or only the rows
        with (``semi``) or without (``anti``) a match, and no columns of `other`.
    where : str, bytes or polars.Expr, optional
        Rows of `other` to join, see `qbeast.scan_table`.

    Examples
    --------
    Users with an order of more than 90, and without a return:

    >>> import polars as pl, qbeast
    >>> users, ids = pl.DataFrame({"user": range(1000)}), pl.int_range(3000, eager=True)
    >>> orders = pl.DataFrame({"user": ids % 700, "price": ids % 100})
    >>> for name, rows in {"users": users, "orders": orders, "returns": orders.head(50)}.items():
    ...     _ = qbeast.write_table(rows, name, columns=[*rows.columns], sample_by=["user"])
    >>> ordered = qbeast.Join(qbeast.open_table("orders"), "user", "semi", where="price > 90")
    >>> returned = (qbeast.open_table("returns"), "user", "anti")
    >>> result = qbeast.open_table("users").rows(sample=1.0).estimate({"n": pl.len()}, join=[ordered, returned])
    >>> matching = orders.filter(pl.col("price") > 90)["user"].unique()
    >>> result.frame["n"].item() == matching.is_in(range(50)).not_().sum()
    True
    """

    other: Joinable
    on: str | Sequence[str]
    how: JoinHow = "left"
    where: Predicate | None = None


_Pair: TypeAlias = tuple[Joinable, str | Sequence[str]]
_Triple: TypeAlias = tuple[Joinable, str | Sequence[str], JoinHow]

# A join, or several that are applied in order.
# For a query: the tables or frames of its JOINs, by the names in the text.
Joins: TypeAlias = Join | _Pair | _Triple | Sequence[Join | _Pair | _Triple] | Mapping[str, Joinable]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A validated join."""

    # For a table: no rows, but all columns that the join adds, and `on`.
    lookup: Lookup
    # None for a frame.
    planner: Planner | None = None
    # Filter of the rows of the table.
    where: pl.Expr | None = None
    # Columns of the table that the rows also have; expressions must not use them.
    ambiguous: frozenset[str] = frozenset()

    @property
    def changes_rows(self) -> bool:
        """Whether the number of rows may change."""
        return self.planner is not None or self.lookup.how != "left"

    @property
    def is_filter(self) -> bool:
        """Whether the join adds no columns."""
        return self.lookup.how in ("semi", "anti")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table to read."""
        return tuple(dict.fromkeys([*self.lookup.frame.columns, *named_columns(self.where)]))

    def with_rows(self, frame: pl.DataFrame) -> Joined:
        """Return the join with these rows of the table."""
        return replace(self, lookup=replace(self.lookup, frame=frame))

    def needed(self, names: Collection[str]) -> Joined:
        """Return the join of a table with only the columns that expressions use."""
        if self.planner is None:
            return self
        doubtful = [name for name in names if name in self.ambiguous]
        if doubtful:
            uri, name = self.planner.snapshot.uri, doubtful[0]
            cure = f' Rename it in one of them: Table.rename_column({name!r}, "...").'
            refuse("join", f"adds {uri!r}, which also has a column {name!r}, so it is ambiguous", cure)
        schema = self.lookup.frame.schema
        kept = [name for name in schema if name in names or name in self.lookup.on]
        return self.with_rows(self.lookup.frame.select(kept))


def joins_of(joins: object, planner: Planner) -> tuple[list[Joined], pl.Schema]:
    """Validate joins; return them, and the columns of the joined rows."""
    result, schema = list[Joined](), planner.snapshot.schema
    for join in () if joins is None else _listed(joins):
        other, names = _planner_of(join.other, planner), _names(join.on)
        joined = (
            _frame_join(join, names, schema)
            if other is None
            else _table_join(join, names, planner, other, schema)
        )
        if not joined.is_filter:
            schema = pl.Schema({**joined.lookup.frame.schema, **schema})
        result.append(joined)
    return result, schema


def joins_of_text(joins: object, of_text: Sequence[TextJoin] | None) -> object:
    """Return the joins of a query, with tables from a mapping; without JOIN in it, `joins` as they are."""
    named = cast("Mapping[object, Any]", joins) if isinstance(joins, Mapping) else {}
    if not of_text:
        if isinstance(joins, Mapping):
            cure = ' Write "SELECT ... FROM self JOIN users USING (user)", or pass join=(other, ["user"]).'
            refuse("join", "is a mapping of names, and `aggregates` has no JOIN of such a name", cure)
        return joins
    texts = [join.name for join in of_text]
    missing = next((name for name in texts if name not in named), None)
    if missing is not None:
        refuse(
            "join",
            f"must name the table {missing!r} that the query joins: join={{{missing!r}: table}}, with a Table, its "
            "path or a frame",
        )
    unused = next((name for name in named if name not in texts), None)
    if unused is not None:
        refuse("join", f"names {unused!r}, and the query joins {texts} only")
    return [Join(named[join.name], join.on, join.how) for join in of_text]


def _listed(joins: Any) -> Iterable[Join]:
    is_several = isinstance(joins, list) or (
        isinstance(joins, tuple) and len(joins) > 0 and isinstance(joins[0], Join | tuple)
    )
    for item in joins if is_several else [joins]:
        join = Join(*item) if isinstance(item, tuple) and len(item) in (2, 3) else item
        if not isinstance(join, Join):
            refuse("join", 'must be (frame or table, columns), with an optional "inner", or qbeast.Join(...)')
        if join.how not in _HOWS:
            refuse("join", f"can be one of {list(_HOWS)}, not {join.how!r}")
        yield join


def _planner_of(other: object, planner: Planner) -> Planner | None:
    """Return the planner of a table, or of the newest version at a path; None for a frame."""
    if isinstance(other, str | os.PathLike):
        path, own = cast("str | os.PathLike[str]", other), planner.snapshot.location
        return Planner(
            newest_snapshot(
                Location.of(path, own.options_of_others, allow_absolute_paths=own.trusts_absolute)
            )
        )
    found = getattr(other, "planner", None)
    return found if isinstance(found, Planner) else None


def _names(on: object) -> tuple[str, ...]:
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        refuse("join", f"takes a column name or a list of them, not {on!r}")
    if len(set(names)) < len(names):
        refuse("join", f"must name different columns, not {on!r}")
    return tuple(cast("Sequence[str]", names))


def _frame_join(join: Join, on: tuple[str, ...], schema: pl.Schema) -> Joined:
    frame = to_frame(cast("FrameLike", join.other))
    _check_columns(on, schema, frame.schema, "frame")
    if join.where is not None:
        condition = condition_of(join.where, frame.schema, argument="join").expr
        with evaluating(condition, "join"):
            frame = frame.filter(condition)
    if join.how in ("semi", "anti"):
        return Joined(Lookup(frame.select(on).unique(), on, join.how))
    duplicates = [name for name in frame.columns if name in schema and name not in on]
    if duplicates:
        refuse("join", f"has columns that the table also has: {duplicates}; rename or drop them")
    if frame.select(on).is_duplicated().any():
        refuse("join", f"is many to one: a value of {list(on)} may occur once in the frame; make it unique")
    return Joined(Lookup(frame, on, join.how))


def _table_join(
    join: Join, on: tuple[str, ...], planner: Planner, other: Planner, schema: pl.Schema
) -> Joined:
    others = other.snapshot.schema
    _check_columns(on, schema, others, "other table")
    for side in (planner, other):
        _check_key(on, side)
    if planner.hashed != other.hashed:
        _refuse_keys(on, f"the order of its columns differs: {list(planner.hashed)} and {list(other.hashed)}")
    floats = [name for name in on if schema[name].is_float()]
    if floats:
        refuse("join", f"of tables cannot compare {floats}, which are floating-point numbers; cast them")
    where = None
    if join.where is not None:
        where = condition_of(join.where, others, argument="join").expr
    is_filter = join.how in ("semi", "anti")
    added = [name for name in others if name not in schema and not is_filter]
    ambiguous = [name for name in others if name in schema and name not in on and not is_filter]
    empty = pl.DataFrame(schema={name: others[name] for name in [*on, *added]})
    return Joined(Lookup(empty, on, join.how), other, where, frozenset(ambiguous))


def _check_columns(on: Sequence[str], schema: pl.Schema, others: pl.Schema, what: str) -> None:
    missing = [name for name in on if name not in schema or name not in others]
    if missing or not on:
        refuse(
            "join",
            f"needs columns of both the table and the {what}; these are missing in one of them: {missing}",
        )
    mismatched = [name for name in on if others[name] != schema[name]]
    if mismatched:
        again = " and write the table again with sample_by" if what == "other table" else ""
        types = ", ".join(f"{name}: {schema[name]} and {others[name]}" for name in mismatched)
        refuse(
            "join",
            f"compares {mismatched}, which have other types in the {what} than in the table ({types}): cast them"
            f"{again}",
        )


def _check_key(on: Sequence[str], side: Planner) -> None:
    """Refuse a table whose samples do not hold all rows of their keys."""
    uri, own = side.snapshot.uri, Planner(side.snapshot).hashed
    if not side.snapshot.config.is_indexed:
        _refuse_keys(on, f"{uri!r} has no index", f" or index it: {index_call(side.snapshot)}")
    if sorted(own) != sorted(on):
        _refuse_keys(on, f"{uri!r} is sampled by {list(own)}")
    if side.sample_by is not None:
        _refuse_keys(on, f"`sample_by` is {list(side.sample_by)}", ", or leave `sample_by` out")
    if side.hashes_differ:
        _refuse_keys(on, f"older files of {uri!r} are sampled by other columns", ", or optimize it")


def _refuse_keys(on: Sequence[str], what: str, cure: str = "") -> None:
    names = list(on)
    cure = f" Write it with sample_by={names}{cure}. Or join a frame: read it with scan_table(...)."
    refuse("join", f"of tables needs the sampling key {names} in both, and {what}", cure)
