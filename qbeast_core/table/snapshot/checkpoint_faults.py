"""Faults of checkpoints, and of the hint to the newest one. A log is read without them if it has the commits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, QbeastWarning, StorageError
from qbeast_core.io.stores.store import Store
from qbeast_core.support.runtime import caller_stacklevel
from qbeast_core.table.data.footers import stored_size
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.snapshot.log_files import (
    LAST_CHECKPOINT,
    checkpoint_parts,
    complete_checkpoints,
)

_NEEDED: Final = ("protocol", "metaData")
_READ: Final = ("add", "remove", "txn", "domainMetadata", *_NEEDED)


class CheckpointFault(NamedTuple):
    """A hint, or a checkpoint, that cannot be right: its files, the first for messages, and the problem."""

    paths: tuple[str, ...]
    problem: str


def checkpoint_faults(store: Store) -> list[CheckpointFault]:
    """Read the hint and all complete checkpoints, and return their faults."""
    counts: dict[int, Counter[str] | None] = {}
    faults: list[CheckpointFault] = []
    for checkpoint in complete_checkpoints(store.list(LOG_DIRECTORY), version=None):
        try:
            count = _counted(checkpoint_parts(store, checkpoint.paths, _READ))
        except FileNotFoundError as error:
            # Otherwise it was cleaned up.
            if all(stored_size(store, path) is not None for path in checkpoint.paths):
                faults.append(CheckpointFault(checkpoint.paths, f"a file that it needs is missing: {error}"))
        except (InvalidMetadataError, StorageError, ValueError) as error:
            faults.append(CheckpointFault(checkpoint.paths, f"it cannot be read: {error.__cause__ or error}"))
        else:
            counts[checkpoint.version] = count
    problem = _hint_problem(store, counts)
    return faults if problem is None else [CheckpointFault((LAST_CHECKPOINT,), problem), *faults]


def warn_of_faults(store: Store) -> None:
    """Warn that a log is read without what is broken."""
    faults = checkpoint_faults(store)
    if not faults:
        return
    shown = "; ".join(f"{fault.paths[0]}: {fault.problem}" for fault in faults[:3])
    message = (
        f"the log of {store.uri} is read without broken parts, from its commits ({shown}). No row is lost, but other "
        "engines may fail. Table.repair() replaces them."
    )
    warnings.warn(message, QbeastWarning, stacklevel=caller_stacklevel())


def _counted(parts: Iterable[pl.DataFrame | bytes]) -> Counter[str] | None:
    """Count the actions of a checkpoint by kind; None: sidecars have some. Raise `ValueError` if it is not whole."""
    count: Counter[str] = Counter()
    for part in parts:
        if isinstance(part, bytes):
            count.update(kind for line in part.splitlines() for kind in orjson.loads(line))
            continue
        count["all"] += part.height
        for kind in part.columns:
            fields = part[kind].struct.unnest() if part.schema[kind] == pl.Struct else pl.DataFrame()
            count[kind] += (
                fields.filter(pl.any_horizontal(pl.all().is_not_null())).height if fields.width else 0
            )
    missing = [kind for kind in _NEEDED if not count[kind]]
    if missing:
        msg = f"it has no {' and no '.join(missing)}"
        raise ValueError(msg)
    return None if count["sidecar"] or count["checkpointMetadata"] else count


def _hint_problem(store: Store, counts: Mapping[int, Counter[str] | None]) -> str | None:
    try:
        hint: Any = orjson.loads(store.get(LAST_CHECKPOINT))
    except FileNotFoundError:
        return None
    except (StorageError, ValueError) as error:
        return f"the hint to the newest checkpoint cannot be read: {error}"
    version = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(version, int):
        return "the hint to the newest checkpoint names no version"
    if version not in counts:
        return f"the hint names version {version}, which has no checkpoint that can be read"
    count = counts[version]
    for field, kind in (("size", "all"), ("numOfAddFiles", "add")):
        if count is not None and hint.get(field) not in {None, count[kind]}:
            return f"the hint has {field} {hint[field]!r}, and the checkpoint has {count[kind]}"
    return None
