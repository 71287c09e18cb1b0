"""Comments of tables and columns, names of tables, and unknown notes: every operation keeps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.handmade_log import PROTOCOL, metadata, write_log
from tests.write.rules.tables import schema_of

ROWS = pl.DataFrame({"id": range(100), "x": [n / 7 for n in range(100)]})
NOTES = {"comment": "a number", "their.note": {"deep": [1, True, None]}}


def test_comments_are_set_on_creation(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"], comment="about", column_comments={"x": "a number"})
    table = DeltaTable(tmp_path)
    assert table.metadata().description == "about"
    assert schema_of(tmp_path) == {"id": {}, "x": {"comment": "a number"}}
    qbeast.write_table(ROWS, tmp_path, mode="append", comment="about", column_comments={"x": "a number"})
    qbeast.write_table(
        ROWS,
        tmp_path,
        mode="overwrite",
        schema_mode="overwrite",
        comment="new",
        column_comments={"id": "key"},
    )
    assert DeltaTable(tmp_path).metadata().description == "new"
    assert schema_of(tmp_path) == {"id": {"comment": "key"}, "x": {"comment": "a number"}}


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"comment": "other"}, "comment"),
        ({"column_comments": {"x": "other"}}, "column_comments"),
        ({"column_comments": {"no": "other"}}, "column_comments"),
        ({"comment": 5}, "comment"),
        ({"column_comments": {"x": 5}}, "column_comments"),
    ],
)
def test_other_comments_of_a_table_are_refused(
    options: dict[str, object], argument: str, tmp_path: Path
) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"], comment="about")
    with pytest.raises(qbeast.InvalidInputError) as caught:
        qbeast.write_table(ROWS, tmp_path, mode="append", **options)  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert qbeast.open_table(tmp_path).version == 0


OPERATIONS: dict[str, Callable[[qbeast.Table], object]] = {
    "append": lambda table: qbeast.write_table(ROWS, table.uri, mode="append"),
    "overwrite": lambda table: qbeast.write_table(ROWS, table.uri, mode="overwrite"),
    "update": lambda table: table.update("id < 5", {"x": "1.0"}),
    "delete": lambda table: table.delete("id < 5"),
    "merge": lambda table: table.merge(ROWS.with_columns(n=1), on="id", schema_mode="merge"),
    "optimize": lambda table: table.optimize(full=True),
    "reindex": lambda table: table.reindex(columns=["x"]),
    "add columns": lambda table: table.add_columns({"new": "long"}),
    "add constraint": lambda table: table.add_constraint("c", "id >= 0"),
    "sample column": lambda table: table.add_sample_column(),
    "restore": lambda table: table.restore(1),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_keep_comments_names_and_notes(operation: str, tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "x", "type": "double", "nullable": True, "metadata": NOTES},
    ]
    made = metadata({"type": "struct", "fields": fields})
    made["metaData"] |= {"name": "visits", "description": "about visits"}
    write_log(tmp_path, [PROTOCOL, made])
    qbeast.convert_table(tmp_path, columns=["id"])
    qbeast.write_table(ROWS, tmp_path, mode="append")
    OPERATIONS[operation](qbeast.open_table(tmp_path))
    about = DeltaTable(tmp_path).metadata()
    assert (about.name, about.description) == ("visits", "about visits")
    assert schema_of(tmp_path)["x"] == NOTES
