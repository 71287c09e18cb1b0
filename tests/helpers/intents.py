"""Changes to small tables, for tests of commits: files with one block each, indexed by one linear column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from qbeast_core.io.location import Location, open_store
from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile, Metadata, file_stats
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot

SCHEMA = schema_to_delta(pl.Schema({"price": pl.Float64}))
METADATA = Metadata(id="33aa5d3a-68d2-4f0e-8d7c-5d3b1ad9b2f0", schema_string=SCHEMA, created_time=1)


def revision(high: float = 100.0, *, column: str = "price", number: int = 1) -> Revision:
    transformer = {
        "className": "io.qbeast.core.transform.LinearTransformer",
        "columnName": column,
        "dataType": "DoubleDataType",
    }
    space = {
        "className": "io.qbeast.core.transform.LinearTransformation",
        "minNumber": 0.0,
        "maxNumber": high,
        "nullValue": 1.0,
        "orderedDataType": "DoubleDataType",
    }
    return Revision.from_json(
        json.dumps(
            {
                "revisionID": number,
                "timestamp": 1000,
                "tableID": "t",
                "desiredCubeSize": 100,
                "columnTransformers": [transformer],
                "transformations": [space],
            },
            separators=(",", ":"),
        )
    )


def block(cube: str = "", low: int = -(2**31), high: int = 2**31 - 1, rows: int = 1) -> Block:
    return Block(cube, low, high, rows)


def data_file(
    store: Store, name: str, values: Sequence[float] = (1.0,), blocks: Sequence[Block] | None = (block(),)
) -> AddFile:
    frame = pl.DataFrame({"price": values}, schema={"price": pl.Float64})
    assert store.local_root is not None
    Path(store.local_root).mkdir(parents=True, exist_ok=True)
    frame.write_parquet(store.local_root / name)
    return AddFile(
        path=name,
        size=store.size(name),
        modification_time=1,
        stats=file_stats(frame),
        tags={"qbeast.rules": "1"},
        blocks=None if blocks is None else tuple(blocks),
    )


def create(root: Path | str, **changes: object) -> Snapshot:
    """Create a table of one file, `first.parquet`, in revision 1."""
    store = open_store(str(root))
    fields = {"adds": (data_file(store, "first.parquet"),), "revision": revision(), "new_revision": True}
    intent = WriteIntent(**{"mode": "create", "metadata": METADATA, **fields, **changes})
    outcome = commit(store, Snapshot.empty(Location.of(root)), intent)
    assert outcome.snapshot is not None
    return outcome.snapshot


def append(snapshot: Snapshot, name: str, **changes: object) -> CommitOutcome:
    """Append a file in the table's newest revision, planned on `snapshot`."""
    store = open_store(snapshot.uri)
    fields = {"adds": (data_file(store, name),), "revision": snapshot.config.latest}
    return commit(store, snapshot, WriteIntent(**{"mode": "append", **fields, **changes}))


def revisions_of(root: Path | str) -> dict[str, int | None]:
    return dict(load_snapshot(root).files.select("path", "revision").iter_rows())
