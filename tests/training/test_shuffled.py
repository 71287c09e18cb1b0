"""Shuffled batches: each row once, in an order that no test of randomness tells from a shuffled frame."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.read.shuffled import ScatteredRows
from tests.helpers.examples import examples
from tests.helpers.planned import planned
from tests.helpers.small_files import resized, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")

ROWS = 60_000
BUFFER = 400_000  # bytes: about a seventh of the rows


@cache
def rows() -> pl.DataFrame:
    """Return rows in groups: sorted, clustered and random columns, with nulls and strings."""
    random = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "id": np.arange(ROWS),
            "walk": random.normal(size=ROWS).cumsum(),
            "group": np.sort(random.integers(0, 40, ROWS)),
            "noise": random.random(ROWS),
            "name": pl.Series(random.integers(0, 3_000, ROWS)).cast(pl.String),
        }
    ).with_columns(noise=pl.when(pl.col("id") % 11 > 0).then("noise"))


def write(path: Path, **options: Any) -> None:
    with small_files(file_rows=8_000, page_rows=16):
        qbeast.write_table(rows(), path, **{"columns": ["walk", "id"], "cube_size": 2_000, **options})


def plain(path: Path) -> None:
    write(path)


def deleted(path: Path) -> None:
    write(path, deletion_vectors=True)
    qbeast.open_table(path).delete("id % 7 = 3")


def partitioned(path: Path) -> None:
    write(path, partition_by=["group"], cube_size=1_000)


def keyed(path: Path) -> None:
    write(path, sample_by=["group", "name"])


def appended(path: Path) -> None:
    """Add files of another writer, without an index."""
    write(path)
    rows().with_columns(id=pl.col("id") + ROWS).head(300).write_delta(path, mode="append")


def foreign(path: Path) -> None:
    rows().write_delta(path)


KINDS: list[Callable[[Path], None]] = [plain, deleted, partitioned, keyed, appended, foreign]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], qbeast.Table]:
    @cache
    def make(kind: Callable[[Path], None]) -> qbeast.Table:
        path = tmp_path_factory.mktemp("shuffled") / kind.__name__
        kind(path)
        return qbeast.open_table(path)

    return make


@pytest.fixture(
    params=[
        pytest.param(kind, marks=[pytest.mark.sweep] * (kind not in (deleted, appended)), id=kind.__name__)
        for kind in KINDS
    ]
)
def table(request: pytest.FixtureRequest, tables: Callable[..., qbeast.Table]) -> qbeast.Table:
    actual: qbeast.Table = tables(request.param)
    return actual


def shuffled(table: qbeast.Table, where: Any = None, **options: Any) -> qbeast.ShuffledBatches:
    read = {
        name: options.pop(name) for name in ("columns", "sample", "sample_by", "expand") if name in options
    }
    return table.rows(where, **read).shuffled(**options)


def batches(table: qbeast.Table, **options: Any) -> list[pl.DataFrame]:
    return list(shuffled(table, **{"batch_rows": 500, "seed": 7, "buffer_bytes": BUFFER, **options}))


def test_each_row_is_returned_once(table: qbeast.Table) -> None:
    expected = table.read().sort("id")
    for options in ({"epoch": 1}, {"buffer_bytes": 1 << 30}, {"batch_rows": 7_001}):
        found = batches(table, **options)
        assert pl.concat(found).sort("id").equals(expected)
        assert {batch.height for batch in found[:-1]} == {options.get("batch_rows", 500)}


def test_order_depends_on_seed_and_epoch_alone(table: qbeast.Table) -> None:
    def ids(**options: Any) -> list[int]:
        return pl.concat(batches(table, columns=["id"], **options))["id"].to_list()

    first = ids()
    assert ids(batch_rows=333) == first
    others = [ids(epoch=1), ids(seed=8), ids(seed=8, epoch=1)]
    for number, other in enumerate(others):
        assert sum(a == b for a, b in zip(first, other, strict=True)) < 20
        assert other not in others[:number]


READS: dict[str, dict[str, Any]] = {
    "all": {},
    "filter": {"where": "walk > 20 AND name < '2'"},
    "sample": {"sample": 0.3},
    "both": {"where": pl.col("noise").is_null(), "sample": (0.2, 0.9), "columns": ["id", "name"]},
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("world_size", [3, *(pytest.param(n, marks=pytest.mark.sweep) for n in (1, 8))])
def test_ranks_have_equal_numbers_of_other_rows(
    table: qbeast.Table, read: dict[str, Any], world_size: int
) -> None:
    if "sample" in read and table.uri.endswith("foreign"):
        read = {**read, "sample_by": ["id"]}
    expected = table.read(**read)
    ranks = [
        pl.concat(batches(table, rank=rank, world_size=world_size, **read)) for rank in range(world_size)
    ]
    assert {rank.height for rank in ranks} == {expected.height // world_size}
    found = pl.concat(ranks)
    assert found["id"].is_unique().all()
    assert found.join(expected, on="id", how="anti").is_empty()
    matched = expected.join(found, on="id", how="semi").sort("id")
    assert found.sort("id").equals(matched)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "options", [{}, {"where": "noise > 0.5"}, {"rank": 1, "world_size": 3}], ids=["all", "filter", "rank"]
)
def test_read_continues_where_a_state_was_taken(table: qbeast.Table, options: dict[str, Any]) -> None:
    whole = batches(table, **options)
    for stop in np.random.default_rng(5).integers(0, len(whole) + 1, 4).tolist():
        assert_continues(table, whole, stop, **options)


@pytest.mark.parametrize("where", [pytest.param(None, marks=pytest.mark.sweep), "walk > 3"])
def test_readers_with_a_plan_file_divide_rows_as_others_do(tmp_path: Path, where: str | None) -> None:
    few = rows().head(300)
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(few.head(200), tmp_path / "t", columns=["walk"], cube_size=20)
        qbeast.write_table(few.tail(100), tmp_path / "t", mode="append")
    few.with_columns(id=pl.col("id") + ROWS).head(30).write_delta(tmp_path / "t", mode="append")
    share = {"batch_rows": 40, "seed": 7, "buffer_bytes": 2_000, "world_size": 2, "where": where}
    with planned(tmp_path / "t") as copy:
        first = list(shuffled(qbeast.open_table(copy), rank=0, **share))
    own = list(shuffled(qbeast.open_table(tmp_path / "t"), rank=0, **share))
    assert pl.concat(first).equals(pl.concat(own))
    assert len(first) > 1


def test_deleted_rows_stay_out_of_continued_reads(tables: Callable[..., qbeast.Table]) -> None:
    options = {"columns": ["id"], "batch_rows": 5_000}
    assert_continues(tables(deleted), batches(tables(deleted), **options), 4, **options)


def assert_continues(table: qbeast.Table, whole: list[pl.DataFrame], stop: int, **options: Any) -> None:
    options = {"batch_rows": 500, "seed": 7, "buffer_bytes": BUFFER, **options}
    started = shuffled(table, **options)
    for _ in range(stop):
        next(started)
    state = json.loads(json.dumps(started.state_dict()))
    rest = batches(qbeast.open_table(table.uri), resume=state, **options)
    assert len(rest) == len(whole) - stop
    assert all(one.equals(other) for one, other in zip(rest, whole[stop:], strict=True))


def test_rows_without_room_for_files_are_shuffled_in_parts(
    tables: Callable[..., qbeast.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, usage = tables(plain), shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    with resized(filled_share=2.0):  # as if rows were wider than expected
        with pytest.warns(qbeast.SmallBufferWarning, match="has no room for temporary files"):
            found = batches(table)
        assert pl.concat(found).sort("id").equals(table.read().sort("id"))
        started = table.rows().shuffled(7, batch_rows=500, buffer_bytes=BUFFER)
        with pytest.warns(qbeast.SmallBufferWarning, match="QBEAST_SPILL_DIR"):
            first = next(started)
        monkeypatch.undo()
        with pytest.warns(qbeast.SmallBufferWarning):
            rest = batches(table, resume=started.state_dict())
    assert pl.concat([first, *rest]).equals(pl.concat(found)), "a read continues as it began"


def few(path: Path) -> None:
    with small_files(file_rows=400, page_rows=50):
        qbeast.write_table(rows()[:400], path, columns=["id", "noise"])


def test_buffer_of_a_warning_is_large_enough(tables: Callable[..., qbeast.Table]) -> None:
    with pytest.warns(qbeast.SmallBufferWarning, match="less than a sixteenth") as caught:
        found = batches(tables(few), columns=NUMBERS, buffer_bytes=480)
    assert pl.concat(found).sort("id").equals(tables(few).read(columns=NUMBERS).sort("id"))
    enough = int(str(caught[0].message).split("buffer_bytes=")[1].split()[0])
    assert 480 < enough <= 400 * 32 / 16
    batches(tables(few), columns=NUMBERS, buffer_bytes=enough)  # without a warning


def test_filter_needs_the_buffer_of_its_matches(tables: Callable[..., qbeast.Table]) -> None:
    options: dict[str, Any] = {"columns": ["id"], "buffer_bytes": 100}
    with pytest.warns(qbeast.SmallBufferWarning):
        batches(tables(few), **options)
    found = batches(tables(few), where="noise < 0.2", **options)
    assert len(pl.concat(found)) == tables(few).count("noise < 0.2") > 0


def test_temporary_files_end_with_the_batches(
    tables: Callable[..., qbeast.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBEAST_SPILL_DIR", str(tmp_path))
    threads = set(threading.enumerate())
    started = tables(plain).rows().shuffled(7, buffer_bytes=BUFFER)
    next(started)
    assert len(list(tmp_path.glob("*/*"))) > 2
    del started
    assert not list(tmp_path.iterdir())
    assert set(threading.enumerate()) <= threads


def test_full_folder_is_named(
    tables: Callable[..., qbeast.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBEAST_SPILL_DIR", str(tmp_path))
    to_stream = pa.output_stream
    monkeypatch.setattr("pyarrow.output_stream", lambda _, **options: to_stream("/dev/full", **options))
    with pytest.raises(
        qbeast.StorageError, match=r"has no room left\. The table is unchanged\. Name another"
    ):
        batches(tables(plain))
    assert not list(tmp_path.iterdir())


@examples(4, sweep=60)
@given(
    cuts=st.lists(st.integers(0, 400), max_size=8),
    in_files=st.integers(0, 4),
    buckets=st.integers(1, 20),
    width=st.integers(1, 4),
)
def test_order_does_not_depend_on_frames(cuts: list[int], in_files: int, buckets: int, width: int) -> None:
    frame = mixed_rows(400)
    found = []
    with TemporaryDirectory() as folder:
        for ends in ([400], [*sorted(cuts), 400]):
            memory = 1 << 30 if len(ends) == 1 else width * 500
            rows = ScatteredRows(
                buckets, np.random.default_rng(5), memory_bytes=memory, spill_dir=Path(folder)
            )
            with closing(rows):
                for number, (first, end) in enumerate(pairwise([0, *ends])):
                    if number == in_files:
                        rows.spill()
                    rows.add(frame[first:end])
                found.append(pl.concat(rows.shuffled()))
    assert found[0].equals(found[1])
    assert found[0].schema == frame.schema
    assert found[0].sort("id").equals(frame)


def mixed_rows(count: int) -> pl.DataFrame:
    ids = pl.int_range(count, eager=True).alias("id")
    return pl.DataFrame(
        {
            "id": ids,
            "text": pl.Series(["a text of more than twelve bytes", None, "", "x"] * (count // 4)),
            "flag": ids % 3 == 0,
            "price": ids.cast(pl.Decimal(20, 2)),
            "day": ids.cast(pl.Date),
            "time": ids.cast(pl.Datetime("us", "UTC")),
            "list": pl.Series([["a", None], [], None, ["bcd"]] * (count // 4)),
            "nested": pl.select(pl.struct(ids.alias("i"), ids.cast(pl.String).alias("s"))).to_series(),
            "bytes": ids.cast(pl.String).cast(pl.Binary),
        }
    )


NUMBERS = ["id", "walk", "group", "noise"]


@pytest.mark.parametrize(
    "kind", [plain, deleted, partitioned, keyed, appended], ids=lambda kind: kind.__name__
)
def test_order_is_that_of_a_shuffled_frame(
    tables: Callable[..., qbeast.Table], kind: Callable[[Path], None]
) -> None:
    table = tables(kind)
    rows = table.read(columns=NUMBERS).fill_null(0)
    found = batches(table, columns=NUMBERS, batch_rows=64, buffer_bytes=rows.height * 32 // 16)
    frame = pl.concat(found).fill_null(0)
    assert_as_shuffled(frame, rows, batch_rows=64)
    assert chi_square(frame) < 150


def days(count: int, first: int, random: np.random.Generator) -> pl.DataFrame:
    """Return rows of a log: columns by time, by user, and a wave that is not indexed."""
    frame = pl.DataFrame(
        {
            "id": np.arange(first, first + count),
            "day": np.sort(random.integers(0, 365, count)) + first / 6_000,
            "user": random.integers(0, 60_000, count),
            "price": random.lognormal(size=count),
        }
    )
    return frame.with_columns(wave=3 * (pl.col("day") / 20).sin() + pl.Series(random.normal(size=count)))


@pytest.mark.sweep
@pytest.mark.parametrize(("changes", "vectors"), [(0, False), (10, False), (10, True)])
def test_kept_tables_are_shuffled_as_fresh_ones(tmp_path: Path, changes: int, *, vectors: bool) -> None:
    random, path = np.random.default_rng(1), tmp_path / "t"
    qbeast.write_table(days(600_000, 0, random), path, columns=["day", "user"], deletion_vectors=vectors)
    for number in range(changes):
        qbeast.write_table(days(10_000, 600_000 + 10_000 * number, random), path, mode="append")
        upserts = days(3_000, 20_000 * number, random)
        qbeast.open_table(path).merge(upserts.with_columns(pl.col("day") + 1), on=["id"])
        qbeast.open_table(path).delete(f"user % 97 = {number}")
    table = qbeast.open_table(path)
    reads: list[dict[str, Any]] = [
        {},
        {"where": "day < 200"},
        {"sample": 0.5},
        {"where": "price > 1", "sample": (0.2, 0.9)},
    ]
    for read in reads:
        rows = table.read(**read)
        for share in (16, 8, 4):
            found = pl.concat(batches(table, batch_rows=256, buffer_bytes=rows.height * 40 // share, **read))
            assert_as_shuffled(found, rows, batch_rows=256)
            assert found.sort("id").equals(rows.sort("id"))


def assert_as_shuffled(found: pl.DataFrame, rows: pl.DataFrame, *, batch_rows: int) -> None:
    """Compare the means of batches, and of their neighbours, with those of a permutation by NumPy."""
    shuffled_rows = rows[np.random.default_rng(0).permutation(rows.height)]
    for name in rows.columns:
        (lag, deviation), (_, expected) = (
            of_means(frame[name].to_numpy(), batch_rows) for frame in (found, shuffled_rows)
        )
        noise = 4 / (rows.height // batch_rows) ** 0.5
        assert abs(lag) < 0.08 + noise, name
        assert 0.95 - noise < deviation / expected < 1.10 + noise, name


def of_means(values: np.ndarray, batch_rows: int) -> tuple[float, float]:
    """Return the correlation of the means of neighbouring batches, and the deviation of the means."""
    means = values[: len(values) // batch_rows * batch_rows].reshape(-1, batch_rows).mean(1)
    return float(np.corrcoef(means[:-1], means[1:])[0, 1]), float(means.std())


def chi_square(frame: pl.DataFrame) -> float:
    """Compare the tenths of a column in tenths of the order: 81 degrees of freedom, so about 81 by chance."""
    tenth = frame["walk"].rank("ordinal").to_numpy() * 10 // (frame.height + 1)
    counts = np.histogram2d(tenth, np.arange(frame.height), bins=10)[0]
    expected = frame.height / 100
    return float(((counts - expected) ** 2 / expected).sum())


def test_pages_are_read_once(tables: Callable[..., qbeast.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    from qbeast_core.io.store import LocalStore  # noqa: PLC0415

    table, read = tables(plain), []
    ranges = LocalStore.get_ranges
    monkeypatch.setattr(
        LocalStore,
        "get_ranges",
        lambda self, path, wanted: (
            read.extend((path, *item) for item in wanted) or ranges(self, path, wanted)
        ),
    )
    for rank in range(3):
        batches(table, columns=["id", "walk"], rank=rank, world_size=3)
    starts = [(path, start) for path, start, _ in read]
    assert len(starts) > 100
    total = table.rows().explain().bytes_total
    assert sum(length for *_, length in read) < 1.2 * total


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "`seed` must be a whole number, 0 or more"),
        ({"epoch": 0.5}, "`epoch` must be a whole number"),
        ({"rank": 2, "world_size": 2}, "`rank` must be a whole number below world_size=2"),
        ({"world_size": 0}, "`world_size` must be a whole number, 1 or more"),
        ({"buffer_bytes": 0}, "`buffer_bytes` must be a whole number, 1 or more"),
        ({"batch_rows": 0}, "`batch_rows` must be a whole number, 1 or more"),
        ({"resume": {}}, "`resume` must be the dict that state_dict"),
        ({"resume": "{}"}, "json.loads"),
        ({"where": "nothing > 1"}, "nothing"),
    ],
)
def test_invalid_arguments_are_named(
    tables: Callable[..., qbeast.Table], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        shuffled(tables(plain), **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_rows": 5, "batch_bytes": 1000}, "cannot be combined"),
        ({"batch_rows": 0}, "`batch_rows` must be a whole number, 1 or more"),
        ({"batch_bytes": 0}, "`batch_bytes` must be a whole number, 1 or more"),
    ],
)
def test_invalid_sizes_of_batches_are_named(
    tables: Callable[..., qbeast.Table], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=words):
        tables(plain).rows().batches(**options)


def test_condition_that_fails_is_named(tables: Callable[..., qbeast.Table]) -> None:
    found = (
        tables(plain).rows("CAST(name AS INTEGER) / 0 > 1 OR CAST(name || 'x' AS INTEGER) > 1").shuffled(1)
    )
    with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated"):
        next(found)


def test_state_of_another_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    state = table.rows().shuffled(1).state_dict()
    changed = table.rows().shuffled(1, resume={**state, "row": ROWS + 1})
    with pytest.raises(qbeast.InvalidInputError, match="it was changed"):
        next(changed)
    for options in ({"seed": 2}, {"seed": 1, "epoch": 3}, {"seed": 1, "where": "id > 3"}):
        with pytest.raises(qbeast.InvalidInputError, match="is of another read"):
            shuffled(table, **options, resume=state)
    table.delete("id = 5")
    with pytest.raises(qbeast.InvalidInputError, match=r"'version': 0\}, here \{'version': 1\}"):
        table.refresh().rows().shuffled(1, resume=state)


def test_unshuffled_batches_have_exact_rows(tables: Callable[..., qbeast.Table]) -> None:
    found = list(tables(plain).rows().batches(batch_rows=7_000))
    assert [batch.height for batch in found] == [7_000] * 8 + [4_000]


JOB = """
import json, sys
import qbeast

batches = qbeast.open_table(sys.argv[1]).rows().shuffled(7, batch_rows=500, buffer_bytes=400_000)
for batch in batches:
    print(json.dumps([batch["id"].to_list(), batches.state_dict()]), flush=True)
"""


@pytest.mark.sweep
@pytest.mark.parametrize("count", [1, 40, 97])
def test_killed_job_continues_bit_by_bit(tables: Callable[..., qbeast.Table], count: int) -> None:
    table = tables(deleted)
    with subprocess.Popen([sys.executable, "-c", JOB, table.uri], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        lines = [json.loads(job.stdout.readline()) for _ in range(count)]
        job.kill()
    rest = batches(table, resume=lines[-1][1])
    ids = [*(line[0] for line in lines), *(batch["id"].to_list() for batch in rest)]
    assert ids == [batch["id"].to_list() for batch in batches(table)]
