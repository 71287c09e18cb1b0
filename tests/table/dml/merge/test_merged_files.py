"""Rows of a source that wait by the file they match in are loaded once for it, whatever batches its rows come in."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from unittest import mock

import polars as pl

import qbeast
from qbeast_core.io.stores.store import open_store
from qbeast_core.table.dml.merge import rules as merge_rules
from qbeast_core.table.dml.merge.clauses import Clauses
from qbeast_core.table.dml.merge.rules import MergedFiles, MergeRules
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.engine.tasks.added_rows import store_rows
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"row": range(90)}).with_columns(a=pl.col("row") * 2)


def test_source_rows_load_once_per_file(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["row"])
    source = pl.DataFrame({"row": [3, 40, 89], "a": [-3, -40, -89]})
    store = open_store(str(tmp_path), {})
    place = store_rows(store, source, operation=str(uuid.uuid4()))
    clauses = Clauses(on="row")
    values = tuple(pl.col("source").struct.field(name) for name in ROWS.columns)
    rules = MergeRules(
        schema_json="",
        schema=ROWS.schema,
        given=ROWS.schema,
        clauses=clauses,
        conditions=clauses.conditions(ROWS.schema, source.schema),
        updates=Assignments(values, frozenset(), "update"),
        inserts=None,
        source_schema=source.schema,
        copied_schema=ROWS.schema,
    )
    files = MergedFiles(rules, str(tmp_path), {}, {"some file": place})
    assert files.of_file("another file") is None
    change = files.of_file("some file")
    assert change is not None
    sent = len(pickle.dumps(change))
    with mock.patch.object(merge_rules, "load_rows", wraps=merge_rules.load_rows) as loaded:
        actual = pl.concat([change(some) for some in ROWS.iter_slices(10)])
        assert loaded.call_count == 1
        assert_same_rows(actual, pl.concat([ROWS.join(source, on="row", how="anti"), source]), "row")
        assert len(pickle.dumps(change)) == sent
        sent_again = pickle.loads(pickle.dumps(change))  # noqa: S301 -- our own
        assert_same_rows(sent_again(ROWS), actual, "row")
        assert loaded.call_count == 2
