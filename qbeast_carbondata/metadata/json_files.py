"""The JSON files of a table: table status, ``.segment`` files, update status and delete deltas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from qbeast_carbondata.damage import damaged

_READABLE: Final = frozenset(
    {"success", "partial success", "marked for update", "streaming", "streaming finish", "update"}
)
_OLD_TIMES: Final = ("%d-%m-%Y %H:%M:%S:%f", "%d-%m-%Y %H:%M:%S")
_LAST_MS: Final = 253_402_300_799_999  # of the year 9999
# Statuses of a block whose rows are all gone.
DEAD_BLOCK: Final = frozenset({"Compacted", "Marked for Delete"})

_MAX_BYTES: Final = 1 << 28
_T = TypeVar("_T")
_Stamp = Annotated[str, Field(pattern=r"^[0-9]{0,18}$")]
_Row = Annotated[int, Field(ge=0, lt=2**31)]


def _time_ms(text: str) -> int | None:
    """Return a time in ms since 1970 UTC, None where the text is not a time; one without a zone counts as UTC.

    >>> _time_ms("1795243974052"), _time_ms("21-11-2016 08:00:00"), _time_ms("NA")
    (1795243974052, 1479715200000, None)
    >>> _time_ms("1795244633084000")  # 1.6 may write the begin of a load in us
    1795244633084
    """
    if text.isascii() and text.isdecimal() and len(text) < 19:
        ms = int(text) if int(text) <= _LAST_MS else int(text) // 1000
        return ms if ms <= _LAST_MS else None
    for form in _OLD_TIMES:
        try:
            return round(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    return None


_TEXT: Final = TypeAdapter(str, config=ConfigDict(coerce_numbers_to_str=True))
_Time = Annotated[int | None, BeforeValidator(lambda value: _time_ms(_TEXT.validate_python(value)))]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class Load(_Model):
    """An entry of ``tablestatus``: a segment and its status."""

    # Id of the segment: `"0"`, `"0.1"`.
    name: str = Field(alias="loadName")
    # As written: `"Success"`, `"Marked for Delete"` ...
    status: str = Field(alias="loadStatus")
    # When the load began and ended, in ms since 1970 UTC.
    start_ms: _Time = Field(None, alias="loadStartTime")
    end_ms: _Time = Field(None, alias="timestamp")
    # Id of the segment that it was compacted into.
    merged_into: str | None = Field(None, alias="mergedLoadName")
    visibility: str = "true"
    # Times of the first and the last update that counts.
    update_start: str = Field("", alias="updateDeltaStartTimestamp")
    update_end: str = Field("", alias="updateDeltaEndTimestamp")
    # The live update status, in the first entry.
    update_status_file: str = Field("", alias="updateStatusFileName")
    segment_file: str = Field("", alias="segmentFile")
    # The format of its files: `"columnar_v3"`, `"row_v1"`, or that of an added segment, lower case.
    kind: Annotated[str, StringConstraints(to_lower=True)] = Field("columnar_v3", alias="fileFormat")

    @property
    def is_visible(self) -> bool:
        """Whether its rows belong to the table."""
        return self.status.lower() in _READABLE and self.visibility.lower() != "false"

    @property
    def order(self) -> tuple[int, tuple[int, ...], str]:
        """Sort key: begin, then id."""
        parts = (part if part.isdecimal() and len(part) < 19 else "0" for part in self.name.split("."))
        return self.start_ms or 0, tuple(map(int, parts)), self.name


class SegmentFolder(_Model):
    """A folder in a ``.segment`` file, and the files of the segment in it."""

    files: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    status: str = "Success"
    merge_file: str | None = Field(None, alias="mergeFileName")
    is_relative: bool = Field(default=True, alias="isRelative")


class SegmentFile(_Model):
    """A ``.segment`` file: `locations` by folder."""

    locations: Mapping[str, SegmentFolder] = Field(alias="locationMap")


class UpdatedBlock(_Model):
    """An entry of the update status: a block and the delete deltas that count."""

    segment: str = Field(alias="segmentName")
    block: str = Field(alias="blockName")
    status: str | None = Field(None, alias="segmentStatus")
    start: _Stamp = Field("", alias="deleteDeltaStartTimestamp")
    end: _Stamp = Field("", alias="deleteDeltaEndTimestamp")
    stamps: tuple[_Stamp, ...] | None = Field(None, alias="deltaFileStamps")
    deleted_rows: _Stamp = Field("0", alias="deletedRowsInBlock")

    @model_validator(mode="after")
    def _check(self) -> UpdatedBlock:
        """Raise where deleted rows would come back."""
        if self.status in DEAD_BLOCK:
            return self
        if bool(self.start) != bool(self.end):
            msg = f"block {self.block!r} does not name the delete deltas that count"
            raise ValueError(msg)
        if not self.start and self.deleted_rows.strip("0"):
            msg = f"block {self.block!r} has {self.deleted_rows} deleted rows and no delete delta"
            raise ValueError(msg)
        return self


class DeletedPageRows(_Model):
    """Deleted rows of a page, counted from 0."""

    blocklet: int = Field(alias="id", ge=0)
    page: int = Field(alias="pageId", ge=0)
    rows: tuple[_Row, ...] = Field(alias="deletedRows")


class DeleteDelta(_Model):
    """A ``.deletedelta`` file, in its older or its newer form."""

    listed: tuple[DeletedPageRows, ...] = Field((), alias="blockletDetails")
    mapped: Mapping[str, DeletedPageRows] = Field(
        default_factory=dict[str, DeletedPageRows], alias="blockletDetailsMap"
    )

    @property
    def pages(self) -> tuple[DeletedPageRows, ...]:
        """The pages of either form."""
        return (*self.listed, *self.mapped.values())


def _reader(kind: TypeAdapter[_T]) -> Callable[[bytes], _T]:
    """Return a function that reads a file; an empty file is an empty list."""

    def read(data: bytes) -> _T:
        if len(data) > _MAX_BYTES:
            damaged(f"it has {len(data)} bytes; the maximum is {_MAX_BYTES}")
        try:
            return kind.validate_json(data or b"[]")
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            damaged(f"{where}: {first['msg']}" if where else first["msg"])
        except RecursionError:
            damaged("it is nested too deeply")

    return read


read_table_status: Final = _reader(TypeAdapter(tuple[Load, ...]))
read_update_status: Final = _reader(TypeAdapter(tuple[UpdatedBlock, ...]))
read_segment_file: Final = _reader(TypeAdapter(SegmentFile))
read_delete_delta: Final = _reader(TypeAdapter(DeleteDelta))
