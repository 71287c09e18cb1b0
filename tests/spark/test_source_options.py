"""The options of format("qbeast"), from text to values."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import qbeast
from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.datasource.options import (
    FeedOptions,
    ReadOptions,
    StreamReadOptions,
    WriteByTasks,
    is_stream,
    read_options,
)
from qbeast_spark_bridge.datasource.source import QbeastReader
from qbeast_spark_bridge.datasource.writers import application_of
from tests.spark.sessions import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FEED = {"path": "t", "readChangeFeed": "true", "startingVersion": "0"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("", None),
        ("0.01", (0.0, 0.01)),
        ("1%", (0.0, 0.01)),
        ("1e-3", (0.0, 0.001)),
        ("0.1,0.2", (0.1, 0.2)),
        (" 0.1 , 1", (0.1, 1.0)),
    ],
)
def test_sample_options_are_parsed(text: str | None, value: object) -> None:
    options = {"path": "t"} | ({} if text is None else {"sample": text})
    assert ReadOptions.of(options).sample == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("a, b", ("a", "b")), ('["a", "b,c"]', ("a", "b,c")), ("", None)],
)
def test_column_options_are_parsed(text: str, value: object) -> None:
    assert ReadOptions.of({"path": "t", "columns": text}).columns == value


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("2026-01-31", "2026-01-31"), ("", None)])
def test_version_options_are_parsed(text: str, value: object) -> None:
    assert ReadOptions.of({"path": "t", "version": text}).version == value


@pytest.mark.parametrize(
    ("name", "text", "value"), [("versionAsOf", "3", 3), ("timestampAsOf", "2026-01-31", "2026-01-31")]
)
def test_versions_have_the_names_of_delta(name: str, text: str, value: object) -> None:
    options = ReadOptions.of({"path": "t", name: text, "stale": "refuse"})
    assert (options.version, options.refuses_stale) == (value, False)


def test_feed_options_are_parsed() -> None:
    given = {"path": "t", "readChangeFeed": "TRUE", "startingVersion": "0", "endingTimestamp": "2026-01-31"}
    options = read_options(given | {"columns": "a,_change_type"})
    assert isinstance(options, FeedOptions)
    assert (options.starting_version, options.ending_version, options.ending_timestamp) == (
        0,
        None,
        "2026-01-31",
    )
    assert options.columns == ("a", "_change_type")
    assert not is_stream(given)
    assert is_stream(given | {"maxFilesPerTrigger": "1"})
    assert isinstance(read_options({"path": "t", "readChangeFeed": "false"}), ReadOptions)


def test_write_options_are_parsed() -> None:
    given = {
        "path": "t",
        "columnstoindex": "a,b:hash",
        "cubesize": "70",
        "optimize": "true",
        "usermetadata": "x",
    }
    options = WriteByTasks.of(CaseInsensitiveDict(given | {"txnappid": "job", "txnversion": "3"}))
    assert (options.columns, options.cube_size, options.txn) == (("a", "b:hash"), 70, ("job", 3))
    assert (options.optimizes, options.overwrites_schema, options.user_metadata) == (True, False, "x")


def test_stream_options_are_parsed() -> None:
    given = {"path": "t", "startingVersion": "7", "maxFilesPerTrigger": "3", "maxBytesPerTrigger": "2g"}
    options = StreamReadOptions.of(given | {"skipChangeCommits": "TRUE"})
    assert (options.starting_version, options.max_files, options.max_bytes) == (7, 3, 2 << 30)
    assert (options.skip_change_commits, options.ignore_deletes, options.read_change_feed) == (
        True,
        False,
        False,
    )
    assert is_stream(given)
    assert not is_stream({"path": "t", "sample": "0.1"})
    for wrong in ({"maxFilesPerTrigger": "0"}, {"startingTimestamp": "2026-01-01"}, {"sample": "0.1"}):
        with pytest.raises(qbeast.InvalidInputError):
            StreamReadOptions.of(given | wrong)


def test_options_of_the_store_go_through() -> None:
    options = ReadOptions.of(
        {"path": "s3://b/t", "storage.aws_region": "eu", "storage.aws_secret_access_key": "hush"}
    )
    assert options.location.storage_options == {"aws_region": "eu", "aws_secret_access_key": "hush"}
    assert "hush" not in repr(options)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "needs the path"),
        ({"paths": '["a", "b"]'}, "one path, not several"),
        ({"path": "t", "smaple": "0.1"}, "no option \\['smaple'\\]"),
        ({"path": "t", "sample": "a tenth"}, "`sample` must be"),
        ({"path": "t", "sample": "0.1,0.2,0.3"}, "`sample` must be"),
        ({"path": "t", "sample": "10"}, "For 10 % write sample=0.1"),
        ({"path": "t", "columns": "[1]"}, "columns must be"),
        ({"path": "t", "columns": "[}"}, "columns must be"),
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-31"}, "exclude each other"),
        ({"version": "1", "versionAsOf": "1"}, "exclude each other"),
        ({"versionAsOf": "2026-01-31"}, r'\.option\("timestampAsOf", "2026-11-28"\)'),
        ({"timestampAsOf": "3"}, r'\.option\("versionAsOf", 3\)'),
        ({"startingVersion": "0"}, r'\.option\("readChangeFeed", "true"\)'),
        ({"endingTimestamp": "2026-01-31"}, r'\.option\("readChangeFeed", "true"\)'),
        (FEED | {"versionAsOf": "3"}, r'\.option\("endingVersion", "3"\)'),
        (FEED | {"where": "id < 3"}, r"\.where\("),
        (FEED | {"startingTimestamp": "2026-01-31"}, "exclude each other"),
        (FEED | {"startingVersion": "latest"}, "must be the number of a version"),
        (FEED | {"maxFilesPerTrigger": "3"}, "has no option"),
    ],
)
def test_invalid_options_raise(options: dict[str, str], part: str) -> None:
    with pytest.raises(InvalidInputError, match=part):
        read_options(options)


def test_stream_name_is_option_or_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"3d8445c2"}')
    assert application_of({"checkpointlocation": str(tmp_path)}) == "3d8445c2"
    assert application_of({"checkpointlocation": tmp_path.as_uri()}) == "3d8445c2"
    assert application_of({"checkpointlocation": str(tmp_path), "txnappid": "mine"}) == "mine"


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}"])
def test_stream_without_name_raises(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "metadata").write_text(text)
    with pytest.raises(InvalidInputError, match="txnAppId"):
        application_of({"checkpointlocation": str(tmp_path)})
    with pytest.raises(InvalidInputError, match="txnAppId"):
        application_of({})


def test_reader_pushes_no_filters() -> None:
    """See tests/spark/versions/test_source_versions.py for the reason."""
    assert "pushFilters" not in vars(QbeastReader)


BLOCKED = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r} or name.startswith({name!r} + "."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import pyspark_qbeast
print(hasattr(pyspark_qbeast, "DefaultSource"), "polars" in sys.modules)
"""


@pytest.mark.parametrize(
    ("name", "actual"),
    [
        ("polars", "True"),
        ("qbeast_core", "False"),
        *(
            pytest.param(*case, marks=pytest.mark.sweep)
            for case in (("nothing", "True"), ("pyspark", "False"), ("orjson", ""))
        ),
    ],
)
def test_pyspark_lookup_package_never_fails(name: str, actual: str) -> None:
    """An error would hide the data sources of all other packages."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(name=name)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    has_source, has_polars = done.stdout.split()
    assert actual in (has_source, "")
    assert has_polars == "False"  # it is imported in every worker of the driver, and has to be light
