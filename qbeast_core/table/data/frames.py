"""The frames that qbeast accepts, as Polars frames or as batches of a query in little memory."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Condition, Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import polars as pl

from qbeast_core.errors import InvalidInputError, QbeastError, SchemaMismatchError, shown_cause
from qbeast_core.log.schema import unknown_types
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import SCANS, first_line
from qbeast_core.table.data.schema import refuse_names

if TYPE_CHECKING:
    import pyarrow as pa
    from polars._typing import PolarsDataType
    from typing_extensions import TypeIs


_WIDER: Final[dict[pl.DataType, pl.DataType]] = {
    pl.UInt8(): pl.Int16(),
    pl.UInt16(): pl.Int32(),
    pl.UInt32(): pl.Int64(),
    pl.UInt64(): pl.Int64(),
    pl.Float16(): pl.Float32(),
}

_INDEX: Final = "__index_level_"

# A panic is not an `Exception`.
_POLARS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)

_MAX_CHARACTERS: Final = 300


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that hands over an Arrow C stream: pyarrow, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream as a PyCapsule."""
        ...


# What a write takes; a `pandas.DataFrame` is an `ArrowStream`.
FrameLike: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowStream


def to_frame(data: FrameLike) -> pl.DataFrame:
    """Return `data` as a Polars frame of types that a Delta table can hold.

    Categoricals become strings, unsigned integers the next wider signed ones, timestamps microseconds
    (zoned ones in UTC). The rows and their order stay.

    >>> to_frame(pl.DataFrame({"a": pl.Series([1], dtype=pl.UInt8)})).dtypes
    [Int16]
    """
    frame = _collect(data)
    schema = frame.schema  # once: Polars makes it anew each time
    if not schema:
        msg = "the rows have no column. Give at least one column."
        raise InvalidInputError(msg, argument="df")
    refuse_names(schema, argument="df")
    wanted = {name: replaced_types(dtype, _stored) for name, dtype in schema.items()}
    # A column of nulls takes the type that the table has; a new table refuses it.
    problems = [
        f"column {name!r} has type {schema[name]}"
        for name, dtype in wanted.items()
        if any(inner != pl.Null for _, inner in unknown_types({name: dtype}))
    ]
    if problems:
        raise _unstorable(problems)
    changed = {name: dtype for name, dtype in wanted.items() if schema[name] != dtype}
    return _cast(frame, changed) if changed else frame


def _collect(data: object) -> pl.DataFrame:
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        with reading_rows():
            return data.collect()
    if isinstance(data, ArrowStream) and not isinstance(data, pl.Series):
        return _from_stream(data)
    kind = f"{type(data).__module__}.{type(data).__name__}"
    message = (
        "`df` must be rows: a Polars or pandas frame, or anything with __arrow_c_stream__ (pyarrow Table, "
        f"RecordBatchReader, DuckDB relation), not a {kind}{_made_rows(data)}"
    )
    raise InvalidInputError(message, argument="df", value=kind)


@contextmanager
def reading_rows() -> Generator[None]:
    """Translate the errors of a query, a reader or a file that provides rows. Those of the user's own code pass."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    try:
        yield
    except (*_POLARS, pa.ArrowException, OSError) as error:
        if isinstance(error, QbeastError):
            raise
        cause = _text_of(error)
        msg = f"the rows cannot be read: {cause}. Fix the query or the file that they come from."
        raise InvalidInputError(msg, argument="df") from shown_cause(error)


def opened(data: ArrowStream) -> pa.RecordBatchReader:
    """Return a reader of rows."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    try:
        return pa.RecordBatchReader.from_stream(data)
    except Exception as error:  # noqa: BLE001 -- the rows may be of any library
        cause = _text_of(error)
        msg = f"the rows cannot be opened: {cause}. Pass rows that were not closed or used up."
        raise InvalidInputError(msg, argument="df") from shown_cause(error)


def _text_of(error: Exception) -> str:
    text, _, _ = first_line(str(error)).partition(". Detail: ")  # pyarrow appends a traceback
    return text.removesuffix(".")[:_MAX_CHARACTERS]


def _made_rows(data: object) -> str:
    """Return how a frame is made of what was given, where it is one of the usual mistakes."""
    match data:
        case pl.Series() | dict() | list():
            return ". Make a frame of it: pl.DataFrame(...)."
        case str() | os.PathLike():
            name = str(os.fspath(data))
            _, scan = SCANS.get(Path(name.removesuffix(".gz")).suffix.lower(), SCANS[".parquet"])
            return f". To read files, give pl.{scan}({name!r})."
        case None:
            return ". Did the query before return what it made?"
        case _ if is_spark_frame(data):
            return ". Open the table with qbeast_spark_bridge.open_table(spark, path)."
        case _:
            return ""


def _from_stream(data: ArrowStream) -> pl.DataFrame:
    frame, problems, noted = _from_pandas(data) if is_pandas(data) else _from_arrow(data)
    if problems:
        raise _unstorable(problems)
    # pandas passes its index as one more column; to keep it, users reset it first.
    return frame.drop([name for name in frame.columns if name.startswith(_INDEX) and name.encode() in noted])


def _from_arrow(data: ArrowStream) -> tuple[pl.DataFrame, list[str], bytes]:
    """Return what `frame_of` returns, and the notes of pandas about the columns."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    from qbeast_core.support.arrow import frame_of  # noqa: PLC0415 - loads pyarrow

    table: Any = data
    if not isinstance(data, pa.Table):
        with opened(data) as reader, reading_rows():
            table = reader.read_all()
    _refuse_doubled(table.column_names)
    return *frame_of(table), (table.schema.metadata or {}).get(b"pandas", b"")


def _from_pandas(data: Any) -> tuple[pl.DataFrame, list[str], bytes]:
    _refuse_doubled([str(name) for name in data.columns])
    try:
        return pl.DataFrame(data), [], b""
    # The errors depend on the type that cannot be read.
    except (*_POLARS, ArithmeticError, NotImplementedError, TypeError, ValueError):
        from qbeast_core.support.arrow import frame_of_pandas  # noqa: PLC0415 - loads pyarrow

        return *frame_of_pandas(data), b""


def is_pandas(data: object) -> bool:
    """Return whether `data` is a pandas DataFrame."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)


def _refuse_doubled(names: Sequence[str]) -> None:
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        shown = ", ".join(map(repr, doubled))
        msg = f"several columns have the same name: {shown}. Rename them."
        raise InvalidInputError(msg, argument="df")


def _unstorable(problems: Sequence[str]) -> SchemaMismatchError:
    what = f"{len(problems)} column(s) cannot be stored in a Delta table: {'; '.join(problems)}"
    return SchemaMismatchError(f"{what}. Cast or drop them.", problems=problems)


def replaced_types(dtype: PolarsDataType, replacement: Callable[[pl.DataType], pl.DataType]) -> pl.DataType:
    """Return a type in which each inner type that is not nested is replaced; arrays become lists.

    >>> replaced_types(pl.Array(pl.UInt8, 3), lambda _: pl.Int16())
    List(Int16)
    """
    match dtype:
        case pl.List() | pl.Array():
            return pl.List(replaced_types(dtype.inner, replacement))
        case pl.Map():
            return pl.Map(replaced_types(dtype.key, replacement), replaced_types(dtype.value, replacement))
        case pl.Struct():
            return pl.Struct({field.name: replaced_types(field.dtype, replacement) for field in dtype.fields})
        case _:
            return replacement(dtype if isinstance(dtype, pl.DataType) else dtype())


def _stored(dtype: pl.DataType) -> pl.DataType:
    match dtype:
        case pl.Categorical() | pl.Enum():
            return pl.String()
        case pl.Datetime():
            return pl.Datetime("us", "UTC" if dtype.time_zone else None)
        case pl.Decimal():
            return pl.Decimal(dtype.precision or 38, dtype.scale)
        case _:
            return _WIDER.get(dtype, dtype)


def _cast(frame: pl.DataFrame, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    columns = {name: _stored_column(frame.get_column(name), dtype) for name, dtype in wanted.items()}
    lost = [name for name, column in columns.items() if column is None]
    problems = [f"column {name!r} has {frame[name].dtype} that {wanted[name]} cannot hold" for name in lost]
    if problems:
        what = f"values do not fit the types that Delta has for their columns: {'; '.join(problems)}"
        msg = f"{what}. Drop or change them."
        raise SchemaMismatchError(msg, problems=problems)
    return frame.with_columns(column for column in columns.values() if column is not None)


def _stored_column(column: pl.Series, wanted: pl.DataType) -> pl.Series | None:
    """Return the column in the type it is stored in; None: a value has no place there."""
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC")
    if not column.dtype.is_nested():
        # A strict cast would print the values that fail, and cannot where the calendar has no such year.
        cast = column.cast(wanted, strict=False)
        return cast if cast.null_count() == column.null_count() else None
    try:
        return column.cast(wanted)
    # It panics while it prints values.
    except (pl.exceptions.InvalidOperationError, pl.exceptions.PanicException):
        return None


class SparkFrame(Protocol):
    """A ``pyspark.sql.DataFrame``, of a classic session or of Spark Connect."""

    @property
    def mapInArrow(self) -> Callable[..., Any]:  # noqa: N802 -- the name PySpark gives it
        """Rows made of these rows, batch by batch."""
        ...

    @property
    def sparkSession(self) -> Any:  # noqa: N802 -- the name PySpark gives it
        """The session that the rows belong to."""
        ...


def is_spark_frame(data: object) -> TypeIs[SparkFrame]:
    """Return whether `data` is a PySpark DataFrame.

    >>> is_spark_frame([1, 2])
    False
    """
    names = [(kind.__module__, kind.__name__) for kind in type(data).__mro__]
    return any(module.startswith("pyspark.sql.") and name == "DataFrame" for module, name in names)


_JOIN_SECONDS: Final = 2.0

# Takes a frame, and returns whether no more are wanted.
_Put: TypeAlias = Callable[[pl.DataFrame | None], bool]

_FIRST_ROWS: Final = 1 << 14
_GROWTH: Final = 32  # of one slice after the other
_OTHER_SOURCES: Final = re.compile(r"(\d+) other sources\]")

_ARROW_ROWS: Final = 65_536

_READ_AHEAD: Final = "POLARS_ROW_GROUP_PREFETCH_SIZE"
_LOCK: Final = Lock()
_users: list[None] = []  # queries that run with little read-ahead


def batches_within(lazy: pl.LazyFrame, *, size_bytes: int) -> Generator[pl.DataFrame]:
    """Yield the rows of a query in frames of about `size_bytes`, as far as there are rows; none is empty.

    Polars chooses how many rows it computes at once: a number of rows would be joined, whatever their size.

    >>> [batch.height for batch in batches_within(pl.LazyFrame({"a": range(10)}), size_bytes=32)]
    [4, 4, 2]
    """
    waiting: list[pl.DataFrame] = []
    waiting_bytes = 0
    for batch in query_batches(lazy):
        waiting.append(batch)
        waiting_bytes += int(batch.estimated_size())
        if waiting_bytes >= size_bytes // 2:
            yield from within(pl.concat(waiting, rechunk=False), size_bytes)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield from within(pl.concat(waiting, rechunk=False), size_bytes)


def within(frame: pl.DataFrame, size_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a frame in slices of `size_bytes`, approximately; nothing is copied."""
    if frame.height:
        row_bytes = max(frame.estimated_size() / frame.height, 1.0)
        yield from frame.iter_slices(max(int(size_bytes / row_bytes), 1))


@contextmanager
def little_read_ahead() -> Generator[None]:
    """Let Polars read only one row group ahead in scans that start in this block, instead of hundreds of megabytes.

    Polars has no option of a query for it, only an environment variable. A value that the user set stays.
    """
    with _LOCK:
        is_set = not _users and _READ_AHEAD in os.environ
        if not is_set:
            _users.append(None)
            os.environ[_READ_AHEAD] = "1"
    try:
        yield
    finally:
        with _LOCK:
            if not is_set:
                _users.pop()
                if not _users:
                    os.environ.pop(_READ_AHEAD, None)


def takes_slices(lazy: pl.LazyFrame) -> bool:
    """Return whether a slice of a query reads only its rows: the query selects columns of a few local Parquet files.

    >>> pl.DataFrame({"x": [1, 2]}).write_parquet("x.parquet")
    >>> rows = pl.scan_parquet("x.parquet")
    >>> takes_slices(rows.select(pl.col("x") + 1)), takes_slices(rows.filter(pl.col("x") > 1))
    (True, False)
    """
    plan = lazy.slice(1, 1).explain()
    others = _OTHER_SOURCES.search(plan)
    return (
        plan.count("SCAN [") == plan.count("Parquet SCAN [") == plan.count("SLICE: Positive") == 1
        and not any(text in plan for text in ("SLICE[", "SELECTION:", "://"))
        and (others is None or int(others[1]) < sizing().max_sliced_sources)
    )


def has_any_width(dtype: pl.DataType) -> bool:
    """Return whether values of a type have no fixed size."""
    return dtype.is_nested() or isinstance(dtype, pl.String | pl.Binary)


def slices_within(lazy: pl.LazyFrame, *, size_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a query in order, read as slices of about `size_bytes`.

    Polars reads many row groups of a scan ahead, whatever the size of the batches. A slice limits them. Rows of any
    size are first read alone: a few may fill the memory.

    >>> [frame.height for frame in slices_within(pl.LazyFrame({"a": range(50_000)}), size_bytes=240_000)]
    [16384, 30000, 3616]
    >>> [frame.height for frame in slices_within(pl.LazyFrame({"a": ["text"] * 50_000}), size_bytes=1 << 20)]
    [1, 32, 1024, 32768, 16175]
    """
    grows = any(map(has_any_width, lazy.collect_schema().dtypes()))
    first, rows = 0, 1 if grows else _FIRST_ROWS
    while True:
        frame = lazy.slice(first, rows).collect(engine="streaming")
        if frame.height:
            yield frame
        if frame.height < rows:
            return
        first += rows
        fitting = max(int(size_bytes * rows / max(frame.estimated_size(), 1)), 1)
        rows = min(fitting, rows * _GROWTH)


def arrow_stream(lazy: pl.LazyFrame) -> pa.RecordBatchReader:
    """Return the rows of a query as Arrow batches. A few batches are in memory at a time.

    Strings are ``large_string``, which all Arrow libraries support.

    >>> arrow_stream(pl.LazyFrame({"a": [1, 2]})).read_all().to_pylist()
    [{'a': 1}, {'a': 2}]
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    schema = _arrow(pl.DataFrame(schema=lazy.collect_schema())).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in query_batches(lazy, batch_rows=_ARROW_ROWS):
            yield from _arrow(frame).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def query_batches(lazy: pl.LazyFrame, *, batch_rows: int | None = None) -> Generator[pl.DataFrame]:
    """Yield the rows of a query in order, all of them or an error. By default Polars chooses the size of the batches.

    `LazyFrame.collect_batches` ends without an error where a decoder panics; this raises the panic.

    >>> [batch.height for batch in query_batches(pl.LazyFrame({"a": range(5)}), batch_rows=2)]
    [2, 2, 1]
    """
    yield from _handed_over(
        lambda put: lazy.sink_batches(put, chunk_size=batch_rows, maintain_order=True), size_bytes=0
    )


def ahead(frames: Generator[pl.DataFrame], *, size_bytes: int) -> Generator[pl.DataFrame]:
    """Yield frames that a thread makes while the caller uses earlier ones. At least one waits, or `size_bytes` of them.

    >>> [frame.height for frame in ahead((pl.DataFrame({"a": range(n)}) for n in (1, 2)), size_bytes=0)]
    [1, 2]
    """

    def make(put: _Put) -> None:
        with closing(frames):
            any(map(put, frames))

    yield from _handed_over(make, size_bytes=size_bytes)


def _handed_over(make: Callable[[_Put], object], *, size_bytes: int) -> Generator[pl.DataFrame]:
    """Yield what a thread makes, or raise its error. A caller that stops ends the thread."""
    waiting = _Waiting(size_bytes)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            make(waiting.put)
        except BaseException as error:  # noqa: BLE001 -- a panic is not an `Exception`; raised below
            failures.append(error)
        finally:
            waiting.put(None)  # the end

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while (frame := waiting.get()) is not None:
            if frame.height:
                yield frame
        if failures:
            raise failures[0]
    finally:
        waiting.stop()
        # The garbage collector may end an abandoned query in a thread that the query needs: do not wait for ever. A
        # process that ends has stopped its threads.
        if thread is not current_thread() and not sys.is_finalizing():
            thread.join(_JOIN_SECONDS)


class _Waiting:
    """Frames between two threads: one, or more of at most `size_bytes` together."""

    def __init__(self, size_bytes: int) -> None:
        self._limit, self._size_bytes = size_bytes, 0
        self._frames = deque[pl.DataFrame | None]()
        self._changed, self._is_stopped = Condition(), False

    def put(self, frame: pl.DataFrame | None) -> bool:
        """Add a frame when there is room, None at the end. Return whether the other thread has stopped."""
        size = _size_of(frame)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or not self._frames or self._size_bytes + size <= self._limit
            )
            if not self._is_stopped:
                self._frames.append(frame)
                self._size_bytes += size
                self._changed.notify_all()
            return self._is_stopped

    def get(self) -> pl.DataFrame | None:
        """Return the next frame when there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames)
            frame = self._frames.popleft()
            self._size_bytes -= _size_of(frame)
            self._changed.notify_all()
            return frame

    def stop(self) -> None:
        """Forget the frames, and let the other thread stop."""
        with self._changed:
            self._is_stopped = True
            self._frames.clear()
            self._changed.notify_all()


def _size_of(frame: pl.DataFrame | None) -> int:
    return 0 if frame is None else int(frame.estimated_size())
