"""Rows are merged as others merge them, and the index is kept: against plain Python and deltalake's own merge."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.changes import changes
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants
from tests.helpers.small_files import resized
from tests.helpers.sources import KINDS, given_as
from tests.helpers.strategies import ROW, Case, cases, frames_of, with_key_in_rows
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, sampled, samples, small_files, write
from tests.helpers.vectors import enable_vectors

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
FIRST_NEW = 100_000
SMALL = {"most_frames": 3} if is_sweep() else {"most_frames": 2, "most_rows": 12, "most_columns": 3}


def key_of(row: dict[str, Any], on: list[str]) -> tuple[Any, ...] | None:
    """What rows are partners by; None: it has none, whatever there is."""
    values = [row[name] for name in on]
    if any(value is None for value in values):
        return None
    return tuple(
        "NaN" if isinstance(value, float) and math.isnan(value) else value + 0 if value == 0 else value
        for value in values
    )


def is_meant(options: dict[str, Any], argument: str, row: int, source: int) -> bool:
    """The conditions of these tests: what is left of the row's number, or of the source's."""
    match options.get(argument):
        case None:
            return True
        case str(text):
            divisor = int(text.split("%")[1].split("=")[0])
            return (source if "source." in text else row) % divisor == 0


def merged(
    target: pl.DataFrame, source: pl.DataFrame, on: list[str], options: dict[str, Any]
) -> pl.DataFrame:
    """A merge, row by row."""
    partners = {key: row for row in source.to_dicts() if (key := key_of(row, on)) is not None}
    seen, actual = set(), []
    for row in target.to_dicts():
        key = key_of(row, on)
        partner = None if key is None else partners.get(key)
        if partner is None:
            lonely = options.get("when_not_matched_by_source") == "delete"
            if not (lonely and is_meant(options, "not_matched_by_source_if", row[ROW], -1)):
                actual.append(row)
            continue
        seen.add(key)
        meant = is_meant(options, "matched_if", row[ROW], partner[ROW])
        deletes = "delete_if" in options and is_meant(options, "delete_if", row[ROW], partner[ROW])
        what = options.get("when_matched", "update")
        if deletes or (what == "delete" and meant):
            continue
        taken = options.get("update", target.columns)
        actual.append(
            {**row, **{name: partner[name] for name in taken}} if what == "update" and meant else row
        )
    if options.get("when_not_matched", "insert") == "insert":
        new = [row for row in source.to_dicts() if (key_of(row, on) not in seen)]
        actual += [row for row in new if is_meant(options, "not_matched_if", -1, row[ROW])]
    return pl.DataFrame(actual, schema=target.schema)


@st.composite
def merges(draw: st.DrawFn, keyed: bool) -> tuple[Case, pl.DataFrame, list[str], dict[str, Any]]:  # noqa: FBT001
    case = draw(cases(**SMALL).map(with_key_in_rows) if keyed else cases(**SMALL))
    rows = case.rows
    names = [name for name, dtype in rows.schema.items() if not dtype.is_nested() and name != ROW]
    on = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    fresh = draw(frames_of({name: rows.schema[name] for name in rows.columns if name != ROW}, most_rows=20))
    again = rows.filter(pl.Series(np.random.default_rng(draw(st.integers(0, 99))).random(rows.height) < 0.3))
    source = pl.concat([again.drop(ROW), fresh]).unique(on, keep="first", maintain_order=True)
    source = source.with_row_index(ROW, FIRST_NEW).cast({ROW: pl.Int64}).select(rows.columns)
    number = st.sampled_from([f"{ROW} % 2 = 0", f"{ROW} % 3 = 0"])
    either = number | st.sampled_from([f"source.{ROW} % 2 = 0", f"source.{ROW} % 3 = 0"])
    options: dict[str, Any] = {
        "when_matched": draw(st.sampled_from(["update", "update", "delete", "ignore"])),
        "when_not_matched": draw(st.sampled_from(["insert", "insert", "ignore"])),
        "when_not_matched_by_source": draw(st.sampled_from(["ignore", "ignore", "delete"])),
    }
    assume(set(options.values()) != {"ignore"})
    optional: dict[str, st.SearchStrategy[Any]] = {}
    if options["when_matched"] != "ignore":
        optional["matched_if"] = either
    if options["when_matched"] == "update":
        # Not their numbers, by which rows are compared: some have the same partner.
        others = [name for name in rows.columns if name != ROW]
        columns = st.lists(st.sampled_from(others), min_size=1, unique=True)
        optional |= {"delete_if": either, "update": columns}
    if options["when_not_matched"] == "insert":
        optional["not_matched_if"] = st.sampled_from([f"source.{ROW} % 2 = 0", f"source.{ROW} % 3 = 0"])
    if options["when_not_matched_by_source"] == "delete":
        optional["not_matched_by_source_if"] = number
    for name, strategy in optional.items():
        if draw(st.booleans()):
            options[name] = draw(strategy)
    return case, source, on, options


def odd_keys(first: int) -> pl.DataFrame:
    floats, texts = [None, 0.0, -0.0, float("nan")], [None, "", "á" * 20, "\0"]
    keys = [(number, text) for number in floats for text in texts]
    return pl.DataFrame(keys, schema={"f": pl.Float64, "s": pl.String}, orient="row").with_row_index(
        ROW, first
    )


ODD_ROWS = odd_keys(0).cast({ROW: pl.Int64})
ODD_SOURCE = odd_keys(FIRST_NEW).cast({ROW: pl.Int64}).unique(["f", "s"], maintain_order=True)
ODD = (Case((ODD_ROWS,), (ROW,), (20,), "documented"), ODD_SOURCE, ["f", "s"], {"update": [ROW]})


def check_merge(
    case: tuple[Any, ...],
    sample: Any,
    resources: qbeast.Resources,
    *,
    kind: str,
    memory_bytes: int,
    vectors: bool = False,
) -> None:
    table, source, on, options = case
    given = dict(options)
    if "update" in options:
        given["update"] = {name: pl.col("source").struct.field(name) for name in options["update"]}
    expected = merged(table.rows, source, on, options)
    with folder() as path, small_files(), tempfile.TemporaryDirectory() as spilling:
        write(path, table)
        if vectors and table.dialect == "documented":
            enable_vectors(path)
        limited = replace(resources, spill_dir=spilling, memory_bytes=2 * memory_bytes)
        with resized(min_memory_bytes=1):
            opened = qbeast.open_table(path, resources=limited)
            # A plan alone costs less in memory.
            dries = (True, False) if resources is MEMORY else (False,)
            answers = [
                opened.merge(given_as(source, kind, path.parent, 7), on, **given, dry_run=dry)
                for dry in dries
            ]
            request, result = answers[0], answers[-1]
        assert (result.engine, [*Path(spilling).iterdir()]) == (resources.engine, [])
        assert_same_rows(opened.read(), expected)
        assert_same_rows(opened.read(sample=sample), sampled(expected, table.indexed, sample))
        grown_by = result.rows_inserted - result.rows_deleted
        assert table.rows.height + grown_by == expected.height
        for name in ("rows_deleted", "rows_updated", "rows_inserted"):
            assert getattr(request, name) == getattr(result, name)
        check_invariants(path)


@pytest.mark.parametrize(("resources", "kind"), [(MEMORY, "query"), (SPILL, "iterator"), (SPILL, "frame")])
def test_odd_keys_match_their_equals(resources: qbeast.Resources, kind: str) -> None:
    check_merge(ODD, 0.5, resources, kind=kind, memory_bytes=1 << 10)


def everything(merger: Any) -> Any:
    return merger.when_matched_update_all().when_not_matched_insert_all()


def conditions(merger: Any) -> Any:
    some = merger.when_matched_delete("source.a % 2 = 0")
    some = some.when_matched_update({"s": "source.s", "f": "target.f + 1"}, predicate="target.a > 20")
    return some.when_not_matched_insert_all(predicate="source.a < 300")


def mirror(merger: Any) -> Any:
    return everything(merger).when_not_matched_by_source_delete("target.a > 100")


@pytest.mark.parametrize(
    ("on", "theirs", "ours"),
    [
        ([ROW], everything, {}),
        (["a", ROW], everything, {}),
        (
            [ROW],
            conditions,
            {
                "delete_if": "source.a % 2 = 0",
                "matched_if": "a > 20",
                "update": {"s": "source.s", "f": "f + 1"},
                "not_matched_if": "source.a < 300",
            },
        ),
        (
            [ROW, "a"],
            mirror,
            {"when_not_matched_by_source": "delete", "not_matched_by_source_if": "a > 100"},
        ),
        (
            [ROW],
            lambda merger: merger.when_matched_delete(),
            {"when_matched": "delete", "when_not_matched": "ignore"},
        ),
        (
            [ROW],
            lambda merger: merger.when_not_matched_insert({ROW: f"source.{ROW}", "a": "source.a + 1"}),
            {"when_matched": "ignore", "insert": {ROW: f"source.{ROW}", "a": "source.a + 1"}},
        ),
    ],
)
def test_clauses_mean_what_deltalake_means(
    path: Path, rows: pl.DataFrame, tmp_path: Path, on: list[str], theirs: Any, ours: dict[str, Any]
) -> None:
    source = changes(rows)
    write_deltalake(tmp_path / "plain", rows)
    predicate = " AND ".join(f"target.{name} = source.{name}" for name in on)
    merger = DeltaTable(tmp_path / "plain").merge(
        source, predicate, source_alias="source", target_alias="target"
    )
    report = theirs(merger).execute()
    with small_files():
        result = qbeast.open_table(path).merge(source, on, **ours)
    assert result.rows_updated == report["num_target_rows_updated"]
    assert result.rows_deleted == report["num_target_rows_deleted"]
    assert result.rows_inserted == report["num_target_rows_inserted"]
    expected = pl.DataFrame(DeltaTable(tmp_path / "plain").to_pyarrow_table())
    # Rows that matched by two columns may share a number.
    assert_frame_equal(qbeast.read_table(path).sort(pl.all()), expected.sort(pl.all()), check_exact=True)
    check_invariants(path)


def test_single_nan_matches_a_single_nan(tmp_path: Path) -> None:
    rows = pl.DataFrame({"key": [float("nan")], "value": [1]})
    qbeast.write_table(rows, tmp_path, columns=["value"])
    done = qbeast.open_table(tmp_path).merge(rows.with_columns(value=2), "key")
    assert (done.rows_updated, done.rows_inserted) == (1, 0)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "resources", [MEMORY, pytest.param(SPILL, marks=pytest.mark.sweep)], ids=["memory", "spill"]
)
@examples(2, sweep=60, parent=RELAXED)
@given(
    case=st.booleans().flatmap(merges),
    sample=samples(),
    kind=st.sampled_from(KINDS),
    memory_bytes=st.sampled_from([1 << 10, 1 << 14, 1 << 24]),
    vectors=st.booleans(),
)
def test_merge_equals_row_by_row_merge(
    case: tuple[Any, ...],
    sample: Any,
    resources: qbeast.Resources,
    kind: str,
    memory_bytes: int,
    vectors: bool,  # noqa: FBT001 -- drawn
) -> None:
    check_merge(case, sample, resources, kind=kind, memory_bytes=memory_bytes, vectors=vectors)
