"""The JVM's index, computed again from its rows: weights, cubes and blocks are where this library says."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.space.values import MAX_WEIGHT
from qbeast_core.table.data.scan import FileScan, scan_files
from qbeast_core.tree.grid import frame_weights
from tests.format.blocks import assert_holds_its_rows
from tests.format.calendars import jvm_points
from tests.format.collection import FAST, Golden, each, load_golden, open_golden

# Rows that no writer of blocks touched: converted files, and those that a plain Delta delete wrote anew.
STAGED = ("convert_delta", "convert_delta_append", "convert_delta_optimize0", "convert_parquet")
STAGED += ("convert_parquet_append", "delta_delete")


@each(lambda golden: golden.weights is not None)
def test_weights_are_sparks_hash_of_indexed_columns(golden: Golden):
    rows = golden.expected
    ours = pl.DataFrame({"id": rows["id"], "ours": frame_weights(rows, golden.indexed)})
    both = golden.weights.join(ours, on="id", how="full")
    assert both.height == rows.height
    (spark,) = set(golden.weights.columns) - {"id"}
    assert both[spark].to_list() == both["ours"].to_list()


@each()
def test_sample_holds_rows_of_low_weight(golden: Golden):
    weights = frame_weights(golden.expected, golden.indexed).astype(np.int64)
    for fraction, ids in golden.samples.items():
        limit = int(fraction * (2**32 - 1) - 2**31)
        assert golden.expected["id"].filter(pl.Series(weights < limit)).to_list() == ids


@each()
def test_plan_holds_every_block_with_its_rows(golden: Golden):
    snapshot, blocks = load_golden(golden), open_golden(golden).blocks()
    counted = snapshot.files.filter(pl.col("revision").is_not_null() & pl.col("num_records").is_not_null())
    sums = dict(blocks.group_by("path").agg(pl.col("element_count").sum()).iter_rows())
    actual = dict(counted.select("path", "num_records").iter_rows())
    assert {path: sums[path] for path in actual} == actual
    table = build_block_table(snapshot.logged_files, snapshot.config.revisions, snapshot.schema)
    assert table.corrupt == ()
    assert sum(len(space.blocks) for space in table.spaces) == blocks.height
    assert all(space.foreign for space in table.spaces)
    assert not table.ours.any()
    assert table.blocks["replicated"].sum() == blocks["replicated"].sum()
    assert snapshot.copies.files.height == blocks.filter("replicated")["path"].n_unique()


@each(fast=FAST)
def test_every_row_is_in_its_block(golden: Golden):
    table, snapshot = open_golden(golden), load_golden(golden)
    revisions = {revision.revision_id: revision for revision in table.revisions}
    blocks = {key[0]: actual for key, actual in table.blocks().partition_by("path", as_dict=True).items()}
    untagged = 0
    for path, file in zip(snapshot.data_paths, snapshot.files.iter_rows(named=True), strict=True):
        if file["revision"] is None:
            untagged += 1
            continue
        actual = blocks[path]
        if file["state"] is not None and file["num_records"] is None:  # compacted: rows above its threshold
            actual = actual.with_columns(pl.lit(MAX_WEIGHT, pl.Int64).alias("max_weight"))
        scan = FileScan(path=path, size_bytes=snapshot.source.store.size(path))
        rows = scan_files(snapshot.data_files, [scan], list(table.schema), table.schema).collect()
        zone = golden.meta.get("jvm_time_zone", "UTC")
        points = jvm_points(rows, revisions[file["revision"]], zone=zone)
        assert_holds_its_rows(actual, points, frame_weights(rows, table.indexed_columns))
        assert file["num_records"] in {rows.height, None}  # compacted files of old have no statistics
    assert bool(untagged) == (golden.name in STAGED)
