"""The options of a write, and which of them cannot be meant."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.column_stats import ColumnStats
from qbeast_core.table.progress import Progress, ProgressCallback
from qbeast_core.table.schema_match import SchemaMode
from qbeast_core.table.target import Mode, check_mode

__all__ = ["WriteOptions", "check_metadata", "check_options", "check_txn", "metadata_of", "tell"]

_MOST_CHARACTERS: Final = 1 << 20
_MOST_ROWS: Final = 2**31 - 1  # the JVM counts the rows of a cube in 32 bits

# Every commit sets these, but for those that Spark's Delta knows as structs, maps or numbers: a text in one of
# them makes its DESCRIBE HISTORY fail.
_OWN_KEYS: Final = frozenset(
    {
        "engineInfo",
        "inCommitTimestamp",
        "isBlindAppend",
        "isolationLevel",
        "job",
        "notebook",
        "operation",
        "operationMetrics",
        "operationParameters",
        "readVersion",
        "tags",
        "timestamp",
        "txnId",
        "version",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write, as `qbeast.write_table` documents them."""

    columns: Sequence[str] | None = None
    mode: Mode = "error"
    cube_size: int | None = None
    column_stats: ColumnStats | None = None
    schema_mode: SchemaMode | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    dialect: BlocksDialect | None = None
    progress: ProgressCallback | None = None


def tell(options: WriteOptions, progress: Progress) -> None:
    """Report a step to whoever asked for reports."""
    if options.progress is not None:
        options.progress(progress)


def check_options(options: WriteOptions) -> None:
    """Refuse options that cannot be meant, before anything is read.

    Raises
    ------
    InvalidInputError
        Naming the option, its value and what it may be.
    """
    check_mode(options.mode)
    size = cast("object", options.cube_size)  # callers without a type checker pass anything
    if size is not None and not (
        isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _MOST_ROWS
    ):
        msg = (
            f"cube_size must be a whole number of rows, from 1 to {_MOST_ROWS:,}, got {_shown(size)}; nothing was "
            "written"
        )
        raise InvalidInputError(msg, argument="cube_size")
    if options.schema_mode not in (None, "merge", "overwrite"):
        msg = f'schema_mode must be "merge" or "overwrite", got {options.schema_mode!r}; nothing was written'
        raise InvalidInputError(msg, argument="schema_mode")
    if options.schema_mode == "overwrite" and options.mode == "append":
        msg = 'schema_mode="overwrite" needs mode="overwrite"; nothing was written'
        raise InvalidInputError(msg, argument="schema_mode")
    if options.dialect not in (None, "documented", "qbeast-spark"):
        msg = f'dialect must be "documented" or "qbeast-spark", got {options.dialect!r}; nothing was written'
        raise InvalidInputError(msg, argument="dialect")
    check_txn(options.txn)
    check_metadata(options.commit_metadata)


def check_txn(txn: object) -> None:
    """Refuse a transaction that no Delta log can hold.

    Raises
    ------
    InvalidInputError
        If it is no pair of an application's id, a text, and a version, a whole number from 0 to 2**63 - 1.
    """
    match txn:
        case None:
            return
        case (str(app), int(version)) if app and not isinstance(version, bool) and 0 <= version < 2**63:
            if _is_text(app):
                return
        case _:
            pass
    msg = (
        f"txn must be (application id, version), a text and a whole number below 2**63, got {_shown(txn)}; nothing "
        "was written"
    )
    raise InvalidInputError(msg, argument="txn")


def metadata_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return `commit_metadata` as a call was given it, checked.

    Raises
    ------
    InvalidInputError
        As `check_metadata`.
    """
    if given is not None and not isinstance(cast("object", given), Mapping):
        msg = f"commit_metadata maps texts to texts, got {_shown(given)}. Nothing was written."
        raise InvalidInputError(msg, argument="commit_metadata")
    metadata = dict(given or {})
    check_metadata(metadata)
    return metadata


def check_metadata(metadata: Mapping[Any, Any]) -> None:
    """Refuse what would spoil the entry in the history: other engines read its known keys by type.

    Raises
    ------
    InvalidInputError
        If a key or a value is no text, or no Unicode (half a surrogate pair), if a key is one that every commit sets,
        or that others read as no text, or if all of it is longer than 1 MiB, which every reader of the log would
        read.
    """
    for key, value in metadata.items():
        if not _is_text(key) or not _is_text(value) or key in _OWN_KEYS:
            msg = (
                f"commit_metadata maps texts to texts, and may not use {sorted(_OWN_KEYS)}; got {_shown(key)}: "
                f"{_shown(value)}. Nothing was written."
            )
            raise InvalidInputError(msg, argument="commit_metadata")
    length = sum(len(key) + len(value) for key, value in metadata.items())
    if length > _MOST_CHARACTERS:
        msg = (
            f"commit_metadata has {length:,} characters, more than {_MOST_CHARACTERS:,}, which every reader of the log "
            "would read. Nothing was written. Store it elsewhere, and its address here."
        )
        raise InvalidInputError(msg, argument="commit_metadata")


def _is_text(given: object) -> bool:
    """Tell whether this is text that UTF-8 can spell: half a surrogate pair is none."""
    if not isinstance(given, str):
        return False
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(given: object) -> str:
    return reprlib.repr(given)
