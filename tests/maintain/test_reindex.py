"""A reindex adds a revision with other columns: no row is lost or doubled while rows move, and answers stay exact."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.spec.revision import LinearTransformation
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.mixed_columns import ROWS, check_version, columns_of_files, new
from tests.helpers.small_files import resized
from tests.helpers.stores import failing_puts, nth
from tests.helpers.strategies import INDEXABLE, ROW, Case, cases, kinds_of
from tests.helpers.tables import folder, small_files, write

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.EmptySampleWarning"),
]
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def column_lists(draw: st.DrawFn, schema: pl.Schema) -> list[str]:
    names = st.sampled_from([name for name, dtype in schema.items() if dtype in INDEXABLE])
    chosen = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    return [name + draw(st.sampled_from(kinds_of(schema[name]))) for name in chosen]


@examples(1, sweep=45, parent=RELAXED)
@given(
    data=st.data(), case=cases(most_frames=1, most_rows=25).filter(lambda case: case.dialect == "documented")
)
def test_columns_of_any_type_are_reindexed(data: st.DataObject, case: Case) -> None:
    with folder() as path, small_files(file_rows=15):
        write(path, case)
        table = qbeast.open_table(path)
        columns = data.draw(column_lists(case.rows.schema))
        result = table.reindex(columns, cube_size=data.draw(st.sampled_from([None, 1, 6])))
        assert table.indexed_columns == result.columns
        more = case.frames[0].with_columns(pl.col(ROW) + 10_000)
        qbeast.write_table(more, path, mode="append")
        table.refresh().optimize(fraction=0.3, into="newest")
        check_version(path, pl.concat([case.rows, more]))
        check_invariants(path, may_stage=True)


def test_reindex_commits_only_metadata(tmp_path: Path) -> None:
    table = new(tmp_path)
    before = DeltaTable(tmp_path).file_uris()
    result = table.reindex(["b", "s"])
    assert (result.version, result.committed, result.new_revision, result.revision_id) == (1, True, True, 2)
    assert (result.columns, result.rows, result.rows_left) == (("b", "s"), 0, 120)
    assert (result.cube_size, result.transformers) == (20, {"b": "linear", "s": "quantiles"})
    assert table.indexed_columns == ("b", "s")
    assert DeltaTable(tmp_path).file_uris() == before
    assert table.history()["operation"][0] == "REINDEX"
    log = read_log(tmp_path)
    assert log.configuration["qbeast.minReader"] == "3"
    assert log.revisions[0].columns == ("b", "s"), "files without index have the newest weights"
    assert set(columns_of_files(tmp_path)) == {(ROW,)}
    check_version(tmp_path, ROWS)


@pytest.mark.sweep
def test_each_optimize_moves_a_quarter_of_bytes(tmp_path: Path) -> None:
    table, moved = new(tmp_path), 0
    table.reindex(["b"])
    health = table.metrics().health
    assert health.needs_optimize
    assert "120 rows are indexed by other columns" in str(health)
    while moved < 120:
        total = int(table.rows().files()["size_bytes"].sum())
        with small_files(file_rows=60, page_rows=8):
            result = table.optimize()
        older = result.plan.filter(reason="older revision")
        assert older.height
        assert older.height == 1 or older["bytes"].sum() <= total / 4
        moved += int(older["rows"].sum())
        assert result.rows_left == 120 - moved
        assert ('optimize(into="newest") moves all of them' in str(result)) == (moved < 120)
    assert moved == 120, "each row moved once"
    assert set(columns_of_files(tmp_path)) == {("b",)}
    assert not table.metrics().health.rows_of_other_columns
    check_version(tmp_path, ROWS)


def test_uneven_samples_of_moving_rows_warn(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": range(20_000), "b": [i * 7919 % 20_011 for i in range(20_000)]})
    with small_files(file_rows=2000, page_rows=8):
        qbeast.write_table(rows, tmp_path, columns=["a"], cube_size=2000)
        table = qbeast.open_table(tmp_path)
        table.reindex(["b"])
        assert table.read(sample=0.05).height == pytest.approx(1000, rel=0.2), (
            "no row moved, and nothing warns"
        )
        table.optimize()
        with pytest.warns(
            qbeast.UnevenSampleWarning, match=r"instead of 1,000, .*optimize\(into=\"newest\"\)"
        ) as caught:
            uneven = table.read(sample=0.05).height
        assert abs(uneven - 1000) > 200
        promised = int(
            str(caught[0].message).partition(" rows instead")[0].rpartition(" ")[2].replace(",", "")
        )
        assert promised == pytest.approx(uneven, rel=0.2)
        with pytest.warns(qbeast.UnindexedSampleWarning):
            even = table.read(sample=0.05, sample_by=["b"])
        table.optimize(into="newest")
        assert table.read(sample=0.05).sort("a").equals(even.sort("a"))


def test_pruning_follows_columns_of_each_file(tmp_path: Path) -> None:
    def shares() -> list[float]:
        return [table.rows(where).explain().share for where in ("a < 15", "b < 20")]

    table = new(tmp_path, ["a"])
    by_a, not_by_b = shares()
    table.reindex(["b"])
    assert shares() == [by_a, not_by_b]
    with small_files(file_rows=30, page_rows=8):
        table.optimize(into="newest")
    not_by_a, by_b = shares()
    assert by_a < not_by_a
    assert by_b < not_by_b


def test_explained_bytes_have_columns_of_each_file(tmp_path: Path) -> None:
    table = new(tmp_path, ["s"])
    alone = table.rows(sample=0.2, columns=["flag"]).explain().bytes_opened
    table.reindex(["a"])
    assert table.rows(sample=0.2, columns=["flag"]).explain().bytes_opened == alone, "still the column s"
    with small_files(file_rows=30, page_rows=8):
        table.optimize(into="newest")
    assert (
        table.rows(sample=0.2, columns=["flag", "a"]).explain().bytes_opened
        == table.rows(sample=0.2, columns=["flag"]).explain().bytes_opened
    )


def test_full_reindex_moves_all_rows(tmp_path: Path) -> None:
    table = new(tmp_path)
    qbeast.write_table(ROWS.with_columns(pl.col(ROW) + 1000), tmp_path, mode="append")
    write_deltalake(tmp_path, ROWS.with_columns(pl.col(ROW) + 2000), mode="append")
    expected = pl.concat(ROWS.with_columns(pl.col(ROW) + first) for first in (0, 1000, 2000))
    result = table.reindex(["s:hash", "b"], full=True, commit_metadata={"why": "test"})
    assert (result.rows, result.rows_left, result.version) == (360, 0, table.version)
    assert set(columns_of_files(tmp_path)) == {("s", "b")}
    check_version(tmp_path, expected)
    again = table.reindex(["s:hash", "b"], full=True)
    assert not again.committed
    assert not again.new_revision


def test_interrupted_full_reindex_is_finished_by_next(tmp_path: Path) -> None:
    table = new(tmp_path)
    with failing_puts(nth(1), KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        table.reindex(["b"], full=True)
    assert check_version(tmp_path, ROWS).indexed_columns == ("b",)
    result = qbeast.open_table(tmp_path).reindex(full=True)
    assert (result.new_revision, result.committed, result.rows, result.rows_left) == (False, True, 120, 0)


@pytest.mark.parametrize("columns", [None, [ROW, "s"], [f"{ROW}:linear", "s:quantiles"], pl.col(ROW)])
def test_same_columns_change_nothing(tmp_path: Path, columns: Any) -> None:
    table = new(tmp_path, [ROW, "s"])
    columns = [columns, "s"] if isinstance(columns, pl.Expr) else columns
    result = table.reindex(columns, cube_size=20)
    assert (result.committed, result.new_revision, result.version, table.version) == (False, False, 0, 0)


def test_cube_size_alone_keeps_samples_and_space(tmp_path: Path) -> None:
    table = new(tmp_path, ["b", "s"])
    space, sample = table.revisions[-1].transformations, table.read(sample=0.4)[ROW].sort()
    cubes = table.metrics().revisions[-1].cubes
    result = table.reindex(cube_size=7)
    assert (result.cube_size, table.cube_size, result.rows_left) == (7, 7, 0)
    assert table.revisions[-1].transformations == space
    assert "qbeast.minReader" not in read_log(tmp_path).configuration
    table.optimize(into="newest")
    assert table.metrics().revisions[-1].cubes > cubes
    assert table.read(sample=0.4)[ROW].sort().equals(sample)


def test_first_columns_in_any_kind_keep_samples(tmp_path: Path) -> None:
    table = new(tmp_path)
    sample = table.read(sample=0.4)[ROW].sort()
    assert table.reindex([f"{ROW}:quantiles"]).transformers == {ROW: "quantiles"}
    assert "qbeast.minReader" not in read_log(tmp_path).configuration
    assert table.read(sample=0.4)[ROW].sort().equals(sample)
    assert table.reindex(["b", "s:hash"]).transformers == {"b": "linear", "s": "hash"}
    assert table.reindex(["s"]).transformers == {"s": "hash"}, "as before"
    assert table.reindex([ROW]).rows_left == 0
    assert table.read(sample=0.4)[ROW].sort().equals(sample)
    check_version(tmp_path, ROWS)


@pytest.mark.parametrize("rows", [100, 1 << 20])
def test_space_comes_from_log_and_some_rows(tmp_path: Path, rows: int) -> None:
    table = new(tmp_path)
    with resized(domain_rows=rows):
        table.reindex(["b:linear", "a:quantiles"])
    linear, quantiles = table.revisions[-1].transformations
    assert isinstance(linear, LinearTransformation)
    assert (linear.min_number, linear.max_number) == (ROWS["b"].min(), ROWS["b"].max())
    knots = sorted(map(float, quantiles.knots))
    assert abs(knots[len(knots) // 2] - 50) < 15
    assert table.reindex(full=True).rows_left == 0
    assert len(table.revisions) == 3, "all rows are inside"


def test_columns_without_statistics_are_read(tmp_path: Path) -> None:
    hides = {"delta.dataSkippingStatsColumns": ROW}
    write_deltalake(tmp_path, ROWS, configuration=hides)
    qbeast.convert_table(tmp_path, [ROW])
    table = qbeast.open_table(tmp_path)
    table.optimize()
    assert "b" not in (read_log(tmp_path).adds.popitem()[1]["stats"])
    with resized(domain_rows=10):
        table.reindex(["b:linear"])
    linear = table.revisions[-1].transformations[0]
    assert isinstance(linear, LinearTransformation)
    assert (linear.min_number, linear.max_number) == (ROWS["b"].min(), ROWS["b"].max())


def test_infinite_bounds_are_not_a_range(tmp_path: Path) -> None:
    rows = ROWS.with_columns(b=pl.when(pl.col(ROW) < 2).then(float("inf")).otherwise("b"))
    qbeast.write_table(rows, tmp_path, [ROW])
    qbeast.open_table(tmp_path).reindex(["b:linear"], full=True)
    check_version(tmp_path, rows)


@pytest.mark.parametrize("change", ["append", "delete and update", "merge"])
def test_changes_go_to_the_newest_columns(tmp_path: Path, change: str) -> None:
    table = new(tmp_path)
    table.reindex(["b", "s"])
    if change == "append":
        expected = pl.concat([ROWS, ROWS.with_columns(pl.col(ROW) + 1000)])
        qbeast.write_table(expected[ROWS.height :], tmp_path, mode="append")
    elif change == "merge":
        source = ROWS.filter(pl.col(ROW).is_in([9, 10])).with_columns(b=pl.lit(-5.0))
        source = pl.concat([source, source.with_columns(pl.col(ROW) + 5000)])
        table.merge(source, ROW)
        expected = pl.concat([ROWS.filter(~pl.col(ROW).is_in([9, 10])), source])
    else:
        table.delete(pl.col(ROW) == 7)
        table.update(pl.col(ROW) == 8, {"s": pl.lit("new")})
        s = pl.when(pl.col(ROW) == 8).then(pl.lit("new")).otherwise("s")
        expected = ROWS.filter(pl.col(ROW) != 7).with_columns(s=s)
    check_version(tmp_path, expected)
    check_invariants(tmp_path)
    assert set(columns_of_files(tmp_path)) == {(ROW,), ("b", "s")}


def test_requested_rows_are_lowest_weights_of_their_files(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.reindex(["b", "s"])
    table.optimize()
    drawn = table.read(where=pl.col("a") < 80, rows=50)
    assert 50 <= drawn.height < 60
    assert drawn["a"].max() is not None
    assert (drawn["a"] < 80).all()
    nested = table.read(where=pl.col("a") < 80, rows=90)
    assert set(drawn[ROW]) <= set(nested[ROW])


def test_appends_by_first_columns_are_refused(tmp_path: Path) -> None:
    new(tmp_path).reindex(["b"])
    with pytest.raises(qbeast.InvalidColumnsError, match=r"Table\.reindex"):
        qbeast.write_table(ROWS, tmp_path, [ROW], mode="append")
    assert qbeast.open_table(tmp_path).version == 1


def test_versions_before_refuse_the_table(tmp_path: Path) -> None:
    new(tmp_path / "t").reindex(["b"])
    assert read_log(tmp_path / "t").configuration["qbeast.minReader"] == "3"
    shutil.copytree(tmp_path / "t", tmp_path / "unread")
    commit = tmp_path / "unread" / "_delta_log" / f"{1:020}.json"
    # What version 2 of readers makes of a 3, this one makes of a number that it does not know.
    commit.write_text(commit.read_text().replace('"qbeast.minReader":"3"', '"qbeast.minReader":"99"'))
    with pytest.raises(qbeast.UnsupportedTableError, match=r"qbeast\.minReader is '99'"):
        qbeast.read_table(tmp_path / "unread")
    assert qbeast.read_table(tmp_path / "unread", version=0).height == 120


def test_older_version_keeps_its_columns(tmp_path: Path) -> None:
    table = new(tmp_path)
    sample = table.read(sample=0.4)[ROW].sort()
    table.reindex(["b"], full=True)
    assert not table.read(sample=0.4)[ROW].sort().equals(sample)
    assert qbeast.read_table(tmp_path, version=0, sample=0.4)[ROW].sort().equals(sample)
    table.restore(0)
    assert table.indexed_columns == (ROW,)
    assert table.read(sample=0.4)[ROW].sort().equals(sample)
    check_version(tmp_path, ROWS)


@pytest.mark.parametrize("trials", [1, pytest.param(40, marks=pytest.mark.sweep)])
def test_estimates_hold_while_rows_move(tmp_path: Path, trials: int) -> None:
    kept = 0
    for trial in range(trials):
        rows = ROWS.with_columns(pl.col(ROW) + 1000 * trial)
        path = tmp_path / str(trial)
        with small_files(file_rows=30, page_rows=8):
            qbeast.write_table(rows, path, [ROW], cube_size=20)
            table = qbeast.open_table(path)
            table.reindex([ROW, "b"])
            table.optimize()
        answer = table.rows(pl.col("a") < 60, sample=0.5).estimate({"t": pl.col("b").sum()}).frame
        truth = float(rows.filter(pl.col("a") < 60)["b"].sum())
        kept += answer["t_low"][0] <= truth <= answer["t_high"][0]
        assert 0 < answer["t_high"][0] - answer["t_low"][0] < truth
    assert kept >= 0.85 * trials  # 95 % are promised; fewer than 34 of 40 happen once in 3,000 runs


@pytest.mark.parametrize(("moved", "last"), [("x", "x"), ("xy", "y"), ("xxx", "i")])
def test_partly_moved_rows_do_not_bend_estimates(tmp_path: Path, moved: str, last: str) -> None:
    rows = pl.DataFrame({"i": range(4000)}).with_columns(
        x=pl.col("i") * 7919 % 4001, y=pl.col("i") * 31 % 101
    )
    with small_files(file_rows=300, page_rows=32):
        qbeast.write_table(rows, tmp_path, ["i"], cube_size=200)
        table = qbeast.open_table(tmp_path)
        for column in moved:
            table.reindex([column])
            table.optimize()
        table.reindex([last])
    assert len(set(columns_of_files(tmp_path))) > 1, "some rows have moved"
    few, truth = table.rows("y < 40", sample=0.1), rows.filter(pl.col("y") < 40)["i"].mean()
    for mean in ("avg(i) AS mean", lambda frame: {"mean": frame["i"].mean()}):
        assert few.estimate(mean).frame["mean"][0] == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"revision": 1, "full": True}, {(ROW,)}),
        pytest.param({"revision": "all", "full": True}, {(ROW,), ("b", "s")}, marks=pytest.mark.sweep),
        ({"fraction": 0.1}, {(ROW,), ("b", "s")}),
        pytest.param({"full": True}, {("b", "s")}, marks=pytest.mark.sweep),
        pytest.param({"into": "newest"}, {("b", "s")}, marks=pytest.mark.sweep),
        ({"into": "newest", "revision": 1}, {("b", "s")}),
        ({"into": "new"}, {("b", "s")}),
    ],
)
def test_every_form_of_optimize_keeps_columns_of_revisions(
    tmp_path: Path, options: dict[str, Any], columns: set[tuple[str, ...]]
) -> None:
    table = new(tmp_path, sample_column="sample")
    table.reindex(["b", "s"])
    with small_files(file_rows=30, page_rows=8):
        planned = table.optimize(dry_run=True, **options).plan
        done = table.optimize(**options).plan
    assert set(planned["path"]) <= set(done["path"])
    assert set(columns_of_files(tmp_path)) == columns
    check_version(tmp_path, ROWS.join(table.read().select(ROW, "sample"), on=ROW))
    check_invariants(tmp_path)


def test_named_files_move_only_if_requested(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.reindex(["b"])
    files = table.rows().files()["path"].to_list()[:2]
    table.optimize(files=files)
    assert set(columns_of_files(tmp_path)) == {(ROW,)}
    table.optimize(files=table.rows().files()["path"].to_list()[:2], into="newest")
    assert set(columns_of_files(tmp_path)) == {(ROW,), ("b",)}
    check_version(tmp_path, ROWS)
