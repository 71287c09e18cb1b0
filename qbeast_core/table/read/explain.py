"""The plan of a read: the bytes to read, and why other files are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from qbeast_core.io.footer import PagesUnavailable, Unreadable, read_footer
from qbeast_core.io.pages import PageRequest
from qbeast_core.io.store import Range, map_files
from qbeast_core.log.protocol import DELETION_VECTORS, is_true
from qbeast_core.log.rebase import why_no_vectors
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.bounds import coordinate_intervals, trusted_counts
from qbeast_core.plan.nodes import (
    And,
    Atom,
    Compare,
    IsNotNull,
    Node,
    Nothing,
    Or,
    Unknown,
    column_of,
    columns_in,
    named_columns,
)
from qbeast_core.plan.predicate import conjuncts, disjuncts, parse_predicate
from qbeast_core.plan.select import files_that_may_match, match
from qbeast_core.plan.weights import Sample
from qbeast_core.results import Hinted
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.spec.revision import HashTransformation, Revision
from qbeast_core.support.frames import bar, html_of, to_json
from qbeast_core.support.process import refuse_forked
from qbeast_core.support.text import in_lines, short_name
from qbeast_core.table.data.expressions import Predicate, filter_of
from qbeast_core.table.data.scan import RowCodec
from qbeast_core.table.index.counts import KeyCounts, count_keys
from qbeast_core.table.read.planner import Planner, ScanPlan, all_pages, page_request, reads_all_pages
from qbeast_core.table.read.scan import pushed_down, warn_of_sample
from qbeast_core.tree.keys import CLUSTERED

_RANGES: Final = pl.List(pl.Struct({"start": pl.Int64, "length": pl.Int64}))

_SKIPPED: Final[dict[str, Any]] = {"opened": False, "pages_opened": 0, "ranges": [], "bytes_opened": 0}

_COMPARE: Final = "compare a column with constants instead (=, <, BETWEEN, IN, LIKE 'a%', IS NULL)"
_NOT_SUPPORTED: Final = f"the index does not support it; {_COMPARE}"
_LATER: Final = f"Polars applies it after the read, as it may fail for some value or calls Python; {_COMPARE}"
_ONE_VALUE_LESS: Final = "it excludes only one value; list the values to match instead"
_STAGED: Final = "no file is indexed yet; optimize the table, or convert it first if it has no index"


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class _Part:
    """The plan of some files."""

    planner: Planner
    scan_plan: ScanPlan
    sample: Sample | None
    columns: tuple[str, ...]

    @cached_property
    def files(self) -> pl.DataFrame:
        """`files` of the planner."""
        chosen = self.scan_plan.selection
        ranges = [self._ranges_of(number) for number in range(len(self.planner.paths))]
        sizes = [None if r is None else r[1] for r in ranges]
        dicts = [None if r is None else [{"start": s, "length": n} for s, n in r[0]] for r in ranges]
        return pl.DataFrame(
            {
                "path": pl.Series(self.planner.paths, dtype=pl.String),
                "opened": chosen.opened,
                "pages_opened": chosen.pages_opened,
                "pages_total": chosen.pages_total,
                "ranges": pl.Series(dicts, dtype=_RANGES),
                "bytes_opened": pl.Series(sizes, dtype=pl.Int64).fill_null(self._sizes),
                "reason": chosen.reasons,
            }
        )

    @property
    def files_to_open(self) -> pl.DataFrame:
        files, locate = self.planner.snapshot.files, self.planner.snapshot.store.locate
        stored = files.select("size_bytes", "num_records", pl.col("revision").alias("revision_id"))
        own, vectors = self.files, files.select("has_deletion_vector")
        listed = pl.concat([own.select("path"), stored, own.select("ranges"), vectors], how="horizontal")
        opened = listed.filter(own["opened"])
        return opened.with_columns(pl.Series("path", map(locate, opened["path"]), pl.String))

    @property
    def bytes_opened(self) -> int:
        opened = np.flatnonzero(self.scan_plan.selection.opened).tolist()
        return sum(self._bytes_opened_of(number) for number in opened)

    @property
    def sums(self) -> tuple[int, int, int]:
        chosen = self.scan_plan.selection
        uncounted = _uncounted(chosen.table)
        by_footer = _footer_rows(self.planner, uncounted & chosen.opened)
        rows = int(chosen.rows_opened[~uncounted].sum()) + by_footer
        of_files = int(_counted_rows(chosen.table)[chosen.opened & ~uncounted].sum()) + by_footer
        return rows, of_files, int(self._sizes.filter(pl.Series(chosen.opened)).sum())

    @property
    def tagged(self) -> pl.DataFrame:
        """The files that the filter opens, without the sample."""
        chosen = self.scan_plan if self.sample is None else self.planner.plan(self.scan_plan.predicate, None)
        files = self.planner.snapshot.files.filter(pl.Series(chosen.selection.opened))
        if self.planner.sample_by is not None:  # the tags count other keys
            return files.with_columns(keys=pl.lit(None, pl.String))
        return files

    @cached_property
    def _needed(self) -> list[str]:
        """Columns to read."""
        return self.planner.row_filter(self.scan_plan, self.columns).needed

    def _needed_of(self, number: int) -> list[str]:
        """Return the columns to read from one file: a sample reads the columns of its revision."""
        indexed = self.planner.other_columns(self.scan_plan.selection.table, number)
        if indexed is None:
            return self._needed
        return self.planner.row_filter(self.scan_plan, self.columns).hashing(indexed).needed

    def _stored_of(self, number: int) -> list[str]:
        """Return the columns to read from one file by their names there."""
        snapshot = self.planner.snapshot
        return list(RowCodec(snapshot.columns, self._needed_of(number), snapshot.schema).stored_schema)

    @property
    def _sizes(self) -> pl.Series:
        """Sizes of the live data files."""
        return self.planner.snapshot.files["size_bytes"]

    def _ranges_of(self, number: int) -> tuple[list[Range], int] | None:
        """Return the ranges to read from one file, and all bytes. None: the whole file."""
        if not self.scan_plan.selection.opened[number]:
            return [], 0
        request = self._request_of(number)
        if request is None:
            return None
        try:
            ranges, size = self.planner.files.pages.ranges(request, self._stored_of(number))
        except PagesUnavailable:
            return None  # the read also falls back to the whole file
        return ranges, size + self._footer_bytes(number, request)

    def _bytes_opened_of(self, number: int) -> int:
        """Return the number of bytes to read from an opened file, without computing its ranges."""
        request = self._request_of(number)
        if request is not None:
            with suppress(PagesUnavailable):
                size = self.planner.files.pages.bytes_of(request, self._stored_of(number))
                return size + self._footer_bytes(number, request)
        return int(self._sizes[number])

    def _footer_bytes(self, number: int, request: PageRequest) -> int:
        """Return the bytes of the footer if a file is read through it: all of its pages are needed."""
        by_page = len(request.pages) < request.cuts.pages or reads_all_pages(
            self.planner, self.scan_plan, number
        )
        return 0 if by_page else request.tail_bytes - request.directory_bytes

    def _request_of(self, number: int) -> PageRequest | None:
        """Return the pages to read from an opened file. None: the whole file."""
        chosen = self.scan_plan.selection
        request = page_request(self.planner.snapshot, chosen, number)
        if request is None and not set(self._needed_of(number)) >= set(self.planner.snapshot.schema):
            # Fewer bytes than the file, because of `columns`.
            request = all_pages(self.planner.snapshot, chosen.table, number)
        return None if request and self.planner.files.pages.reads_whole(request) else request


@dataclass(frozen=True, eq=False, repr=False)  # no slots: derived values are cached
class Plan(Hinted):
    """The plan of a read. No row is read.

    `files` reads the page directories of opened files. `rows_opened` and `rows_total` read the footers of files whose
    rows the log does not count.

    Bytes include everything that is read from data files: pages, dictionaries, and page directories or footers, or the
    whole file if it is small and lies in an object store. A filter with ``=``, ``IN`` or a prefix reads less than the
    plan shows: its own columns of these pages first, then the other columns of pages with a match.
    """

    planner: Planner
    scan_plan: ScanPlan
    sample: Sample | None
    columns: tuple[str, ...]
    where: pl.Expr | None = None
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    """Conditions that another engine applies, with the reason."""
    adviser: Callable[[Plan], str | None] | None = None
    """Returns the hint of a plan."""
    in_parts: bool = False
    """Whether so many files may match that they are planned in parts. Then `planner` and `scan_plan` have no files."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the request. Unpickling plans the read again from the log."""
        request = (self.sample, self.columns, self.where, self.beside, self.adviser)
        return _planned_again, (self.planner.whole, self.scan_plan.predicate, *request)

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live file.

        `path` (decoded); `opened`; `pages_opened` and `pages_total`, 0 if the file has no page index; `ranges`, a
        list of ``{start, length}`` of the column data to read, null if the whole file is read; `bytes_opened`;
        `reason`: ``"matches"``, or why the file is skipped (``"weights"``, ``"statistics"``, ``"cubes"``,
        ``"replicated copies"``).
        """
        planned = pl.concat([part.files for part in self._parts()])
        if self.planner.snapshot.whole is not None:
            skipped = {**_SKIPPED, "reason": "statistics"}
            listed = pl.concat([_paged(part) for part in self.planner.all_parts()]).with_row_index("place")
            others = listed.join(planned, on="path", how="anti").with_columns(
                pl.lit(value, planned.schema[name]).alias(name) for name, value in skipped.items()
            )
            places = planned.join(listed.select("place", "path"), on="path")
            planned = pl.concat([places, others.select(places.columns)]).sort("place").drop("place")
        return pl.concat([planned, self._copies(planned.schema)])

    @property
    def files_to_open(self) -> pl.DataFrame:
        """The opened files, as other engines open them; see `Read.files`."""
        return pl.concat([part.files_to_open for part in self._parts()])

    def _parts(self) -> Iterator[_Part]:
        """Yield plans of the files that may match, some files at a time."""
        if not self.in_parts:
            yield self._part
            return
        for part, plan in self.planner.whole.plans(self.scan_plan.predicate, self.sample):
            yield _Part(part, plan, self.sample, self.columns)

    @cached_property
    def _part(self) -> _Part:
        return _Part(self.planner, self.scan_plan, self.sample, self.columns)

    def _copies(self, schema: pl.Schema) -> pl.DataFrame:
        """Return the files of copies (format 11), which no read opens."""
        snapshot = self.planner.snapshot
        paths = snapshot.with_copies.data_paths[snapshot.files.height :]
        skipped = {**_SKIPPED, "pages_total": 0, "reason": "replicated copies"}
        rows = [{"path": path, **skipped} for path in paths]
        return pl.DataFrame(rows, schema=schema)

    @cached_property
    def bytes_opened(self) -> int:
        """Number of bytes to read from data files."""
        return sum(part.bytes_opened for part in self._parts())

    @cached_property
    def bytes_total(self) -> int:
        """Size of all live data files."""
        copies = self.planner.snapshot.copies.files
        return self.planner.snapshot.data_bytes + (int(copies["size_bytes"].sum()) if copies.height else 0)

    @property
    def rows_opened(self) -> int:
        """Number of rows in the pages and files to read, including rows that do not match."""
        return self._sums[0]

    @cached_property
    def rows_total(self) -> int:
        """Number of rows of all live data files, including copies and deleted rows."""
        snapshot, copies = self.planner.snapshot, 0
        if snapshot.copies:
            logged = snapshot.with_copies.blocks
            copies = int(logged.rows[logged.file >= snapshot.files.height].sum())
        if snapshot.whole is not None:
            counts = trusted_counts(snapshot.whole.light(["num_records"]))
            if (counts >= 0).all():
                return int(counts.sum()) + copies
        return sum(map(_rows_of, self.planner.all_parts())) + copies

    @property
    def rows_in_files(self) -> int:
        """Number of rows of the files to open: a delete or an update of the matching rows copies at most these.

        With deletion vectors it copies only rows of files in which many rows match. ``dry_run=True`` of a change reads
        the rows, and returns what it copies (`ChangeResult.copies`).
        """
        return self._sums[1]

    @property
    def bytes_in_files(self) -> int:
        """Size of the files to open, see `rows_in_files`."""
        return self._sums[2]

    @cached_property
    def _sums(self) -> tuple[int, int, int]:
        """Rows to read, and rows and bytes of the files to open."""
        rows, of_files, file_bytes = zip(*(part.sums for part in self._parts()), strict=True)
        return sum(rows), sum(of_files), sum(file_bytes)

    @property
    def share(self) -> float:
        """`bytes_opened` divided by `bytes_total`, in [0, 1]; 0.0 for a table without files."""
        return self.bytes_opened / self.bytes_total if self.bytes_total else 0.0

    @cached_property
    def unused_conditions(self) -> dict[str, str]:
        """Parts of the filter (joined by AND) that skip no file, with the reason and an alternative.

        Such a part is tested on rows only: the column is not indexed, or is indexed by a hash, which a range cannot
        use, or the part is not supported. An OR is one part. It skips no file if one of its sides does not.
        """
        index = _Index(self.planner)
        parts = [] if self.where is None else conjuncts(self.where)
        reasons = {str(part): index.reasons(part) for part in parts}
        unused = {part: "; ".join(dict.fromkeys(texts)) for part, texts in reasons.items() if texts}
        return {**self.beside, **unused}

    @cached_property
    def hint(self) -> str | None:
        """What would open less, in one line, with the calls and the expected share. None: nothing is known to help.

        Only a plan of `Read.explain` that opens more than a third of the bytes has one, if the filter matches fewer
        rows and an index can use it. When it is printed, a sample of about 4,096 rows (at most 8 MiB) is read for it.
        """
        return None if self.adviser is None else self.adviser(self)

    @property
    def design_effect(self) -> float:
        """Design effect, see `Table.design_effect`, of the rows that `design_effect_scope` names."""
        return self._keys.lower_bound

    @property
    def design_effect_scope(self) -> Literal["rows", "files", "at least"]:
        """Scope of `design_effect`.

        ``"rows"``: the rows of the table. ``"files"``: all rows of the files that the filter opens; matching rows may
        be more or less clustered. ``"at least"``: a lower bound, because some of these files do not store how often
        index keys repeat.
        """
        if self._keys.unknown_files:
            return "at least"
        return "rows" if self.where is None else "files"

    @cached_property
    def _keys(self) -> KeyCounts:
        """Counts of keys in the files that the filter opens, without the sample."""
        if not self.in_parts:
            return count_keys(self._part.tagged)
        counts = KeyCounts()
        for part in self._parts():
            counts.add(part.tagged.select("keys", "num_records"))
        return counts

    def to_json(self) -> str:
        """Return the plan as JSON, with `files` as a list of objects."""
        facts = {
            "uri": self.planner.snapshot.uri,
            "version": self.planner.snapshot.version,
            "where": None if self.where is None else str(self.where),
            "columns": self.columns,
            "sample": self.sample,
            "bytes_opened": self.bytes_opened,
            "bytes_total": self.bytes_total,
            "rows_opened": self.rows_opened,
            "rows_total": self.rows_total,
            "rows_in_files": self.rows_in_files,
            "bytes_in_files": self.bytes_in_files,
            "share": self.share,
            "unused_conditions": self.unused_conditions,
            "hint": self.hint,
            "files": self.files.to_dicts(),
        }
        return to_json(facts)

    def __repr__(self) -> str:
        return in_lines([self._title, *(f"  {name:<7} {fact}" for name, fact in self._facts().items())])

    def _repr_html_(self) -> str:
        facts = {name: escape(fact) for name, fact in self._facts().items()}
        return html_of(
            f"Plan of {short_name(self.planner.snapshot.uri)}, version {self.planner.snapshot.version}",
            facts | {"bytes": f"{self._most}{self.bytes_opened:,} of {self.bytes_total:,} {bar(self.share)}"},
        )

    @property
    def _title(self) -> str:
        return f"Plan of {self.planner.snapshot.uri}, version {self.planner.snapshot.version}"

    @property
    def _most(self) -> str:
        keep = self.planner.row_filter(self.scan_plan, self.columns)
        return "at most " if keep.filters_first else ""

    def _facts(self) -> dict[str, str]:
        files = self.files
        closed = (
            files.filter(~pl.col("opened")).group_by("reason").len().sort("len", "reason", descending=True)
        )
        why = "".join(f", {count:,} closed by {reason}" for reason, count in closed.iter_rows())
        rows = self.rows_opened / self.rows_total if self.rows_total else 0.0
        pushed = self.scan_plan.predicate
        parts: dict[str, list[str]] = {}
        for part, reason in self.unused_conditions.items():
            parts.setdefault(reason, []).append(part)
        unused = "; ".join(f"{' AND '.join(some)} skips no file: {reason}" for reason, some in parts.items())
        shown = self.where if pushed is None else pushed
        facts = {
            "filter": "none" if shown is None else str(shown),
            **({"unused": unused} if unused else {}),
            **(
                {}
                if self.planner.snapshot.config.is_indexed
                else {"index": "none; statistics of files skip files"}
            ),
            "sample": "none" if self.sample is None else f"{self.sample}{self._sampling_key}",
            "files": f"{int(files['opened'].sum()):,} of {files.height:,} opened{why}",
            "pages": f"{int(files['pages_opened'].sum()):,} of {int(files['pages_total'].sum()):,}",
            "rows": f"{self.rows_opened:,} of {self.rows_total:,} ({rows:.2%})",
            "bytes": f"{self._most}{self.bytes_opened:,} of {self.bytes_total:,} ({self.share:.2%})",
        }
        if self.where is not None and self.sample is None:
            facts["changes"] = self._change_cost()
        more = {} if self.sample is None else {"design effect": self._clustering()}
        return facts | more | ({} if self.hint is None else {"hint": self.hint})

    def _change_cost(self) -> str:
        """Return what a change of the matching rows copies, as far as it is known before they are read."""
        snapshot = self.planner.snapshot
        copied = f"copy at most {self.rows_in_files:,} rows, {self.bytes_in_files:,} bytes"
        if is_true(snapshot.metadata, DELETION_VECTORS):
            return f"{copied}; less if few match"
        return copied + "; with deletion vectors, less if few match" * (
            why_no_vectors(snapshot, is_indexed=snapshot.config.is_indexed) is None
        )

    @property
    def _sampling_key(self) -> str:
        names = self.planner.snapshot.config.sample_by
        return f" of the values of {', '.join(names)}" if names else ""

    def _clustering(self) -> str:
        effect, scope = self.design_effect, self.design_effect_scope
        bound = "at least " if scope == "at least" else ""
        where = " in the files that the filter opens; of matching rows it may differ" * (
            self.where is not None
        )
        effect_text = f": a sampled count varies {effect**0.5:.1f} times as much as with independent rows"
        return f"{bound}{effect:.2f}{where}{effect_text if effect > CLUSTERED else ''}"


def _paged(planner: Planner) -> pl.DataFrame:
    """Return paths and numbers of pages of the files of a planner."""
    pages = np.diff(planner.blocks.pages.first_page)
    return pl.DataFrame({"path": pl.Series(planner.paths, dtype=pl.String), "pages_total": pages})


def _rows_of(planner: Planner) -> int:
    """Return the number of rows of the files of a planner."""
    table = planner.blocks
    uncounted = _uncounted(table)
    return int(_counted_rows(table)[~uncounted].sum()) + _footer_rows(planner, uncounted)


def _counted_rows(table: BlockTable) -> I64Array:
    """Return rows of each live file as the log counts them, shape (files,)."""
    block_rows = np.bincount(table.file, table.rows, table.files.height).astype(np.int64)
    return np.where(table.num_records < 0, block_rows, table.num_records)


def _uncounted(table: BlockTable) -> BoolArray:
    """Return the mask of files whose rows the log does not count, or counts inconsistently; shape (files,)."""
    return (table.num_records < 0) & table.unplaced_files


def _footer_rows(planner: Planner, files: BoolArray) -> int:
    """Return the number of rows of some files from their footers."""
    numbers = np.flatnonzero(files).tolist()
    return sum(map_files(planner.store, partial(_rows_of_footer, planner), numbers))


def _rows_of_footer(planner: Planner, number: int) -> int:
    size = int(planner.snapshot.files["size_bytes"][number])
    try:
        return int(read_footer(planner.store, planner.paths[number], size).num_rows)
    except (Unreadable, FileNotFoundError):  # a read will raise an error that names the file
        return 0


def _planned_again(planner: Planner, predicate: pl.Expr | None, sample: Sample | None, *request: Any) -> Plan:
    """Unpickle a plan."""
    columns, where, beside, adviser = request
    return replace(_plan(planner, predicate, sample, columns), where=where, beside=beside, adviser=adviser)


def _plan(
    planner: Planner, predicate: pl.Expr | None, sample: Sample | None, columns: tuple[str, ...]
) -> Plan:
    narrow, in_parts = planner.one_part(predicate), False
    if narrow is None:
        snapshot = planner.snapshot
        narrow, in_parts = Planner(snapshot.with_files(snapshot.listed.clear()), planner.sample_by), True
    return Plan(narrow, narrow.plan(predicate, sample), sample, columns, in_parts=in_parts)


def explain(
    planner: Planner,
    predicate: Predicate | None,
    sample: Sample | None,
    columns: list[str] | None,
    *,
    argument: str = "where",
) -> Plan:
    """Plan a read without reading rows; see `Read.explain`. `argument` names the condition in messages."""
    refuse_forked(planner.snapshot.uri)
    where = filter_of(predicate, planner.snapshot.schema, argument=argument)
    pushed, names = pushed_down(planner.snapshot.schema, where, columns)
    plan = replace(_plan(planner, pushed, sample, tuple(names)), where=where)
    warn_of_sample(planner, sample, opens=bool(plan.scan_plan.selection.opened.any()))
    return plan


class _Index:
    """The index of all files of a version: what it skips."""

    def __init__(self, planner: Planner) -> None:
        self._planner, self._schema = planner, planner.snapshot.schema
        # Revisions of usable blocks, and whether another writer wrote them. Complete if a part was found to skip none.
        self._spaces: dict[tuple[int, bool], Revision] = {}

    def reasons(self, part: pl.Expr) -> list[str]:
        """Return why a part of a filter skips no file; empty if it does, or could in a larger table."""
        if not named_columns(part):  # a constant
            return []
        pushed, _ = pushed_down(self._schema, part, None)
        node = Unknown() if pushed is None else parse_predicate(pushed, self._schema)
        if self._skips(node):
            return []
        sides = disjuncts(part)
        if len(sides) > 1:
            named = ((side, reason) for side in sides for reason in self.reasons(side))
            return [f"{side}: {reason}" for side, reason in named]
        nested = [name for name in named_columns(part) if self._schema[name].is_nested()]
        if nested and isinstance(node, Unknown):
            return [
                f"{nested[0]!r} is nested, and its fields have no index; write the field as a column, and index that"
            ]
        return [_LATER] if pushed is None else self._of_node(node)

    def _skips(self, node: Node) -> bool:
        whole = self._planner.snapshot.whole
        if whole is not None:
            files = whole.light(["num_records", "rules"], columns_in(node))
            if not files_that_may_match(files, node).all():
                return True
        for part in self._planner.all_parts():
            table = part.blocks
            self._spaces |= {
                (space.revision.revision_id, space.foreign): space.revision for space in table.spaces
            }
            if not match(table, node).blocks.all():
                return True
        return False

    def _of_node(self, node: Node) -> list[str]:
        match node:
            case Unknown():
                return [_NOT_SUPPORTED]
            case Nothing():
                return []
            case And():
                reasons = [self._of_node(child) for child in node.children]
                return [reason for child in reasons for reason in child] if all(reasons) else []
            case Or():
                return [reason for child in node.children for reason in self._of_node(child)]
            case _:
                reason = self._of_atom(node)
                return [] if reason is None else [reason]

    def _of_atom(self, atom: Atom) -> str | None:
        """Return why the index cannot use a comparison. None: it can."""
        if isinstance(atom, IsNotNull) or (isinstance(atom, Compare) and atom.op == "!="):
            return _ONE_VALUE_LESS
        if not self._spaces:
            return _STAGED
        column = column_of(atom)
        spaces = [
            (revision.transformations[revision.columns.index(column)], foreign)
            for (_, foreign), revision in self._spaces.items()
            if column in revision.columns
        ]
        if not spaces:
            return (
                f"{column!r} is not indexed, and all files have similar values of it; index it too: "
                "Table.reindex(columns=[...])"
            )
        if any(coordinate_intervals(atom, space, foreign=foreign) is not None for space, foreign in spaces):
            return None
        if any(isinstance(space, HashTransformation) for space, _ in spaces):
            return (
                f"{column!r} is indexed by hash, which has no order; use single values (= or IN), or index "
                f"{f'{column}:quantiles'!r}: Table.reindex(columns=[...])"
            )
        return (
            f"the index of {column!r} cannot place the value; compare it with values of its own type, "
            f"{self._schema[column]}"
        )
