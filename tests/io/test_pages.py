"""Chosen pages give the rows that a plain read of the whole file gives, and no other byte is touched."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from polars.testing.parametric import dataframes

from qbeast_core.io.encode import WEIGHT_COLUMN, choose_dictionary, encode_data_file
from qbeast_core.io.footer import PagesUnavailable
from qbeast_core.io.pages import PageReader, PageRequest
from qbeast_core.io.store import LocalStore
from tests.helpers.examples import examples
from tests.helpers.small_files import resized
from tests.io.frames import every_type, page_cuts, weights

ROWS, PAGE_ROWS = 1000, 64
PAGES = 16


class MemoryStore:
    """Files in a dict; remembers what was read, and pretends to be remote if asked."""

    uri = "memory"

    def __init__(self, *, remote: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self.read: list[tuple[str, int, int]] = []
        self.local_root = None if remote else Path()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return bytes(self.get_ranges(path, [(start, length)])[0])

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        self.read += [(path, *piece) for piece in ranges]
        return [memoryview(self.files[path])[start : start + length] for start, length in ranges]


def add(
    store: MemoryStore,
    path: str,
    frame: pl.DataFrame | pa.Table,
    pages: Sequence[int],
    page_rows: int = PAGE_ROWS,
    groups: int = 1,
    dictionary: Sequence[str] | None = None,
) -> PageRequest:
    if dictionary is None:
        dictionary = choose_dictionary(frame) if isinstance(frame, pl.DataFrame) else []
    cuts = page_cuts(len(frame), page_rows, groups=groups)
    file = encode_data_file(frame, weights=weights(len(frame)), cuts=cuts, dictionary=dictionary)
    store.files[path] = file.data
    places = file.tail_bytes, file.directory_bytes
    return PageRequest(path, len(file.data), cuts, *places, np.array(pages, dtype=np.int64))


def rows_of(
    frame: pl.DataFrame, pages: Sequence[int], page_rows: int = PAGE_ROWS, groups: int = 1
) -> pl.DataFrame:
    pieces = pages_of(frame, page_rows, groups)
    return pl.concat([pieces[page] for page in pages])


def pages_of(frame: pl.DataFrame, page_rows: int, groups: int) -> list[pl.DataFrame]:
    cuts, pieces, start = page_cuts(frame.height, page_rows, groups=groups), list[pl.DataFrame](), 0
    for rows, each in zip(cuts.group_rows, cuts.page_rows, strict=True):
        pieces += frame.slice(start, rows).iter_slices(each)
        start += rows
    return pieces


page_sets = st.lists(st.integers(0, PAGES - 1), min_size=1, unique=True).map(sorted)


@examples(5, sweep=600)
@given(
    pages=st.tuples(page_sets, page_sets),
    columns=st.lists(st.sampled_from(every_type(1).columns), unique=True, min_size=1),
)
def test_pages_of_any_columns_equal_plain_read(
    pages: tuple[list[int], list[int]], columns: list[str]
) -> None:
    frames = FRAMES
    requests = [_with(request, chosen) for request, chosen in zip(REQUESTS, pages, strict=True)]
    read = PageReader(STORE).read(requests, columns, frames[0].schema)
    expected = pl.concat(
        [
            rows_of(frame, chosen, groups=groups)
            for frame, chosen, groups in zip(frames, pages, GROUPS, strict=True)
        ]
    )
    assert_frame_equal(read, expected.select(columns))
    for request in (*requests, _with(REQUESTS[0], pages=list(range(PAGES)))):
        reader = PageReader(STORE)
        assert reader.bytes_of(request, columns) == reader.ranges(request, columns)[1]


def test_pages_after_an_overflow_of_the_dictionary_are_read() -> None:
    """The writer checks the size of a dictionary every 1,024 rows, here between pages, which stay aligned."""
    frame, store = pl.DataFrame({"text": [f"{row:08d}" for row in range(16_384)]}), MemoryStore()
    pages = [0, 20, 25, 31]
    request = add(store, "f", frame, pages, 512, dictionary=["text"])
    chunk = pq.read_metadata(io.BytesIO(store.files["f"])).row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(chunk.encodings)
    assert_frame_equal(PageReader(store).read([request], ["text"], frame.schema), rows_of(frame, pages, 512))


@examples(6, sweep=600)
@given(
    frame=dataframes(
        min_cols=1,
        max_cols=4,
        min_size=1,
        max_size=40,
        allowed_dtypes=[pl.Int64, pl.Float32, pl.String, pl.Binary, pl.Boolean, pl.Date, pl.List, pl.Struct],
        allow_time_zones=False,
        excluded_dtypes=[pl.Categorical, pl.Enum, pl.Decimal, pl.Time, pl.Duration, pl.Object, pl.Int128],
    ),
    page_rows=st.integers(1, 9),
    groups=st.integers(1, 4),
    data=st.data(),
)
def test_generated_frames_are_read_back(
    frame: pl.DataFrame, page_rows: int, groups: int, data: st.DataObject
) -> None:
    count = len(pages_of(frame, page_rows, groups))
    numbers = st.lists(st.integers(0, count - 1), min_size=1, unique=True)
    pages = sorted(data.draw(numbers))
    store = MemoryStore()
    request = add(store, "f", frame, pages, page_rows, groups)
    reader = PageReader(store)
    expected = rows_of(frame, pages, page_rows, groups)
    assert_frame_equal(reader.read([request], frame.columns, frame.schema), expected)
    assert reader.bytes_of(request, frame.columns) == reader.ranges(request, frame.columns)[1]


def test_map_columns_are_read() -> None:
    values = [[("a", 1), ("b", None)], [], None, [("c", 3)] * 5] * 60
    store = MemoryStore()
    request = add(
        store, "f", pa.table({"m": pa.array(values, type=pa.map_(pa.string(), pa.int64()))}), [1, 3]
    )
    whole = pl.read_parquet(store.files["f"]).select("m")
    assert_frame_equal(PageReader(store).read([request], ["m"], whole.schema), rows_of(whole, [1, 3]))


@examples(8, sweep=250)
@given(pages=page_sets, columns=st.lists(st.sampled_from(every_type(1).columns), unique=True, min_size=1))
@pytest.mark.parametrize("file", [0, 1])
def test_reader_uses_only_bytes_it_names(file: int, pages: list[int], columns: list[str]) -> None:
    request = _with(REQUESTS[file], pages)
    directory = (request.size_bytes - request.tail_bytes, request.directory_bytes)
    ranges, size = PageReader(STORE).ranges(request, columns)
    named = [*ranges, directory]
    assert size == sum(length for _, length in named)
    zeroed = bytearray(request.size_bytes)
    for start, length in named:
        assert not any(zeroed[start : start + length]), "named once"
        zeroed[start : start + length] = STORE.files[request.path][start : start + length]
    store = MemoryStore()
    store.files[request.path] = bytes(zeroed)
    read = PageReader(store).read([request], columns, FRAMES[file].schema)
    assert_frame_equal(read, rows_of(FRAMES[file], pages, groups=GROUPS[file]).select(columns))
    touched = sum(length for _, _, length in store.read)
    assert touched == size


def test_directory_is_read_once_and_evicted() -> None:
    store = MemoryStore()
    frame = every_type(100)
    requests = [add(store, name, frame, [0]) for name in "abc"]
    reader = PageReader(store, cached_directories=2)
    for order, read in (("ab", 2), ("ab", 0), ("c", 1), ("b", 0), ("a", 1)):
        store.read.clear()
        reader.read([requests["abc".index(name)] for name in order], ["id"], frame.schema)
        starts = {request.path: request.size_bytes - request.tail_bytes for request in requests}
        assert sum(start == starts[path] for path, start, _ in store.read) == read


@examples(5, sweep=300)
@given(pages=page_sets, columns=st.lists(st.sampled_from(every_type(1).columns), unique=True, min_size=1))
@pytest.mark.parametrize("file", [0, 1])
def test_small_objects_are_read_in_one_request(file: int, pages: list[int], columns: list[str]) -> None:
    request, store = _with(REQUESTS[file], pages), MemoryStore(remote=True)
    store.files = STORE.files
    frame = FRAMES[file]
    expected, again = PageReader(STORE).read([request], columns, frame.schema), list[object]()
    for size, whole in ((request.size_bytes, True), (request.size_bytes - 1, False)):
        with resized(whole_file_bytes=size):
            store.read.clear()
            reader = PageReader(store)
            read = reader.read([request], columns, frame.schema)
        assert_frame_equal(read, expected)
        fetched = [(start, length) for _, start, length in store.read]
        store.read.clear()
        assert_frame_equal(reader.read([request], columns, frame.schema), expected)
        again.append(store.read.copy())
        directory = (request.size_bytes - request.tail_bytes, request.directory_bytes)
        assert (fetched == [(0, size)]) if whole else (fetched[0] == directory)
    # Directories are kept, files are not.
    assert again == [[(request.path, *piece) for piece in fetched[1:]]] * 2


def test_whole_files_in_memory_are_bounded_by_bytes() -> None:
    store, frame = MemoryStore(remote=True), every_type(100).select("id", "text")
    requests = [add(store, str(number), frame, [0]) for number in range(12)]
    size = requests[0].size_bytes
    whole = PageReader(store)
    batches = list(whole.read_batches(requests, ["id"], frame.schema, max_bytes=3 * size))
    assert [len(files) for _, files in batches] == [3, 3, 3, 3]
    assert len(store.read) == len(requests)
    with resized(whole_file_bytes=0):
        batches = list(PageReader(store).read_batches(requests, ["id"], frame.schema, max_bytes=3 * size))
    assert len(batches) < 4
    assert len(store.read) >= 3 * len(requests)


def test_damaged_small_object_is_whole() -> None:
    store = MemoryStore(remote=True)
    request = add(store, "f", every_type(100), [0])
    damaged = bytearray(store.files["f"])
    damaged[-request.tail_bytes + 20] ^= 1
    store.files["f"] = bytes(damaged)
    batches = PageReader(store).read_batches([request], ["id"], FRAMES[0].schema, max_bytes=9)
    assert [rows for rows, _ in batches] == [None]


def test_files_of_evolved_tables_fit_the_schema() -> None:
    store = MemoryStore()
    old = pl.DataFrame({"a": pl.Series([1, 2, 3], dtype=pl.Int32), "s": [{"x": 1}] * 3})
    new = pl.DataFrame({"b": ["u", "v"], "a": pl.Series([4, 5], dtype=pl.Int64), "s": [{"x": 1, "y": 2}] * 2})
    requests = [add(store, "old", old, [0]), add(store, "new", new, [0]), add(store, "old again", old, [0])]
    schema = pl.Schema({"a": pl.Int64(), "b": pl.String(), "s": new.schema["s"], "c": pl.Date()})
    reader = PageReader(store)
    read = reader.read(requests, list(schema), schema)
    assert read.schema == schema
    assert read["a"].to_list() == [1, 2, 3, 4, 5, 1, 2, 3]
    assert read["b"].to_list() == [None] * 3 + ["u", "v"] + [None] * 3
    assert read["s"].struct.field("y").to_list() == [None] * 3 + [2, 2] + [None] * 3
    assert reader.read(requests, ["c"], schema)["c"].to_list() == [None] * 8
    assert reader.read(requests, [], schema).shape == (8, 0)
    assert reader.read([], ["a", "b"], schema).schema == {"a": pl.Int64, "b": pl.String}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 3000, 10**9])
def test_batches_are_small_and_complete(max_bytes: int, *, remote: bool) -> None:
    store = MemoryStore(remote=remote)
    frame = every_type(ROWS).drop("text")
    requests = [add(store, str(n), frame, pages) for n, pages in enumerate(([0, 1, 2, 9], [15], range(16)))]
    reader = PageReader(store)
    batches = list(reader.read_batches(requests, frame.columns, frame.schema, max_bytes=max_bytes))
    rows = [rows for rows, _ in batches if rows is not None]
    assert_frame_equal(pl.concat(rows), reader.read(requests, frame.columns, frame.schema))
    read = [(part.path, page) for _, parts in batches for part in parts for page in part.pages.tolist()]
    assert read == [(request.path, page) for request in requests for page in request.pages.tolist()]
    assert len(batches) == (1 if max_bytes == 10**9 else len(batches))
    assert max_bytes > 1 or len(batches) == 4 + 1 + 16


def test_files_without_pages_are_named_in_order() -> None:
    store = MemoryStore()
    frame = pl.DataFrame({"a": range(10)})
    requests = [add(store, name, frame.select(pl.all() + at), [0], 4) for at, name in enumerate("xyz")]
    requests.insert(1, _broken_data(store, add(store, "damaged", frame, [1], 4)))
    end = requests[2].size_bytes - requests[2].tail_bytes + requests[2].directory_bytes
    store.files["y"] = store.files["y"][: end - 1] + b"?" + store.files["y"][end:]
    reader = PageReader(store)
    batches = list(reader.read_batches(requests, ["a"], frame.schema, max_bytes=10**6))
    rows = [pl.Series([-len(read[0].path)]) if rows is None else rows["a"] for rows, read in batches]
    assert pl.concat(rows).to_list() == [0, 1, 2, 3, -7, -1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "changes",
    [
        {"cuts": page_cuts(ROWS - 1, PAGE_ROWS)},
        {"cuts": page_cuts(ROWS, 2 * PAGE_ROWS)},
        {"cuts": page_cuts(ROWS, PAGE_ROWS, groups=2)},
        {"tail_bytes": 0},
        {"tail_bytes": 10**9},
        {"tail_bytes": 20},
        {"directory_bytes": 0},
        {"directory_bytes": 20},
        {"directory_bytes": 10**9},
        {"directory_bytes": -5},
        {"size_bytes": 5000},
        {"pages": [16]},
        {"pages": [-1]},
        {"pages": [2, 1]},
        {"pages": [1, 1]},
        {"pages": []},
    ],
    ids=str,
)
def test_file_that_differs_from_log_is_whole(changes: dict[str, object]) -> None:
    request = _with(REQUESTS[0], **{"pages": [0], **changes})
    reader = PageReader(STORE)
    for call in (
        lambda: reader.read([request], ["id"], FRAMES[0].schema),
        lambda: reader.bytes_of(request, ["id"]),
    ):
        with pytest.raises(PagesUnavailable) as caught:
            call()
        assert caught.value.path == "0"
        assert str(caught.value).startswith("0: ")


def test_flipped_directory_bits_give_no_row() -> None:
    store = MemoryStore()
    request = add(store, "f", every_type(300), [1, 2])
    data, random = store.files["f"], np.random.default_rng(5)
    start = len(data) - request.tail_bytes
    end = start + request.directory_bytes
    for bit in [*range(8 * start, 8 * start + 250), *random.integers(8 * start, 8 * end, 250)]:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        store.files["f"] = bytes(flipped)
        with pytest.raises(PagesUnavailable):
            PageReader(store).read([request], ["id"], FRAMES[0].schema)


def test_missing_and_truncated_files_raise_differently(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"PAR1")
    reader = PageReader(LocalStore(tmp_path))
    with pytest.raises(FileNotFoundError):
        reader.read([_with(REQUESTS[0], [0])], ["id"], FRAMES[0].schema)
    with pytest.raises(PagesUnavailable, match="short"):
        reader.read([_with(REQUESTS[0], [0], path="short")], ["id"], FRAMES[0].schema)


def test_weight_column_can_be_read() -> None:
    schema = pl.Schema({WEIGHT_COLUMN: pl.Int32()})
    read = PageReader(STORE).read([_with(REQUESTS[0], [3])], [WEIGHT_COLUMN], schema)
    assert read[WEIGHT_COLUMN].to_list() == (weights(ROWS)[192:256] >> 16).tolist()


def _with(request: PageRequest, pages: Sequence[int], **changes: object) -> PageRequest:
    names = ("path", "size_bytes", "cuts", "tail_bytes", "directory_bytes")
    values = {name: getattr(request, name) for name in names} | {"pages": pages} | changes
    return PageRequest(**{**values, "pages": np.array(values["pages"], dtype=np.int64)})


def _broken_data(store: MemoryStore, request: PageRequest) -> PageRequest:
    start, length = PageReader(store).ranges(request, ["a"])[0][0]
    data = bytearray(store.files[request.path])
    data[start : start + length] = b"\xff" * length
    store.files[request.path] = bytes(data)
    return request


STORE = MemoryStore()
FRAMES = [every_type(ROWS, seed=1), every_type(ROWS, seed=2)]
GROUPS = (1, 3)
REQUESTS = [
    add(STORE, str(n), frame, [], groups=groups)
    for n, (frame, groups) in enumerate(zip(FRAMES, GROUPS, strict=True))
]
