"""A short local log is read without deltalake: it gives the same version, and whatever is unusual goes to deltalake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.errors import QbeastError
from qbeast_core.io.location import Location
from qbeast_core.table.snapshot.delta import open_short
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.helpers.examples import examples, is_sweep
from tests.helpers.random_log import logs, put
from tests.helpers.small_files import resized
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import folder, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")

ROOT = Path(__file__).parents[3]
GOLDEN = sorted(log.parent for log in (ROOT / "tests/format").rglob("_delta_log"))
ROWS = pl.DataFrame({"id": range(50), "name": [f"n{i}" for i in range(50)]})
FIELDS = ("version", "timestamp_ms", "metadata", "protocol", "config", "schema", "schema_json", "domains")


def is_short(root: Path | str, version: int | None = None) -> bool:
    return open_short(Location.of(root), version=version) is not None


def assert_as_deltalake(root: Path | str, version: int | None = None) -> bool:
    """Return whether the log is read without deltalake."""
    if not is_short(root, version):
        return False
    with resized(max_short_commits=0):
        expected = load_snapshot(root, version=version)
    actual = load_snapshot(root, version=version)
    for name in (*FIELDS, "fingerprint"):
        assert getattr(actual, name) == getattr(expected, name), name
    for mine, theirs in ((actual.files, expected.files), (actual.copies.files, expected.copies.files)):
        assert_frame_equal(mine, theirs, check_exact=True)
        assert mine.rows() == theirs.rows()  # a null struct differs from a struct of nulls
    assert actual.copies.mixed == expected.copies.mixed
    return True


@examples(5, sweep=4000)
@given(texts=logs())
def test_random_logs_give_what_deltalake_gives(texts: list[str]) -> None:
    with folder() as path:
        put(Path(path), texts)
        assert_as_deltalake(path)
        assert_as_deltalake(path, len(texts) // 2)


# --- logs of writers ----------------------------------------------------------------------------------------------


@examples(2, sweep=300)
@given(case=cases(most_frames=2, most_rows=20, most_columns=8))
def test_own_logs_give_what_deltalake_gives(case: Case) -> None:
    with folder() as path:
        write(path, case)
        qbeast.open_table(path).delete("row = 0")
        for version in (0, None):
            assert_as_deltalake(path, version)


def deltalake_table(root: Path) -> None:
    frame = pl.select(
        a=pl.lit(7, pl.Int16),
        b=pl.date(2024, 5, 1),
        c=pl.datetime(2024, 5, 1, time_zone="UTC"),
        d=pl.lit("1.50").cast(pl.Decimal(9, 2)),
        e=pl.lit(1.5),
        f=pl.lit("x" * 40),
        g=pl.lit(value=True),
        s=pl.struct(pl.lit(1).alias("x"), pl.lit("y").alias("y")),
        many=pl.concat_list(pl.lit(1)),
    )
    write_deltalake(root, frame)
    write_deltalake(root, frame.clear(n=1).with_columns(e=float("nan")), mode="append")
    DeltaTable(root).delete("a = 7")
    write_deltalake(root, frame, mode="append")
    DeltaTable(root).optimize.compact()


def own_table(root: Path) -> None:
    qbeast.write_table(ROWS, root, columns=["id"], deletion_vectors=True)
    table = qbeast.open_table(root)
    table.delete("id < 3")
    table.update("id = 5", {"name": "'five'"})
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 100), root, mode="append", txn=("loader", 4))
    table.refresh().optimize()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own") / "t"
    own_table(root)
    return root


@pytest.fixture
def copied(own: Path, tmp_path: Path) -> Path:
    return shutil.copytree(own, tmp_path / "t")


@pytest.mark.parametrize("make", [deltalake_table, own_table])
def test_written_logs_are_read_without_deltalake(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "t")
    newest = load_snapshot(tmp_path / "t").version
    assert newest >= 4
    assert all(assert_as_deltalake(tmp_path / "t", version) for version in (*range(newest + 1), None))


def test_golden_logs_give_what_deltalake_gives() -> None:
    tables = GOLDEN if is_sweep() else GOLDEN[::8]
    assert sum(assert_as_deltalake(table) for table in tables) > len(tables) // 4


def test_only_whole_short_logs_are_read_so(copied: Path, tmp_path: Path) -> None:
    log = copied / "_delta_log"
    sizes = [path.stat().st_size for path in sorted(log.glob("*.json"))]
    assert is_short(copied)
    assert not is_short(copied, len(sizes))
    with resized(max_short_commits=len(sizes) - 1):
        assert not is_short(copied)
        assert is_short(copied, len(sizes) - 2)
    with resized(max_short_bytes=sum(sizes) - 1):
        assert not is_short(copied)
        assert is_short(copied, len(sizes) - 2)
    (log / f"{1:020d}.json").rename(tmp_path / "1.json")
    assert not is_short(copied)
    assert not is_short(copied, 0)


@pytest.mark.parametrize(
    "name", ["_last_checkpoint", f"{0:020d}.checkpoint.parquet", f"{0:020d}.{1:020d}.compacted.json", "x"]
)
def test_other_files_of_a_log_go_to_deltalake(copied: Path, name: str) -> None:
    assert is_short(copied)
    (copied / "_delta_log" / name).touch()
    assert not is_short(copied)


@pytest.mark.parametrize("name", [".00000000000000000000.json.crc", f"{3:020d}.crc"])
def test_checksums_of_a_log_are_not_read(copied: Path, name: str) -> None:
    (copied / "_delta_log" / name).write_text("no checksum")
    assert assert_as_deltalake(copied)


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
def test_linked_commits_go_to_deltalake(copied: Path, tmp_path: Path) -> None:
    commit = copied / "_delta_log" / f"{1:020d}.json"
    commit.rename(tmp_path / "1.json")
    commit.symlink_to(tmp_path / "1.json")
    assert not is_short(copied)
    with pytest.raises(QbeastError):
        load_snapshot(copied)


def test_unclear_files_and_protocols_go_to_deltalake(tmp_path: Path) -> None:
    protocol = '{"protocol":{"minReaderVersion":%d,"minWriterVersion":%d,"readerFeatures":[%s],"writerFeatures":[%s]}}'
    vectors = protocol % (3, 7, *['"deletionVectors"'] * 2)
    old = protocol.replace('"readerFeatures":[%s],"writerFeatures":[%s]', '"x":[]') % (0, 0)
    table = (
        '{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"partitionColumns":[],"configuration":{},'
        '"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"a\\",'
        '\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":{}}]}"}}'
    )
    file = (
        '{"add":{"path":"b.parquet","dataChange":true,"partitionValues":{},"size":0,"modificationTime":1%s}}'
    )
    vector = '{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","sizeInBytes":40,"cardinality":6,"offset":4}'
    hidden = file % f',"deletionVector":{vector}'
    gone = f'{{"remove":{{"path":"b.parquet","dataChange":true,"deletionTimestamp":1,"deletionVector":{vector}}}}}'
    plain, sound = file % "", f"{vectors}\n{table}\n"
    for name, texts in {
        "plain": [sound, plain],
        "both at once": [sound, f"{plain}\n{hidden}\n", gone],
        "one after the other": [sound, plain, hidden, gone],
        "an old protocol": [f"{old}\n{table}\n", f"{vectors}\n", plain],
    }.items():
        put(tmp_path / name, texts)
        assert assert_as_deltalake(tmp_path / name) == (name == "plain"), name


# --- what deltalake still does ------------------------------------------------------------------------------------


def test_tables_of_short_logs_know_later_versions(copied: Path) -> None:
    snapshot = load_snapshot(copied)
    assert is_short(copied)
    assert refresh(snapshot) is snapshot
    assert snapshot.transaction_version("loader") == 4
    assert snapshot.transaction_version("other") is None
    write_deltalake(copied, ROWS, mode="append")
    later = refresh(snapshot)
    assert later.version == snapshot.version + 1
    assert later.counted_rows == snapshot.counted_rows + 50
    later.source.checkpoint(later.version, files=later.files.height)
    assert not is_short(copied)
    assert load_snapshot(copied).files.height == later.files.height


@pytest.mark.sweep
def test_plain_reads_load_no_deltalake_pyarrow_sqlglot(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "name"])
    code = (
        "import sys, qbeast; path = sys.argv[1]\n"
        "reads = [dict(where=\"name = 'n7' AND id < 9\"), dict(sample=1.0, columns=['id'])]\n"
        "print([qbeast.read_table(path, **read).height for read in reads])\n"
        "print({'deltalake', 'pyarrow', 'sqlglot'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t")]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.splitlines() == ["[1, 50]", "set()"]
