"""Hand-made Delta logs, and a plain replay of them by the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
PRICE = {"type": "struct", "fields": [{"name": "price", "type": "double", "nullable": True, "metadata": {}}]}


def features(*writer: str, reader: Iterable[str] = ()) -> dict[str, Any]:
    names = {"readerFeatures": list(reader), "writerFeatures": list(writer)}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}}


def metadata(
    schema: dict[str, Any] | None = None,
    configuration: dict[str, str] | None = None,
    partitions: Iterable[str] = (),
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "5cf1b0c6-2d3a-4b1c-9f57-2ad0a6a0e7b1",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(PRICE if schema is None else schema),
            "partitionColumns": list(partitions),
            "configuration": configuration or {},
            "createdTime": 1,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    base = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": base | fields}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1} | fields}


def write_log(root: Path, *commits: Iterable[dict[str, Any] | str], first: int = 0) -> str:
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, actions in enumerate(commits, start=first):
        # Plain UTF-8: deltalake misreads escaped characters beyond U+1FFFF.
        lines = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in actions]
        (log / f"{version:020d}.json").write_text("".join(f"{line}\n" for line in lines))
    return str(root)


def replay(root: Path | str) -> dict[str, dict[str, Any]]:
    """Return the live adds by path, from the commits alone."""
    live: dict[str, dict[str, Any]] = {}
    for path in sorted((Path(root) / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        live |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return live
