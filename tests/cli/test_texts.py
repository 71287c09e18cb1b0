"""Text files: no value changes, types are those that all values of all files have, faults name their line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import permutations
from pathlib import Path
from threading import Thread

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.cli.sources import SourceOptions, Workspace, read_sources
from qbeast_core.cli.text_files import converted, inferred_types, misfits
from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.support.process import Progress, Resources
from tests.cli.running import run, run_error
from tests.helpers.buckets import client
from tests.helpers.examples import examples
from tests.helpers.small_files import resized
from tests.helpers.tables import folder

CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    st.sampled_from(
        ["00501", "1.10", "7", "-0", "1e3", "2024-01-31", "true", "NA", 'a"b', "x\ny", "x\r\ny", ",", "'"]
    ),
    st.integers(-(10**25), 10**25).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12).map(
        str
    ),
)
QUOTING = st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(paths: Sequence[Path | str], **options: object) -> pl.DataFrame:
    with Workspace(Resources()) as workspace:
        reading = SourceOptions(**options)  # type: ignore[arg-type]
        return read_sources([str(path) for path in paths], reading, workspace).collect()


def types_of(*values: str | None) -> str:
    texts = pl.LazyFrame({"a": values}, schema={"a": pl.String})
    return str(inferred_types(texts, ["a"])["a"])


def rows_of(text: str) -> list[list[str]]:
    """Return the records that Python's module reads, without the first."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]


@examples(5, sweep=400, parent=settings(deadline=None))
@given(st.lists(st.lists(st.tuples(CELLS, CELLS), max_size=5), min_size=1, max_size=3), ENDS, QUOTING)
def test_cells_are_those_of_python(files: list[list[tuple[str, str]]], end: str, quoting: int) -> None:
    with folder() as path:
        expected, paths = [], []
        for number, rows in enumerate(files):
            buffer = io.StringIO(newline="")
            # Python quotes no line ends but its own.
            quoting = quoting if end == "\r\n" else csv.QUOTE_ALL
            csv.writer(buffer, lineterminator=end, quoting=quoting).writerows([("a", "b"), *rows])
            paths.append(path.with_name(f"{number}.csv"))
            paths[-1].write_bytes(buffer.getvalue().encode())
            expected += rows_of(buffer.getvalue())
        texts = read(paths, types={"a": pl.String(), "b": pl.String()})
        assert texts.fill_null("").rows() == [tuple(row) for row in expected]
        for column in read(paths).iter_columns():
            cells = [row[texts.columns.index(column.name)] for row in expected]
            assert all(is_same(cell, value) for cell, value in zip(cells, column.to_list(), strict=True))


def is_same(cell: str, value: object) -> bool:
    """Return whether a value is the cell as Python reads it."""
    match value:
        case None:
            return not cell.strip(" \t")
        case bool():
            return cell.strip(" \t").lower() == str(value).lower()
        case int() | Decimal():
            return Decimal(cell.strip(" \t")) == value
        case float():
            return float(cell) == value
        case str():
            return cell == value
        case _:
            return cell.strip(" \t") == str(value)


@examples(4, sweep=300, parent=settings(deadline=None))
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b/c", 'd"e']),
            st.one_of(
                st.integers(-(10**20), 10**20),
                st.booleans(),
                st.none(),
                CELLS,
                st.decimals(
                    allow_nan=False, allow_infinity=False, places=4, min_value=-(10**15), max_value=10**15
                ),
            ),
            min_size=1,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_json_keeps_characters_of_numbers(rows: list[dict[str, object]]) -> None:
    def text(value: object) -> str:
        return str(value) if isinstance(value, Decimal) else json.dumps(value)

    lines = ["{" + ", ".join(f"{json.dumps(k)}: {text(v)}" for k, v in row.items()) + "}" for row in rows]
    names = {name for row in rows for name in row}
    with folder() as path:
        file = path.with_name("rows.jsonl")
        file.write_text("\n\n".join(lines) + "\n")
        texts = read([file], types=dict.fromkeys(names, pl.String()))
        for name in names:
            values = [row.get(name) for row in rows]
            shown = [v if isinstance(v, str) or v is None else text(v) for v in values]
            assert texts[name].to_list() == shown


TYPES = [
    (["1", "-7", None], "Int64"),
    (["00501", "10115"], "String"),
    (["+4930", "1"], "String"),
    (["1", "2.5", ".5", "1e3", "NaN"], "Float64"),
    (["0.30000000000000004"], "Float64"),
    (["0.10000000000000001", "1e-5"], "Float64"),
    (["9007199254740993", "1.5"], "Decimal(precision=38, scale=1)"),
    (["18446744073709551616"], "Decimal(precision=38, scale=0)"),
    (["1" * 40], "String"),
    (["1e400", "1"], "String"),
    (["true", "False"], "Boolean"),
    (["true", "1"], "String"),
    (["2024-02-29"], "Date"),
    (["2023-02-29"], "String"),
    (["13/02/26"], "String"),
    (["2024-01-31", "1.5"], "String"),
    (["2024-01-31", "2024-01-31 10:00"], "Datetime(time_unit='us', time_zone=None)"),
    (["2024-01-31T10:00:00Z", "2024-01-31 10:00+02:00"], "Datetime(time_unit='us', time_zone='UTC')"),
    (["2024-01-31T10:00:00Z", "2024-01-31 10:00"], "String"),
    (["2024-01-31 10:00:00.1234567"], "String"),
    ([None, ""], "String"),
]


@pytest.mark.parametrize(("values", "dtype"), TYPES)
def test_type_is_that_of_all_values(values: list[str | None], dtype: str) -> None:
    assert types_of(*values) == dtype
    assert types_of(*reversed(values)) == dtype
    assert types_of("x", *values) == "String"
    # Values after the sampled ones count too.
    with resized(inferred_rows=1):
        for first in (None, "7", "0.5", "2024-01-31", "true"):
            assert types_of(first, "x") == "String"
        assert types_of(None, *values) == types_of(*values) == types_of(*reversed(values)) == dtype


EXACT = [
    (pl.Int64(), ["1", "1.0", "007", "1e3"], ["1.5", "x", "9223372036854775808"]),
    (pl.Int8(), ["127", "-128.0"], ["128"]),
    (pl.Decimal(9, 2), ["2.240", ".5", "1e-2", "1e6"], ["2.245", "1e-3", "1e-60", "10000000", "NaN"]),
    (pl.Float64(), ["0.1", "-inf", "nan"], ["1e400", "1,5"]),
    (pl.Float32(), ["0.1"], ["1e39"]),
    (pl.Boolean(), ["TRUE", "false"], ["1", "yes"]),
    (pl.Date(), ["2024-02-29"], ["2024-02-30", "13/02/26", "2024-01-31 10:00"]),
    (pl.Datetime("us"), ["2024-01-31", "2024-01-31 10:00:00.5"], ["2024-01-31T10:00Z", "2024-01-31 24:00"]),
    (
        pl.Datetime("us", "UTC"),
        ["2024-01-31", "2024-01-31 10:00Z"],
        ["2024-01-31 10:60", "2024-01-31 10:00:60Z"],
    ),
]


@pytest.mark.parametrize(("dtype", "fits", "unfit"), EXACT, ids=str)
def test_value_fits_exactly_or_is_refused(dtype: pl.DataType, fits: list[str], unfit: list[str]) -> None:
    assert misfits(pl.LazyFrame({"a": fits}), {"a": dtype}) == ({}, set())
    for value in unfit:
        assert misfits(pl.LazyFrame({"a": [*fits, value]}), {"a": dtype})[0] == {"a": value}


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30)), timezone(timedelta(hours=9))])


@examples(10, sweep=1000, parent=settings(deadline=None))
@given(st.lists(st.datetimes(), min_size=1), st.none() | ZONES, st.sampled_from("T "), st.booleans())
def test_times_are_those_of_python(times: list[datetime], zone: timezone | None, sep: str, utc: bool) -> None:  # noqa: FBT001
    times = [time.replace(year=max(time.year, 2), tzinfo=zone) for time in times]
    values = [time.isoformat(sep) for time in times]
    if zone is None:
        values += [day.date().isoformat() for day in times]
        times += [datetime(*day.timetuple()[:3]) for day in times]  # noqa: DTZ001
    texts = pl.LazyFrame({"a": [f" {value}".replace("+00:00", "Z" if utc else "+00") for value in values]})
    dtype = inferred_types(texts, ["a"])["a"]
    assert dtype == pl.Datetime("us", zone and "UTC")
    assert texts.select(converted("a", dtype)).collect()["a"].to_list() == times


NUMBERS = st.builds(
    lambda digits, places: f"{Decimal(digits).scaleb(-places):f}",
    st.integers(-(10**20), 10**20),
    st.integers(0, 20),
)


@examples(10, sweep=2000, parent=settings(deadline=None))
@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_numbers_keep_all_digits(numbers: list[str]) -> None:
    texts = pl.LazyFrame({"a": numbers})
    dtype = inferred_types(texts, ["a"])["a"]
    values = texts.select(converted("a", dtype)).collect()["a"].to_list()
    assert [Decimal(repr(value) if isinstance(value, float) else value) for value in values] == [
        Decimal(number) for number in numbers
    ]


def test_files_of_a_call_have_one_set_of_types(tmp_path: Path) -> None:
    for number, text in enumerate(["a,b\n1.5,2\n", "b,a\n3,2026-01-01\n", "a,b\n"]):
        (tmp_path / f"{number}.csv").write_text(text)
    (tmp_path / "rest.jsonl").write_text('{"a": "x", "b": 4}\n')
    rows = read([*sorted(tmp_path.glob("*.csv")), tmp_path / "rest.jsonl"])
    assert rows.rows() == [("1.5", 2), ("2026-01-01", 3), ("x", 4)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "mixed"])
def test_blank_lines_and_line_ends(end: str, tmp_path: Path) -> None:
    ends = ["\r\n", "\n", "\n", "\r\n", "\r"] if end == "mixed" else [end] * 5
    lines = ["id,name", '1,"two\r\nlines"', "", "2,B", "3,"]
    (tmp_path / "rows.csv").write_bytes("".join(map("".join, zip(lines, ends, strict=True))).encode())
    (tmp_path / "one.csv").write_bytes(f"id{ends[1]}1{ends[1]}{ends[1]}2{ends[1]}".encode())
    assert read([tmp_path / "rows.csv"]).rows() == [(1, "two\r\nlines"), (2, "B"), (3, None)]
    assert read([tmp_path / "one.csv"]).rows() == [(1,), (2,)]


def test_compressed_and_tab_separated_files(tmp_path: Path) -> None:
    text = b"id\tn\n1\ta,b\n"
    (tmp_path / "a.tsv").write_bytes(text)
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "c.tsv.zst").write_bytes(zstd(text))
    (tmp_path / "d.tsv").write_bytes(text.decode().encode("utf-16"))
    assert read(sorted(tmp_path.iterdir())).rows() == [(1, "a,b")] * 4


def zstd(text: bytes) -> bytes:
    compressed: bytes = pa.compress(text, codec="zstd", asbytes=True)
    return compressed


def test_many_columns_are_read_as_duckdb_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    rows = pl.DataFrame(
        {f"c{n}": [n, n + 0.5, None] if n % 2 else ["x", "", f"{n}"] for n in range(100)}, strict=False
    )
    rows.write_csv(file)
    expected = duckdb.read_csv(str(file), sample_size=-1, allow_quoted_nulls=False).pl()
    assert read([file]).equals(expected)


def test_nested_json_keeps_its_types(tmp_path: Path) -> None:
    lines = [{"id": 1, "r": {"a": 1, "l": [1.5]}, "m": {"x": 1}}, {"id": 2, "r": {"b": "x"}, "m": "text"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = read([tmp_path / "rows.jsonl"])
    assert rows["r"].to_list() == [{"a": 1, "l": [1.5], "b": None}, {"a": None, "l": None, "b": "x"}]
    assert rows["m"].to_list() == ['{"x":1}', "text"]


FAULTS: list[tuple[str, bytes, list[str], str]] = [
    ("rows.csv", b'a,b\n1,2\n\n"3\n",4,5\n', [], "line 4: more fields (3) than columns (2)"),
    ("rows.csv", b"a,b\n1\n", [], "line 2: fewer fields (1) than columns (2)"),
    ("rows.csv", b'a,b\n1,"2\n', [], "a field in quotes does not end"),
    ("rows.csv", b"a\n1\nJos\xe9\n", [], "line 3: the text is not in UTF-8"),
    ("rows.csv", "a\n1\n".encode("utf-16-le"), [], "zero bytes"),
    ("rows.csv", b"a,a\n1,2\n", [], "several columns of the same name: ['a']"),
    ("rows.csv", b"a\n1\n2.245\n", ["--type", "a=decimal(9,2)"], "line 3, column 'a': '2.245'"),
    ("rows.csv", b"a\n99999999999999999999\n", ["--type", "a=long"], "is not a value of type long"),
    ("rows.csv", b"a\n13/02/26\n", ["--type", "a=date"], "--date-format"),
    ("rows.csv", b"a\n1\n", ["--separator", "ab"], "one character"),
    ("rows.jsonl", b'{"a": 1}\n{"a": \n', [], "line 2: it is not JSON"),
    ("rows.jsonl", b'{"a": 1}\n[1]\n', [], "line 2: it is not a JSON object"),
    ("rows.jsonl", b'\n{"a": 2.245}\n', ["--type", "a=decimal(9,2)"], "line 2, column 'a': '2.245'"),
    ("rows.csv.gz", gzip.compress(b"a\n1\n", mtime=0)[:-9], [], "cannot be read"),
]


@pytest.mark.parametrize(("name", "content", "options", "words"), FAULTS)
def test_fault_names_line_and_cure(
    name: str, content: bytes, options: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in run_error("write", tmp_path / name, tmp_path / "t", "-c", "a", *options, code=2)
    assert not (tmp_path / "t").exists()


def test_date_format_is_for_dates_that_are_not_iso(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,day,due\n1,01/02/2026,2026-03-04\n")
    types = ["--type", "day=date", "--type", "due=date", "--date-format", "%d/%m/%Y"]
    run("write", tmp_path / "rows.csv", tmp_path / "t", "-c", "id", *types)
    assert [str(value) for value in qbeast.read_table(tmp_path / "t").row(0)] == [
        "1",
        "2026-02-01",
        "2026-03-04",
    ]


def test_append_refuses_to_round(tmp_path: Path) -> None:
    prices = pl.DataFrame(
        {"id": [0], "price": [Decimal("2.24")]}, schema_overrides={"price": pl.Decimal(9, 2)}
    )
    qbeast.write_table(prices, tmp_path / "t", columns=["id"])
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "price": 2.245}\n')
    line = run_error("append", tmp_path / "rows.jsonl", tmp_path / "t", code=2)
    assert "'2.245' is not a value of type decimal(9,2). The table has this type." in line


@pytest.mark.parametrize("ends", list(permutations(["\n", "\r\n", "\r"], 2)), ids=repr)
def test_line_ends_change_beyond_the_start(ends: tuple[str, str], tmp_path: Path) -> None:
    pad = "x" * (1 << 20)
    rows = [('5" p', "l\r2"), (pad, "l\n3"), ("c", "l\r\n4"), ("d", "")]
    records = [f'{a},"{b}"' for a, b in [("a", "b"), *rows]]
    objects = [json.dumps({"a": a, "b": b}) for a, b in rows]
    for name, lines in (("rows.csv", records), ("rows.jsonl", objects)):
        file = tmp_path / name
        file.write_bytes("".join(line + ends[n > 2] for n, line in enumerate(lines)).encode())
        assert read([file], types={"a": pl.String()}).rows() == rows


def test_quotes_and_line_ends_survive_utf_16(tmp_path: Path) -> None:
    text = 'a,b\r\n5" p,"l\r2"\r\n\r\n6,7\r\n'
    (tmp_path / "rows.csv").write_bytes(text.encode("utf-16"))
    assert [list(row) for row in read([tmp_path / "rows.csv"]).rows()] == rows_of(text)


def test_few_groups_and_sampled_rows_change_nothing(tmp_path: Path) -> None:
    days = [f"2024-01-{n % 28 + 1:02}" for n in range(5000)]
    values = {"day": days, "n": [f"{n}" for n in range(4999)] + ["0.5"], "code": ["7"] * 4999 + ["07"]}
    pl.DataFrame(values).write_csv(tmp_path / "rows.csv")
    rows = read([tmp_path / "rows.csv"])
    assert rows.dtypes == [pl.Date, pl.Float64, pl.String]
    assert rows["n"].sum() == sum(range(4999)) + 0.5
    with resized(inferred_rows=1, text_group_rows=1):
        assert read([tmp_path / "rows.csv"]).equals(rows)


def test_types_are_read_in_reported_steps(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    steps: list[Progress] = []
    read([tmp_path / "rows.csv"], progress=steps.append)
    assert steps == [Progress("read")] * 2


def test_missing_duckdb_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    line = run_error("write", tmp_path / "rows.csv", tmp_path / "t", "-c", "a", code=11)
    assert "reading CSV and JSON lines needs duckdb" in line
    assert "pip install 'qbeast[cli]'" in line


def test_texts_of_object_stores_are_copied_in_parts(bucket: str, s3_options: dict[str, str]) -> None:
    place = stored(
        {
            "1.csv": b"a,b\n1,x\n",
            "2.csv.gz": gzip.compress(b"b,a\ny,2\n"),
            "rows.jsonl": b'{"a": 1.10, "b": 2}\n',
        },
        bucket,
        s3_options,
    )
    sources = [f"{place}/{name}" for name in ("1.csv", "2.csv.gz", "rows.jsonl")]
    with resized(copied_bytes=5):
        rows = read(sources, storage_options=s3_options)
    assert rows.rows() == [(1.0, "x"), (2.0, "y"), (1.1, "2")]


def test_pattern_names_files_of_one_folder(bucket: str, s3_options: dict[str, str]) -> None:
    files = {"x/1.csv": b"a\n1\n", "x/3[1].csv": b"a\n3.5\n", "x/z/5.csv": b"c\n1\n", "y/4.csv": b"a\n4\n"}
    place = stored(files, bucket, s3_options)
    assert read([f"{place}/x/*.csv"], storage_options=s3_options).rows() == [(1.0,), (3.5,)]
    assert read([f"{place}/**/4.csv"], storage_options=s3_options).rows() == [(4,)]
    with pytest.raises(InvalidInputError, match=rf"'{place}/x/3\[1\].csv', line 2, column 'a': '3.5'"):
        read([f"{place}/x/*.csv"], storage_options=s3_options, types={"a": pl.Int64()})
    with pytest.raises(InvalidInputError, match="there is no 's3://"):
        read([f"{place}/z/*.csv"], storage_options=s3_options)


def stored(files: Mapping[str, bytes], bucket: str, options: Mapping[str, str]) -> str:
    for name, content in files.items():
        client(options).put_object(Bucket=bucket, Key=name, Body=content)
    return f"s3://{bucket}"


def test_texts_are_read_by_http(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("id\tname\n1\ta,b\n")
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with resized(copied_bytes=3):
            assert read([f"{address}/rows.tsv"]).rows() == [(1, "a,b")]
        with pytest.raises(StorageError, match=r"rows.csv' cannot be read: File not found"):
            read([f"{address}/rows.csv"])
        with pytest.raises(InvalidInputError, match="not at 'ftp://host"):
            read(["ftp://host/rows.csv"])
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files of a folder without a log."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""
