"""Tables with liquid clustering, written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from tests.helpers.handmade_log import add, features, metadata, write_log
from tests.helpers.row_ids import domain, fields_of


def clustered(
    path: Path, rows: pl.DataFrame, by: list[str], *, liquid: int, configuration: dict[str, str] | None = None
) -> str:
    """Write rows in four files; liquid clustering wrote the first `liquid` of them."""
    path.mkdir(parents=True, exist_ok=True)
    commit = [
        features("clustering", "domainMetadata"),
        metadata({"type": "struct", "fields": fields_of(rows)}, configuration),
        domain("delta.clustering", {"clusteringColumns": [[name] for name in by]}),
    ]
    size = -(-rows.height // 4)
    for number, part in enumerate(rows.iter_slices(size)):
        name = f"part-{number}.parquet"
        part.write_parquet(path / name)
        provider = {"clusteringProvider": "liquid", "tags": {"ZCUBE_ID": "z"}} if number < liquid else {}
        stats = json.dumps({"numRecords": part.height})
        commit.append(add(name, size=(path / name).stat().st_size, stats=stats, **provider))
    return write_log(path, commit)
