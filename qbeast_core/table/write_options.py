"""The options of a write, and which of them cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.column_stats import ColumnStats
from qbeast_core.table.progress import Progress, ProgressCallback
from qbeast_core.table.schema_match import SchemaMode
from qbeast_core.table.target import Mode, check_mode

__all__ = ["WriteOptions", "check_metadata", "check_options", "tell"]

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
    storage_options: Mapping[str, str] | None = None
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
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        msg = f"cube_size must be a whole number of rows, at least 1, got {size!r}; nothing was written"
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
    _check_txn(options.txn)
    check_metadata(options.commit_metadata)


def _check_txn(txn: object) -> None:
    match txn:
        case None:
            return
        case (str(app), int(version)) if app and version >= 0:
            return
        case _:
            msg = f"txn must be (application id, version), got {txn!r}; nothing was written"
            raise InvalidInputError(msg, argument="txn")


def check_metadata(metadata: Mapping[Any, Any]) -> None:
    """Refuse what would spoil the entry in the history: other engines read its known keys by type.

    Raises
    ------
    InvalidInputError
        If a key or a value is no text, or a key is one that every commit sets, or that others read as no text.
    """
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str) or key in _OWN_KEYS:
            msg = (
                f"commit_metadata maps texts to texts, and may not use {sorted(_OWN_KEYS)}; got {key!r}: {value!r}. "
                "Nothing was written."
            )
            raise InvalidInputError(msg, argument="commit_metadata")
