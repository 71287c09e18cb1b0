"""A merge compiled for one version of a table: columns, conditions and values.

It is sent to workers: it can be pickled and does not open the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.io.location import Location
from qbeast_core.log.rules import Identity
from qbeast_core.table.data.rules import AppliedRules
from qbeast_core.table.data.scan import TableFiles
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.dml.merge.clauses import Clauses, MergeConditions
from qbeast_core.table.dml.merge.match_rows import ROW, SOURCE_ROW, MatchRows, Verdict, judge
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.engine.row_change import RowChange, RowFunction, RowImages, UniformChange, load_rows
from qbeast_core.table.read.tasks import RowFilter


@dataclass(frozen=True, slots=True, eq=False)
class MergeRules:
    """What a merge does to rows of one version."""

    schema_json: str = field(repr=False)
    schema: pl.Schema
    # Columns of the table that rows of the source have: all but the sample column, and columns that it computes.
    given: pl.Schema
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
        return fit_source(rows, self.clauses, self.schema_json, self.given)

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

    def matching(self, files: TableFiles, keep: RowFilter, source: pl.DataFrame) -> MatchRows:
        """Return the task that matches rows of files with the source. `keep` reads `match_columns`."""
        numbered = self.numbered(source, whole=self.conditions.uses(self.clauses.source_name))
        return MatchRows(files, keep, numbered, self.clauses, self.conditions)

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
            values = source.select(list(self.given))
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
class MergedRows(UniformChange):
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
        return judge(numbered, self.source, self.rules.clauses, self.rules.conditions)

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
        self._change: MergedRows | None = None

    def __reduce__(self) -> tuple[type[_MergedFile], tuple[object, ...]]:
        return _MergedFile, self._arguments  # never the rows

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._loaded()(rows)

    def images(self, rows: pl.DataFrame) -> RowImages:
        return self._loaded().images(rows)

    def _loaded(self) -> MergedRows:
        if self._change is None:
            rules, location, path = self._arguments
            source = load_rows(location.store, path)
            self._change = MergedRows(rules, rules.numbered(source, whole=True))
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
