"""A merge compiled for one version: clauses, conditions, values, and the tasks that match rows by keys.

It is sent to workers: it can be pickled and does not open the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from pyroaring import BitMap64

from qbeast_core.errors import (
    InputChangedError,
    InvalidInputError,
    SchemaMismatchError,
    check_choice,
    invalid_argument,
    unknown_columns,
)
from qbeast_core.io.location import Location
from qbeast_core.log.deletion_vectors import row_set
from qbeast_core.log.rules import Identity
from qbeast_core.plan.nodes import Node, Nothing, Operand, Unknown, all_of, compare, is_in
from qbeast_core.space.values import I64Array
from qbeast_core.support.frames import join_equal, own_column
from qbeast_core.support.hints import keys_hint
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import Condition, Value, Where, condition_of
from qbeast_core.table.data.rules import AppliedRules
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.dml.tasks import AT_ONCE, PLACE, Assignments
from qbeast_core.table.engine.row_change import RowChange, RowFunction, RowImages, UniformChange, load_rows
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.tree.grid import frame_weights

# Action for rows of the table that match a row of the source.
WhenMatched: TypeAlias = Literal["update", "delete", "ignore"]

# Action for rows of the source that match no row of the table.
WhenNew: TypeAlias = Literal["insert", "ignore"]

# What to do if rows of the source without a match have equal keys.
Duplicates: TypeAlias = Literal["error", "insert"]

# Action for rows of the table that match no row of the source.
WhenNotMatchedBySource: TypeAlias = Literal["delete", "ignore"]

_IDLE: Final = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Options of a merge. `Table.merge` documents them."""

    on: str | Sequence[str]
    when_matched: WhenMatched = "update"
    matched_if: Where | None = None
    delete_if: Where | None = None
    update: Mapping[str, Value] | None = None
    when_not_matched: WhenNew = "insert"
    not_matched_if: Where | None = None
    insert: Mapping[str, Value] | None = None
    duplicates: Duplicates = "error"
    when_not_matched_by_source: WhenNotMatchedBySource = "ignore"
    not_matched_by_source_if: Where | None = None
    source_name: str = "source"
    schema_mode: Literal["merge"] | None = None

    def __post_init__(self) -> None:
        names = cast("object", [self.on] if isinstance(self.on, str) else self.on)
        if not isinstance(names, Sequence) or not all(
            isinstance(name, str) for name in cast("Sequence[object]", names)
        ):
            invalid_argument("on", 'must be a column or a list of columns, such as "id"', value=self.on)

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns to match rows by."""
        return (self.on,) if isinstance(self.on, str) else tuple(self.on)

    @property
    def changes_rows(self) -> bool:
        """Whether rows of the table may be deleted or changed."""
        return (self.when_matched, self.when_not_matched_by_source) != (_IDLE, _IDLE)

    @property
    def needs_every_column(self) -> bool:
        """Whether the source needs all columns of the table."""
        updates = self.when_matched == "update" and self.update is None
        return updates or (self.when_not_matched == "insert" and self.insert is None)

    def columns_needed(self, schema: pl.Schema, source: Collection[str]) -> list[str]:
        """Return the columns of the table that the source needs, in the types of the table."""
        if not self.needs_every_column:
            return list(self.keys)
        inserts = self.when_not_matched == "insert" and self.insert is None
        return [name for name in schema if self.schema_mode is None or inserts or name in source]

    def cure(self, source: Sequence[str]) -> str:
        """Return arguments that set only columns that the source has, as a sentence after a space."""
        if not self.needs_every_column or not {*self.keys} <= {*source}:
            return ""
        changed = [name for name in source if name not in self.keys]
        updates = self.when_matched == "update" and self.update is None
        inserts = self.when_not_matched == "insert" and self.insert is None
        if updates and changed:
            example = f"update={self._copies(changed)}" + inserts * ' and when_not_matched="ignore"'
        else:
            example = updates * 'when_matched="ignore" and ' + f"insert={self._copies(source)}"
        or_merge = '; or give schema_mode="merge" for columns that are new or missing'
        return f" Set columns with `update` and `insert`, such as {example}{'' if self.schema_mode else or_merge}."

    def _copies(self, names: Sequence[str]) -> str:
        texts = {name: name if name.isidentifier() else json.dumps(name) for name in names}
        values = {name: f"{self.source_name}.{text}" for name, text in texts.items()}
        return json.dumps(values, ensure_ascii=False)

    def check(self, schema: pl.Schema) -> None:
        """Validate the options for a table of these columns."""
        if isinstance(cast("object", self.when_matched), Mapping):
            problem = 'must be "update", "delete" or "ignore"'
            cure = f"Write update={json.dumps(self.when_matched, default=str)}."
            invalid_argument("when_matched", problem, value=self.when_matched, cure=cure)
        check_choice("when_matched", self.when_matched, get_args(WhenMatched))
        check_choice("when_not_matched", self.when_not_matched, get_args(WhenNew))
        check_choice("duplicates", self.duplicates, get_args(Duplicates))
        by_source = self.when_not_matched_by_source
        check_choice("when_not_matched_by_source", by_source, get_args(WhenNotMatchedBySource))
        if self.schema_mode not in (None, "merge"):
            _refuse("schema_mode", f"must be 'merge' or None in a merge, got {self.schema_mode!r}")
        if (self.when_matched, self.when_not_matched, by_source) == (_IDLE,) * 3:
            _refuse("when_matched", "a merge that ignores every row does nothing")
        for argument, value, actions, action in (
            ("matched_if", self.matched_if, ("update", "delete"), self.when_matched),
            ("delete_if", self.delete_if, ("update",), self.when_matched),
            ("update", self.update, ("update",), self.when_matched),
            ("not_matched_if", self.not_matched_if, ("insert",), self.when_not_matched),
            ("insert", self.insert, ("insert",), self.when_not_matched),
            ("duplicates", None if self.duplicates == "error" else 1, ("insert",), self.when_not_matched),
            ("not_matched_by_source_if", self.not_matched_by_source_if, ("delete",), by_source),
        ):
            if value is not None and action not in actions:
                _refuse(argument, f"it has no effect on rows that the merge would {action}")
        self._check_names(schema)

    def _check_names(self, schema: pl.Schema) -> None:
        keys = self.keys
        if any("=" in name and name not in schema for name in keys) and keys_hint(" AND ".join(keys)):
            invalid_argument("on", "must name columns", value=self.on, cure=keys_hint(" AND ".join(keys)))
        if not keys or len(set(keys)) < len(keys):
            invalid_argument("on", "must name one column or several, each once", value=self.on)
        unknown = [name for name in keys if name not in schema]
        if unknown:
            unknown_columns("on", unknown, schema)
        nested = [name for name in keys if schema[name].is_nested()]
        if nested:
            _refuse("on", f"rows cannot be matched by the nested column(s) {nested}")
        if self.source_name in schema:
            _refuse("source_name", f"the table has a column {self.source_name!r}; choose another name")

    def conditions(self, schema: pl.Schema, source: pl.Schema) -> MergeConditions:
        """Compile the conditions."""
        alone = pl.Schema({self.source_name: pl.Struct(source)})
        both = pl.Schema({**schema, **alone})
        delete = None if self.delete_if is None else condition_of(self.delete_if, both, argument="delete_if")
        argument = "not_matched_by_source_if"
        return MergeConditions(
            matched=condition_of(self.matched_if, both, argument="matched_if"),
            delete=delete,
            new=condition_of(self.not_matched_if, alone, argument="not_matched_if"),
            not_matched=condition_of(self.not_matched_by_source_if, schema, argument=argument),
        )

    def described(self) -> dict[str, list[dict[str, str]]]:
        """Return the clauses in the form of Delta's history."""
        matched = [] if self.when_matched == _IDLE else [_clause(self.when_matched, self.matched_if)]
        if self.delete_if is not None:
            matched.insert(0, _clause("delete", self.delete_if))
        new = [] if self.when_not_matched == _IDLE else [_clause("insert", self.not_matched_if)]
        not_matched = [_clause("delete", self.not_matched_by_source_if)]
        return {
            "matchedPredicates": matched,
            "notMatchedPredicates": new,
            "notMatchedBySourcePredicates": [] if self.when_not_matched_by_source == _IDLE else not_matched,
        }


@dataclass(frozen=True, slots=True, eq=False)
class MergeConditions:
    """The compiled conditions."""

    # Matching rows to update or to delete.
    matched: Condition
    # Matching rows to delete, also where the others are updated.
    delete: Condition | None
    # Rows of the source without a match.
    new: Condition
    # Rows of the table without a match.
    not_matched: Condition

    def columns_of_rows(self, schema: pl.Schema) -> list[str]:
        """Return the columns of the table that the conditions use."""
        names = [*self._matching_columns(), *self.not_matched.columns]
        return [name for name in dict.fromkeys(names) if name in schema]

    def uses(self, name: str) -> bool:
        """Return whether a condition for matching rows uses a column."""
        return name in self._matching_columns()

    def _matching_columns(self) -> list[str]:
        return [*self.matched.columns, *([] if self.delete is None else self.delete.columns)]


def _clause(action: str, condition: Where | None) -> dict[str, str]:
    return ({} if condition is None else {"predicate": str(condition)}) | {"actionType": action}


def _refuse(argument: str, problem: str) -> None:
    msg = f"`{argument}`: {problem}"
    raise InvalidInputError(msg, argument=argument)


# Name of a column that numbers rows of the table.
ROW: Final = own_column("row")

# Name of a column that numbers the rows of the source.
SOURCE_ROW: Final = own_column("source_row")

_FILE: Final = own_column("file")
_UPDATES: Final = own_column("is_updated")


class MergedPlaces(NamedTuple):
    """The rows of a file that a merge changes, by their indexes: updated, deleted, and deleted without a match."""

    updated: BitMap64
    deleted: BitMap64
    not_matched: BitMap64

    @property
    def rows(self) -> BitMap64:
        """All of them."""
        return self.updated | self.deleted | self.not_matched


class Matched(NamedTuple):
    """The source rows that match rows of some files, and the rows that change of each file."""

    source_rows: I64Array
    places: list[MergedPlaces]
    # The updated rows of each file as they were read, in the order of the file.
    updated: list[pl.DataFrame]


def _match_rows(
    scans: Sequence[FileScan],
    *,
    files: TableFiles,
    keep: RowFilter,
    source: pl.DataFrame,
    clauses: Clauses,
    conditions: MergeConditions,
    returns_rows: bool,
) -> Matched:
    """Match rows of some files with the source.

    `keep` selects the keys and the columns that the conditions use. The updated rows are returned if `returns_rows`.
    """
    keep = replace(keep, place_column=PLACE)

    def read(number: int, scan: FileScan) -> pl.DataFrame:
        rows = pl.concat([keep.empty, *read_scans([scan], keep, files)])  # a file may have no rows
        return rows.with_columns(pl.lit(number, dtype=pl.Int64).alias(_FILE))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        frames = list(pool.map(read, range(len(scans)), scans))
    verdict = _judge(pl.concat(frames).with_row_index(ROW), source, clauses, conditions)
    frames = [verdict.updated, verdict.deleted, verdict.not_matched]
    by_kind = [[row_set(rows[PLACE].to_numpy()) for rows in _by_file(frame, len(scans))] for frame in frames]
    updated = _by_file(verdict.updated.select(*keep.columns, _FILE), len(scans)) if returns_rows else []
    places = [MergedPlaces(*kinds) for kinds in zip(*by_kind, strict=True)]
    return Matched(verdict.matched.to_numpy(), places, updated)


def _by_file(rows: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """Split rows in the order of files."""
    ends = np.searchsorted(rows[_FILE].to_numpy(), np.arange(count + 1)).tolist()
    return [rows[first:end] for first, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Actions of a merge for some rows of the table."""

    # Rows to update, each with its matching row of the source.
    updated: pl.DataFrame
    # Rows to delete: with a match, and without one.
    deleted: pl.DataFrame
    not_matched: pl.DataFrame
    # Numbers of the source rows that have a match.
    matched: pl.Series


def _judge(
    rows: pl.DataFrame, source: pl.DataFrame, clauses: Clauses, conditions: MergeConditions
) -> Verdict:
    """Match rows of the table with the source and apply the conditions."""
    keys = list(clauses.keys)
    pairs = join_equal(rows, source, keys, "inner", maintain_order="left_right")
    deletes = pl.repeat(clauses.when_matched == "delete", pairs.height, dtype=pl.Boolean, eager=True)
    if conditions.delete is not None:
        deletes = conditions.delete.mask(pairs)
    acts = conditions.matched.mask(pairs)
    if clauses.when_matched != "delete":
        acts = (acts | deletes) & (clauses.when_matched == "update")
    acting = pairs.with_columns((~deletes).alias(_UPDATES)).filter(acts)
    if clauses.when_matched == "delete":
        acting = acting.unique(ROW, keep="first", maintain_order=True)
    _refuse_several(acting, keys)
    not_matched = rows.clear()
    if clauses.when_not_matched_by_source == "delete":
        alone = join_equal(rows, source, keys, "anti", maintain_order="left")
        not_matched = alone.filter(conditions.not_matched.mask(alone))
    updated = acting.filter(_UPDATES).drop(_UPDATES)
    return Verdict(updated, acting.filter(~pl.col(_UPDATES)), not_matched, pairs[SOURCE_ROW].unique())


def join_source(
    source: pl.DataFrame, keys: pl.DataFrame, on: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of the source joined with their matching keys, and the rows without a match."""
    numbered = source.with_row_index(SOURCE_ROW)
    pairs = join_equal(numbered, keys, on, "inner")
    matched = pairs.select(SOURCE_ROW).unique()
    unmatched = numbered.join(matched, on=SOURCE_ROW, how="anti", maintain_order="left")
    return pairs.drop(SOURCE_ROW), unmatched.drop(SOURCE_ROW)


def _refuse_several(acting: pl.DataFrame, keys: list[str]) -> None:
    duplicates = acting.filter(pl.col(ROW).is_duplicated())
    if duplicates.height:
        example = duplicates.select(keys).row(0, named=True)
        msg = (
            f"{duplicates[ROW].n_unique()} or more rows of the table match several rows of the source that would "
            f"change them, for example {example}. Leave one row per key in the source."
        )
        raise InvalidInputError(msg, argument="source")


@dataclass(frozen=True, slots=True, eq=False)
class MergeRules:
    """What a merge does to rows of one version."""

    schema_json: str = field(repr=False)
    schema: pl.Schema
    # Columns of the table that rows of the source have: all but the sample column, and columns that it computes.
    named_schema: pl.Schema
    clauses: Clauses
    conditions: MergeConditions
    # New values of matching rows. None: matching rows are not updated.
    updates: Assignments | None
    # Values of new rows. None: the columns of the source.
    inserts: Assignments | None
    # Schema of the rows that `fit` returns.
    source_schema: pl.Schema
    # Schema of the rows of files: `schema` and the hidden columns of row tracking.
    copied_schema: pl.Schema
    # Rules of the table for new rows. None: it has none.
    of_new_rows: AppliedRules | None = None
    # Identity columns whose numbers new rows get when they are read.
    drawn: tuple[Identity, ...] = ()

    @property
    def empty_source(self) -> pl.DataFrame:
        """Frame without rows, with the columns that `fit` returns."""
        return self.source_schema.to_frame()

    def fit_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return only the key columns of the source, in the types of the table. Raises the errors of `fit`."""
        return fitted_columns(keys, self.clauses.keys, self.schema_json, self.schema)

    def fit(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the source. The columns that the merge needs have the types of the table."""
        return fit_source(rows, self.clauses, self.schema_json, self.named_schema)

    def match_columns(self) -> list[str]:
        """Return the columns of the table that matching reads."""
        return list(dict.fromkeys([*self.clauses.keys, *self.conditions.columns_of_rows(self.schema)]))

    @property
    def replaced(self) -> frozenset[str]:
        """Columns that updates replace without using their values."""
        return frozenset() if self.updates is None else self.updates.replaced.difference(self.match_columns())

    def numbered(self, source: pl.DataFrame, *, whole: bool) -> pl.DataFrame:
        """Return the keys and row numbers of the source to join with. `whole` adds the whole row as a struct."""
        row = [pl.struct(pl.all()).alias(self.clauses.source_name)] if whole else []
        return source.select(*self.clauses.keys, *row).with_row_index(SOURCE_ROW)

    def matching(
        self, files: TableFiles, keep: RowFilter, source: pl.DataFrame, *, returns_rows: bool = False
    ) -> Callable[[Sequence[FileScan]], Matched]:
        """Return the task that matches rows of files with the source. `keep` reads `match_columns`."""
        return partial(
            _match_rows,
            files=files,
            keep=keep,
            source=self.numbered(source, whole=self.conditions.uses(self.clauses.source_name)),
            clauses=self.clauses,
            conditions=self.conditions,
            returns_rows=returns_rows,
        )

    def inserted(self, source: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to insert, of the rows of the source without a match."""
        if not self._inserts_rows:
            return source.clear()
        condition = self.conditions.new
        return (
            source.filter(condition.mask(source.select(self._row))) if condition.constant is None else source
        )

    @property
    def _inserts_rows(self) -> bool:
        return self.clauses.when_not_matched == "insert" and self.conditions.new.constant is not False

    @property
    def _row(self) -> pl.Expr:
        return pl.struct(pl.all()).alias(self.clauses.source_name)

    def new_rows(self, source: pl.DataFrame) -> pl.DataFrame:
        """Return what `inserted` returned like rows of the table."""
        schema = self.copied_schema
        if not self._inserts_rows:
            return schema.to_frame()
        if self.inserts is None:
            values = source.select(list(self.named_schema))
        else:
            values = self.inserts.apply(source.select(self._row)).select(self.inserts.columns)
        rows = pl.concat([schema.to_frame(), values], how="diagonal")
        return rows if self.of_new_rows is None else self.of_new_rows.apply(rows, argument="source")


def fit_source(rows: pl.DataFrame, clauses: Clauses, schema_json: str, schema: pl.Schema) -> pl.DataFrame:
    """Convert rows of a source to the types of the table; see `MergeRules.fit`."""
    names = clauses.columns_needed(schema, frozenset(rows.columns))
    return fitted_columns(rows, names, schema_json, schema, clauses)


def fitted_columns(
    rows: pl.DataFrame,
    names: Sequence[str],
    schema_json: str,
    schema: pl.Schema,
    clauses: Clauses | None = None,
    *,
    merge: bool = False,
) -> pl.DataFrame:
    """Convert some columns of a source to the types of the table. An error has a cure that fits the clauses."""
    merge = merge or (clauses is not None and clauses.schema_mode == "merge")
    target = pl.Schema({name: schema[name] for name in names})
    columns = frozenset(rows.columns)
    used = rows.select([name for name in names if name in columns])
    try:
        fitted = fit_frame(used, schema_json, target, merge=merge)
    except SchemaMismatchError as error:
        cure = " Cast the columns of the source."
        if not columns.issuperset(names):
            cure = "" if clauses is None else clauses.cure([name for name in schema if name in columns])
        msg = f"the source does not fit the table: {'; '.join(error.problems)}.{cure}"
        raise SchemaMismatchError(msg, problems=error.problems) from error
    return rows.with_columns(fitted.get_columns())


@dataclass(frozen=True, slots=True, eq=False)
class MergeChange(UniformChange):
    """Applies a merge to rows of the table."""

    rules: MergeRules
    # From `MergeRules.numbered` with whole rows: at least the source rows that match a row to change.
    source: pl.DataFrame = field(repr=False)

    @property
    def replaced(self) -> frozenset[str]:
        """See `RowChange`."""
        return self.rules.replaced

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay and the updated rows."""
        numbered = rows.with_row_index(ROW)
        verdict = self._verdict(numbered)
        frames = (verdict.updated, verdict.deleted, verdict.not_matched)
        gone = pl.concat([frame.select(ROW) for frame in frames])
        kept = numbered.join(gone, on=ROW, how="anti", maintain_order="left").select(rows.columns)
        return pl.concat([kept, self._updated(verdict, rows.columns)])

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`."""
        verdict, names = self._verdict(rows.with_row_index(ROW)), rows.columns
        deleted = pl.concat([verdict.deleted.select(names), verdict.not_matched.select(names)])
        return RowImages(deleted, verdict.updated.select(names), self._updated(verdict, names))

    def _verdict(self, numbered: pl.DataFrame) -> Verdict:
        return _judge(numbered, self.source, self.rules.clauses, self.rules.conditions)

    def _updated(self, verdict: Verdict, names: list[str]) -> pl.DataFrame:
        updates, rows = self.rules.updates, verdict.updated
        return (rows if updates is None else updates.apply(rows)).select(names)


@dataclass(frozen=True, slots=True, eq=False)
class MergedFiles(RowChange):
    """Applies a merge to rows of the table. A stored file per file of the table holds its rows of the source."""

    rules: MergeRules
    location: Location
    # File of the table -> file with the source rows that match in it.
    stored: Mapping[str, str] = field(repr=False)

    @property
    def replaced(self) -> frozenset[str]:
        """See `RowChange`."""
        return self.rules.replaced

    def of_file(self, path: str) -> _MergedFile | None:
        """See `RowChange`."""
        stored = self.stored.get(path)
        return None if stored is None else _MergedFile(self.rules, self.location, stored)


class _MergedFile(RowFunction):
    """Applies a merge to the rows of one file. Loads the matching source rows at the first call."""

    def __init__(self, rules: MergeRules, location: Location, path: str) -> None:
        self._arguments = (rules, location, path)
        self._change: MergeChange | None = None

    def __reduce__(self) -> tuple[type[_MergedFile], tuple[object, ...]]:
        return _MergedFile, self._arguments  # never the rows

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._loaded()(rows)

    def images(self, rows: pl.DataFrame) -> RowImages:
        return self._loaded().images(rows)

    def _loaded(self) -> MergeChange:
        if self._change is None:
            rules, location, path = self._arguments
            source = load_rows(location.store, path)
            self._change = MergeChange(rules, rules.numbered(source, whole=True))
        return self._change


@dataclass(frozen=True, slots=True)
class DoubledKeys:
    """Rows to insert with the key of another one."""

    rows: int = 0
    example: Mapping[str, object] | None = None

    @staticmethod
    def sum(parts: Iterable[DoubledKeys]) -> DoubledKeys:
        """Add up the rows of parts without common keys."""
        doubled = [part for part in parts if part.rows]
        return (
            DoubledKeys(sum(part.rows for part in doubled), doubled[0].example) if doubled else DoubledKeys()
        )

    def refuse(self) -> None:
        """Raise if there are such rows."""
        if self.rows:
            msg = (
                f"{self.rows} row(s) of the source match no row of the table and have the key of another such row, for "
                f"example {self.example}. Leave one row per key in the source, or pass "
                'duplicates="insert" to insert all of them.'
            )
            raise InvalidInputError(msg, argument="duplicates", value="error", known=["insert"])


class NewKeys:
    """Collects the keys of rows to insert, in several calls. A null equals nothing."""

    def __init__(self, rules: MergeRules) -> None:
        self._names = list(rules.clauses.keys)
        self._is_checked = rules.clauses.duplicates == "error"
        self._keys = rules.empty_source.select(self._names)
        self.doubled = DoubledKeys()

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows of the source."""
        if not self._is_checked:
            return
        keys = pl.concat([self._keys, rows.select(self._names).drop_nulls()])
        self._keys = keys.unique()
        if self._keys.height < keys.height:
            example = keys.filter(keys.is_duplicated()).row(0, named=True)
            self.doubled = DoubledKeys.sum(
                [self.doubled, DoubledKeys(keys.height - self._keys.height, example)]
            )


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The values of one column without nulls."""

    # All distinct values in ascending order, or the minimum and the maximum.
    values: pl.Series
    # Whether `values` holds all distinct values.
    exact: bool

    @staticmethod
    def of(values: pl.Series, *, exact: bool = True) -> KeyColumn:
        """Return a column with all distinct values if they are few, else with their minimum and maximum."""
        different = values.drop_nulls().unique().sort()
        if exact and len(different) <= sizing().listed_keys:
            return KeyColumn(different, exact=True)
        ends = different.gather([0, len(different) - 1])
        return KeyColumn(ends.unique(maintain_order=True), exact=False)


@dataclass(frozen=True, slots=True, eq=False)
class KeyDigest:
    """Digest of the keys of some rows."""

    rows: int
    # Sum of the key hashes.
    hash_sum: int
    # One per column to match by.
    columns: tuple[KeyColumn, ...]

    def check(self, rows: int, hash_sum: int, *, advice: str) -> None:
        """Raise if a second read returned other rows."""
        if (rows, hash_sum) != (self.rows, self.hash_sum):
            msg = (
                f"the source changed while it was merged: {self.rows:,} rows were counted, then {rows:,} were read, or "
                f"their keys differed. It is read twice: {advice}"
            )
            raise InputChangedError(msg, rows_before=self.rows, rows_after=rows)


def digest_of(rules: MergeRules, rows: pl.DataFrame) -> KeyDigest:
    """Return the digest of the keys of some rows."""
    names = rules.clauses.keys
    keys = rules.fit_keys(rows)
    columns = tuple(KeyColumn.of(keys[name]) for name in names)
    return KeyDigest(keys.height, int(key_hashes(keys, names).sum(dtype=np.int64)), columns)


def merge_digests(digests: Sequence[KeyDigest]) -> KeyDigest:
    """Return the digest of all parts."""
    columns = [
        KeyColumn.of(pl.concat([part.values for part in parts]), exact=all(part.exact for part in parts))
        for parts in zip(*(digest.columns for digest in digests), strict=True)
    ]
    return KeyDigest(
        sum(digest.rows for digest in digests), sum(digest.hash_sum for digest in digests), tuple(columns)
    )


def key_hashes(rows: pl.DataFrame, names: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return a hash of each row's key. Equal keys have equal hashes in all processes on all machines.

    >>> hashes = key_hashes(pl.DataFrame({"a": [0.0, -0.0], "b": [True, True]}), ["a", "b"])
    >>> bool(hashes[0] == hashes[1])
    True
    """
    plain = rows.select(_hashable(name, rows.schema[name]) for name in names)
    return frame_weights(plain, list(names)).view(np.uint32)


def key_filter(rules: MergeRules, keep: RowFilter, digest: KeyDigest) -> RowFilter:
    """Return a filter that skips keys without a possible match."""
    tests = [_can_match(name, keys) for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)]
    predicate = pl.all_horizontal(tests)
    return RowFilter(keep.columns, keep.schema, keep.indexed, keep.weights, predicate, compares_values=True)


def key_nodes(rules: MergeRules, digest: KeyDigest) -> list[Node]:
    """Return a condition per key column that selects files with possible matches."""
    return [
        _node(Operand(name, rules.schema[name]), keys)
        for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)
    ]


def _can_match(name: str, keys: KeyColumn) -> pl.Expr:
    column, values = pl.col(name), keys.values
    if not len(values):
        return pl.lit(value=False)
    if values.dtype.is_float():  # a range does not contain NaN
        return column.is_not_null()
    if keys.exact:
        return column.is_in(values.implode())
    return column.is_between(pl.lit(values[0], values.dtype), pl.lit(values[-1], values.dtype))


def _node(operand: Operand, keys: KeyColumn) -> Node:
    values = keys.values
    if not len(values):
        return Nothing()
    if keys.exact:
        return is_in(operand, values, nulls_equal=False)
    if values.dtype.is_float() and values.is_nan().any():
        return Unknown()
    return all_of([compare(operand, ">=", values[:1]), compare(operand, "<=", values[-1:])])


def _hashable(name: str, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Boolean():
        return pl.col(name).cast(pl.Int8)
    return pl.col(name).bin.encode("hex") if dtype == pl.Binary() else pl.col(name)
