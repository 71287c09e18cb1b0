# ruff: noqa: E501, ARG005 -- a table: each wrong input is a line, and is tried in the same way
"""Wrong inputs of newcomers: each message says what happened, what is still true, and the cure."""

from __future__ import annotations

import os
import pickle
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast import read_table, scan_table, write_table
from qbeast_core.io.store import LocalStore
from qbeast_core.support import process
from qbeast_core.support.text import HIDDEN
from tests.helpers.small_files import resized
from tests.helpers.snippets import ROOT
from tests.helpers.stores import failing_puts

ROWS = pl.DataFrame(
    {
        "id": range(500),
        "price": [i % 97 / 7 for i in range(500)],
        "brand": [f"b{i % 9}" for i in range(500)],
        "user": [i % 50 for i in range(500)],
    }
)
LONGEST = 1200


class Wrong(NamedTuple):
    """What somebody tries, with `ROWS` at hand and the tables of `places`; and what the message has to say."""

    tried: Callable[[Any], object]
    error: type[qbeast.QbeastError]
    said: tuple[str, ...]
    argument: str | None = None


INPUT, COLUMNS = qbeast.InvalidInputError, qbeast.InvalidColumnsError
SCHEMA, EXISTS = qbeast.SchemaMismatchError, qbeast.TableExistsError
ABSENT, PLAIN = qbeast.TableNotFoundError, qbeast.NotQbeastTableError
UNSUPPORTED, VERSION, STORAGE = qbeast.UnsupportedTableError, qbeast.VersionNotFoundError, qbeast.StorageError

WRITES = {
    "no columns": Wrong(lambda t: write_table(ROWS, t.new), COLUMNS, ("needs columns", "columns=['a', 'b:quantiles']")),
    "kind": Wrong(lambda t: write_table(ROWS, t.new, columns=["id:lineer"]), COLUMNS, ("not a kind of index", "linear, quantiles, hash.", "Did you mean 'linear'?")),
    "text": Wrong(lambda t: write_table(ROWS, t.new, columns="id,price"), COLUMNS, ("list of names", "columns=['id', 'price']"), argument="columns"),
    "set": Wrong(lambda t: write_table(ROWS, t.new, columns={"id"}), COLUMNS, ("list of names, 'a' or 'a:hash', or map names to kinds",), argument="columns"),
    "kind of a map": Wrong(lambda t: write_table(ROWS, t.new, columns={"id": "hsh"}), COLUMNS, ("not a kind of index", "Did you mean 'hash'?"), argument="columns"),
    "computed": Wrong(lambda t: write_table(ROWS, t.new, columns=[pl.col("id") + 1]), COLUMNS, ("list of names",), argument="columns"),
    "typo": Wrong(lambda t: write_table(ROWS, t.new, columns=["prices"]), COLUMNS, ("['prices']", "Did you mean 'price'?"), argument="columns"),
    "field": Wrong(lambda t: write_table(ROWS.with_columns(u=pl.struct("id")), t.new, columns=["u.id"]), COLUMNS, ("A field cannot be indexed", "a column of its own"), argument="columns"),
    "only nulls": Wrong(lambda t: write_table(ROWS.with_columns(x=pl.lit(None)), t.new, columns=["id"]), INPUT, ("all values of x are null", "pl.col('x').cast(pl.String)"), argument="df"),
    "case": Wrong(lambda t: write_table(ROWS, t.new, columns=["ID"]), COLUMNS, ("Did you mean 'id'?",), argument="columns"),
    "twice": Wrong(lambda t: write_table(ROWS, t.new, columns=["id", "id"]), COLUMNS, ("twice", "Name each once")),
    "none": Wrong(lambda t: write_table(ROWS, t.table, columns=[], mode="append"), COLUMNS, ("indexed by ['id', 'price'], not by []", "Table.reindex")),
    "option of an index": Wrong(lambda t: write_table(ROWS, t.new, columns=[], cube_size=9), INPUT, ("`cube_size` needs an index", "Pass columns to index"), argument="cube_size"),
    "nested": Wrong(lambda t: write_table(ROWS.with_columns(l=pl.lit([1])), t.new, columns=["l"]), COLUMNS, ("cannot be indexed", "string")),
    "linear text": Wrong(lambda t: write_table(ROWS, t.new, columns=["brand:linear"]), COLUMNS, ("of type string cannot be indexed by linear", "Write 'brand:quantiles' or 'brand:hash'")),
    "mode": Wrong(lambda t: write_table(ROWS, t.new, ["id"], mode="apend"), INPUT, ("'apend'", 'Did you mean mode="append"?'), argument="mode"),
    "exists": Wrong(lambda t: write_table(ROWS, t.table, columns=["id"]), EXISTS, ("already", 'mode="append", mode="overwrite" or mode="ignore"'), argument="mode"),
    "other index": Wrong(lambda t: write_table(ROWS, t.table, ["brand"], mode="append"), COLUMNS, ("indexed by ['id', 'price']", "Table.reindex", 'mode="overwrite"')),
    "new column": Wrong(lambda t: write_table(ROWS.with_columns(x=1), t.table, mode="append"), SCHEMA, ("'x' is not in the table", 'schema_mode="merge"')),
    "lacking column": Wrong(lambda t: write_table(ROWS.drop("user"), t.table, mode="append"), SCHEMA, ("'user' is missing", 'schema_mode="merge"')),
    "type": Wrong(lambda t: write_table(ROWS.cast({"id": pl.String}), t.table, mode="append"), SCHEMA, ("'id' is String", "Cast")),
    "other columns": Wrong(lambda t: write_table(ROWS.rename({"user": "usr"}), t.table, mode="overwrite"), SCHEMA, ('schema_mode="overwrite"',), argument="schema_mode"),
    "schema mode": Wrong(lambda t: write_table(ROWS, t.table, mode="append", schema_mode="merg"), INPUT, ('schema_mode="merge"',), argument="schema_mode"),
    "schema mode alone": Wrong(lambda t: write_table(ROWS, t.table, mode="append", schema_mode="overwrite"), INPUT, ('mode="overwrite"',)),
    "cube size": Wrong(lambda t: write_table(ROWS, t.new, ["id"], cube_size="1000"), INPUT, ("whole number of rows", "'1000'"), argument="cube_size"),
    "list": Wrong(lambda t: write_table([1, 2], t.new, ["id"]), INPUT, ("builtins.list", "pl.DataFrame(...)"), argument="df"),
    "series": Wrong(lambda t: write_table(ROWS["id"], t.new, ["id"]), INPUT, ("Series", "pl.DataFrame(...)"), argument="df"),
    "None": Wrong(lambda t: write_table(None, t.new, ["id"]), INPUT, ("NoneType", "Polars or pandas frame"), argument="df"),
    "array": Wrong(lambda t: write_table(np.zeros((2, 2)), t.new, ["id"]), INPUT, ("numpy.ndarray",), argument="df"),
    "file": Wrong(lambda t: write_table("rows.csv", t.new, ["id"]), INPUT, ("pl.scan_csv('rows.csv')",), argument="df"),
    "swapped": Wrong(lambda t: write_table(t.new, ROWS, columns=["id"]), INPUT, ("DataFrame", "write write_table(rows, path)")),
    "no column": Wrong(lambda t: write_table(pl.DataFrame(), t.new, ["id"]), INPUT, ("no column",)),
    "no path": Wrong(lambda t: write_table(ROWS, "", columns=["id"]), INPUT, ("is empty", "give a folder")),
    "number as path": Wrong(lambda t: write_table(ROWS, 3, columns=["id"]), INPUT, ("not a text", "give a folder")),
    "path is a file": Wrong(lambda t: write_table(ROWS, t.file, columns=["id"]), EXISTS, ("is a file", "another path")),
    "path below a file": Wrong(lambda t: write_table(ROWS, f"{t.file}/x", columns=["id"]), STORAGE, ("Not a directory", "try again")),
    "path of Parquet": Wrong(lambda t: write_table(ROWS, t.parquet, columns=["id"]), EXISTS, ("qbeast.convert_table(", "empty place")),
    "/proc/x": Wrong(lambda t: write_table(ROWS, "/proc/x", columns=["id"]), STORAGE, ("(/proc/x)", "Remove the cause")),
    "scheme": Wrong(lambda t: write_table(ROWS, "hdfs://a/b", columns=["id"]), INPUT, ("s3://", "abfss://"), argument="path"),
    "short scheme": Wrong(lambda t: write_table(ROWS, "s3:x", columns=["id"]), INPUT, ("s3://", "./s3:x")),
    "store options": Wrong(lambda t: write_table(ROWS, t.new, ["id"], storage_options="a"), INPUT, ("map texts to texts",), argument="storage_options"),
    "store values": Wrong(lambda t: write_table(ROWS, t.new, ["id"], storage_options={"n": 1}), INPUT, ("'n' maps to", "int"), argument="storage_options"),
    "txn": Wrong(lambda t: write_table(ROWS, t.new, ["id"], txn=("a", "1")), INPUT, ("(application id, version)",), argument="txn"),
    "metadata": Wrong(lambda t: write_table(ROWS, t.new, ["id"], commit_metadata=["a"]), INPUT, ("texts to texts",)),
    "stats": Wrong(lambda t: write_table(ROWS, t.new, ["id"], column_stats={"idd_min": 0}), INPUT, ("'idd_min'", "Did you mean 'id_min'?"), argument="column_stats"),
    "stats text": Wrong(lambda t: write_table(ROWS, t.new, ["id"], column_stats="{"), INPUT, ("not valid JSON",)),
    "stats swapped": Wrong(lambda t: write_table(ROWS, t.new, ["id"], column_stats={"id_min": 9, "id_max": 0}), INPUT, ("above",)),
    "dialect": Wrong(lambda t: write_table(ROWS, t.new, ["id"], dialect="jvm"), INPUT, ('"qbeast-spark"',), argument="dialect"),
    "sample column": Wrong(lambda t: write_table(ROWS, t.new, ["id"], sample_column="ID"), INPUT, ("column 'id'", "another name"), argument="sample_column"),
    "other sample column": Wrong(lambda t: write_table(ROWS, t.it.uri, mode="append", sample_column="s"), INPUT, ("no sample column", "add_sample_column"), argument="sample_column"),
    "engine": Wrong(lambda t: write_table(ROWS, t.new, ["id"], resources=qbeast.Resources(engine="spark")), INPUT, ('"spill"',), argument="engine"),
    "memory": Wrong(lambda t: write_table(ROWS, t.new, ["id"], resources=qbeast.Resources(memory_bytes="2GiB")), INPUT, ("number of bytes",), argument="memory_bytes"),
    "spill": Wrong(lambda t: write_table(ROWS, t.new, ["id"], resources=qbeast.Resources(engine="spill", spill_dir="/nowhere")), STORAGE, ("'/nowhere'", "spill_dir")),
    "names": Wrong(lambda t: write_table(pl.DataFrame({"a": [1], "A": [1]}), t.new, ["a"]), INPUT, ("differ in case", "Rename")),
    "own name": Wrong(lambda t: write_table(ROWS.with_columns(_qbeast_weight=1), t.new, ["id"]), INPUT, ("qbeast's own", "Rename")),
    "object": Wrong(lambda t: write_table(pl.DataFrame({"id": [1], "o": [object()]}), t.new, ["id"]), SCHEMA, ("type Object", "Cast or drop")),
    "duration": Wrong(lambda t: write_table(pl.DataFrame({"id": [1], "o": [timedelta(1)]}), t.new, ["id"]), SCHEMA, ("Duration", "Cast or drop")),
    "mixed": Wrong(lambda t: write_table(pd.DataFrame({"id": [1, "a"]}), t.new, ["id"]), SCHEMA, ("column 'id' of type object cannot be read", "Cast or drop")),
    "no frame": Wrong(lambda t: write_table(iter([]), t.new, ["id"]), INPUT, ("no frame", "empty frame")),
    "other frames": Wrong(lambda t: write_table(iter([ROWS, ROWS.drop("user")]), t.new, ["id"]), SCHEMA, ("'user' is missing",)),
}  # fmt: skip

READS = {
    "nothing there": Wrong(lambda t: scan_table(t.new), ABSENT, ("nothing is there", "qbeast.write_table(rows, ", "there is no |is a directory|is a file")),
    "empty folder": Wrong(lambda t: scan_table(t.empty), ABSENT, ("qbeast.write_table(rows, ", "there is no |is a directory|is a file")),
    "Parquet file": Wrong(lambda t: scan_table(t.file), ABSENT, ("pl.scan_parquet(", "there is no |is a directory|is a file")),
    "Parquet folder": Wrong(lambda t: qbeast.open_table(t.parquet), ABSENT, ("qbeast.convert_table(", "moves no data", "there is no |is a directory|is a file")),
    "CSV folder": Wrong(lambda t: qbeast.open_table(t.csv), ABSENT, ("CSV files", "pl.scan_csv(", "there is no |is a directory|is a file")),
    "blocks of Delta": Wrong(lambda t: qbeast.open_table(t.delta).blocks(), PLAIN, ("qbeast.convert_table(", "moves no data")),
    "sample of Delta": Wrong(lambda t: qbeast.read_table(t.delta, sample=0.1), qbeast.InvalidInputError, ("sample_by=", "qbeast.convert_table(")),
    "frame as path": Wrong(lambda t: qbeast.open_table(ROWS), INPUT, ("DataFrame", "it holds rows")),
    "Table": Wrong(lambda t: qbeast.Table("lineitem"), INPUT, ("qbeast.open_table(path)", "'lineitem'")),
    "open table": Wrong(lambda t: read_table(t.it), INPUT, ("open already", "table.read()")),
    "list of conditions": Wrong(lambda t: read_table(t.table, where=[pl.col("id") < 3, pl.col("id") > 1]), INPUT, ("not list", "Join conditions by &")),
    "fraction": Wrong(lambda t: scan_table(t.table, sample=10), INPUT, ("between 0 and 1", "10", "For 10 % write sample=0.1."), argument="sample"),
    "percent as text": Wrong(lambda t: scan_table(t.table, sample="10"), INPUT, ("For 10 % write sample=0.1.",), argument="sample"),
    "pair of percent": Wrong(lambda t: scan_table(t.table, sample=(0, 7.5)), INPUT, ('For 0 % to 7.5 % write sample="0%:7.5%".',), argument="sample"),
    "pair as a list": Wrong(lambda t: scan_table(t.table, sample=[0.1, 0.2]), INPUT, ("between 0 and 1", "(from, to)")),
    "falling pair": Wrong(lambda t: scan_table(t.table, sample=(0.2, 0.1)), INPUT, ("rise",)),
    "text": Wrong(lambda t: scan_table(t.table, sample="some"), INPUT, ("'some'",)),
    "rows": Wrong(lambda t: scan_table(t.table, rows=-1), INPUT, ("whole number",), argument="rows"),
    "rows and sample": Wrong(lambda t: scan_table(t.table, rows=5, sample=0.1), INPUT, ("`rows` and `sample`",)),
    "version": Wrong(lambda t: scan_table(t.table, version=77), VERSION, ("newest is 0", "Table.history() lists", "has no version")),
    "version text": Wrong(lambda t: scan_table(t.table, version="yesterday"), INPUT, ("ISO 8601",), argument="version"),
    "version of old": Wrong(lambda t: scan_table(t.table, version="2001-01-01"), VERSION, ("oldest is 0", "Table.history()", "has no version")),
    "columns": Wrong(lambda t: t.it.rows(columns=["prce"]).head(), INPUT, ("Did you mean 'price'?",), argument="columns"),
    "columns read": Wrong(lambda t: read_table(t.table, columns=["prce"]), INPUT, ("Did you mean 'price'?",), argument="columns"),
    "columns as a text": Wrong(lambda t: read_table(t.table, columns="price"), INPUT, ("in a list",), argument="columns"),
    "quotes": Wrong(lambda t: read_table(t.table, where='brand = "b1"'), INPUT, ("no such column(s): ['b1']", "quote it singly: 'b1'")),
    "typo": Wrong(lambda t: read_table(t.table, where="prce < 3"), INPUT, ("Did you mean 'price'?",)),
    "too short": Wrong(lambda t: read_table(t.table, where="price <"), INPUT, ("ends too early",)),
    "no condition": Wrong(lambda t: read_table(t.table, where="price"), INPUT, ("compare it with something",)),
    "number": Wrong(lambda t: read_table(t.table, where=3), INPUT, ("Polars expression or SQL text",)),
    "list of tuples": Wrong(lambda t: read_table(t.table, where=[("price", "<", 3)]), INPUT, ("Polars expression or SQL text",)),
    "query": Wrong(lambda t: read_table(t.table, where="price < (SELECT max(id) FROM self)"), INPUT, ("is a query; only expressions over the columns of a row",)),
    "second statement": Wrong(lambda t: read_table(t.table, where="price < 1; drop table t"), INPUT, ("second statement",)),
    "aggregate": Wrong(lambda t: read_table(t.table, where="price < avg(price)"), INPUT, ("several columns or rows at once",)),
    "text for a number": Wrong(lambda t: read_table(t.table, where="price < 'a'"), INPUT, ("'a' is not a value of type DOUBLE",)),
    "text for a date": Wrong(lambda t: read_table(t.dated, where="day > 'soon'"), INPUT, ("'soon' is not a value of type DATE",)),
    "chain": Wrong(lambda t: read_table(t.table, where="1 < price < 3"), INPUT, ("join comparisons by AND",)),
    "ampersand": Wrong(lambda t: read_table(t.table, where="price < 3 & id > 2"), INPUT, ("'&' at character 10", "write AND")),
    "rows of head": Wrong(lambda t: t.it.rows().head(-1), INPUT, ("whole number",), argument="count"),
    "explain typo": Wrong(lambda t: t.it.rows("l_partkey < 10").explain(), INPUT, ("no such column",)),
    "explain type": Wrong(lambda t: t.it.rows(0.1).explain(), INPUT, ("Polars expression or SQL text", "float")),
    "explain columns": Wrong(lambda t: t.it.rows(columns=["prce"]).explain(), INPUT, ("Did you mean 'price'?",), argument="columns"),
    "files type": Wrong(lambda t: t.it.rows(0.1).files(), INPUT, ("Polars expression or SQL text",)),
    "revision": Wrong(lambda t: t.it.metrics(revision=9), INPUT, ("[0, 1]",), argument="revision"),
    "picture": Wrong(lambda t: t.it.plot("cloud"), INPUT, ("tree, space, fraction",), argument="kind"),
    "SQL table": Wrong(lambda t: t.it.sql("SELECT * FROM t"), INPUT, ("table is called self",)),
    "SQL verb": Wrong(lambda t: t.it.sql("SELEC * FROM self"), INPUT, ("found: SELEC",)),
    "SQL column": Wrong(lambda t: t.it.sql("SELECT prce FROM self"), INPUT, ("no such column", "Did you mean 'price'?"), argument="query"),
    "SQL key word": Wrong(lambda t: t.it.sql("SELECT *, row_number() OVER () FROM self WHERE user = 3"), INPUT, ('column in double quotes: "user"',)),
    "SQL delete": Wrong(lambda t: t.it.sql("DELETE FROM self WHERE id = 1"), INPUT, ("Table.delete()",), argument="query"),
    "SQL update": Wrong(lambda t: t.it.sql("UPDATE self SET price = 1"), INPUT, ("Table.update()",), argument="query"),
    "SQL number": Wrong(lambda t: t.it.sql(3), INPUT, ("SELECT ... FROM self",), argument="query"),
    "estimate column": Wrong(lambda t: t.it.rows().estimate({"x": "avg(prce)"}, error=0.1), INPUT, ("no such column",)),
    "estimate a number": Wrong(lambda t: t.it.rows().estimate(3, error=0.1), INPUT, ("one, a list, or a mapping of names",), argument="aggregates"),
    "estimate by": Wrong(lambda t: t.it.rows().estimate("avg(price)", by="bran", error=0.1), INPUT, ("Did you mean 'brand'?",), argument="by"),
    "estimate nothing": Wrong(lambda t: t.it.rows().estimate({"x": "price"}, error=0.1), INPUT, ("avg(column)",)),
    "estimate how well": Wrong(lambda t: t.it.rows(sample=0.5).estimate({"x": "avg(price)"}, error=0.1), INPUT, ("use one of them",)),
    "estimate distinct": Wrong(lambda t: t.it.rows().estimate({"x": pl.col("user").n_unique()}, error=0.1), INPUT, ("sampled by ['id', 'price']", 'read it with qbeast.scan_table(path, columns=["user"])')),
    "confidence": Wrong(lambda t: t.it.rows().estimate({"x": "avg(price)"}, error=0.1, confidence=95), INPUT, ("between 0 and 1", "For 95 % write confidence=0.95."), argument="confidence"),
    "error in percent": Wrong(lambda t: t.it.rows().estimate({"x": "avg(price)"}, error=5), INPUT, ("between 0 and 1", "For 5 % write error=0.05."), argument="error"),
    "most in percent": Wrong(lambda t: t.it.rows().estimate({"x": "avg(price)"}, error=0.1, max_fraction=20), INPUT, ("For 20 % write max_fraction=0.2.",), argument="max_fraction"),
    "level in percent": Wrong(lambda t: t.it.rows().estimate({"x": pl.col("price").quantile(95)}, error=0.1), INPUT, ("for 95 % write 0.95",), argument="aggregates"),
    "CarbonData": Wrong(lambda t: qbeast.open_carbondata(t.parquet), ABSENT, ("Metadata/schema", "there is no |is a directory|is a file")),
    "CarbonData file": Wrong(lambda t: qbeast.open_carbondata(t.file), ABSENT, ("folder that holds the file", "there is no |is a directory|is a file")),
    "address of the web": Wrong(lambda t: qbeast.open_table("https://example.invalid/x"), INPUT, ("must be a folder or begin with one of s3://",), argument="path"),
}  # fmt: skip

CHANGES = {
    "delete quotes": Wrong(lambda t: t.it.delete('brand = "b1"'), INPUT, ("quote it singly: 'b1'",)),
    "delete type": Wrong(lambda t: t.it.delete([1, 2]), INPUT, ("Polars expression or SQL text", "list")),
    "delete by others": Wrong(lambda t: t.it.delete(pl.col("price") < pl.col("price").mean()), INPUT, ("put it in as a value",)),
    "delete chain": Wrong(lambda t: t.it.delete("1 < price < 3"), INPUT, ("join comparisons by AND",)),
    "delete None": Wrong(lambda t: t.it.delete(None), INPUT, ("a condition, or True for all rows",), argument="where"),
    "update None": Wrong(lambda t: t.it.update(None, {"price": 1}), INPUT, ("a condition, or True for all rows",), argument="where"),
    "update nothing": Wrong(lambda t: t.it.update("price < 1", {}), INPUT, ("at least one",), argument="set"),
    "update text": Wrong(lambda t: t.it.update("price < 1", "price = 2"), INPUT, ("map columns to values",), argument="set"),
    "update column": Wrong(lambda t: t.it.update("price < 1", {"prce": "1"}), INPUT, ("Did you mean 'price'?",), argument="set"),
    "update type": Wrong(lambda t: t.it.update("price < 1", {"price": "'abc'"}), INPUT, ("'abc' is not a value of type DOUBLE",)),
    "update quotes": Wrong(lambda t: t.it.update("price < 1", {"brand": "other"}), INPUT, ("quote it singly: 'other'",)),
    "update swapped": Wrong(lambda t: t.it.update({"price": 1}, "price < 1"), INPUT, ("The condition comes first: update(where, set)",), argument="where"),
    "merge keys": Wrong(lambda t: t.it.merge(ROWS, on=[]), INPUT, ("one column or several",), argument="on"),
    "merge key": Wrong(lambda t: t.it.merge(ROWS, on="idd"), INPUT, ("Did you mean 'id'?",), argument="on"),
    "merge action": Wrong(lambda t: t.it.merge(ROWS, on="id", when_matched="replace"), INPUT, ('"update", "delete" or "ignore"',), argument="when_matched"),
    "read one column": Wrong(lambda t: t.it.read(columns="price"), INPUT, ("Write columns=['price'].",), argument="columns"),
    "merge doubled": Wrong(lambda t: t.it.merge(pl.concat([ROWS[:1], ROWS[:1]]).with_columns(id=-1), on="id"), INPUT, ("{'id': -1}", 'duplicates="insert"'), argument="duplicates"),
    "merge source": Wrong(lambda t: t.it.merge("f.parquet", on="id"), INPUT, ("pl.scan_parquet('f.parquet')",), argument="df"),
    "merge condition": Wrong(lambda t: t.it.merge(ROWS, on="id", matched_if="src.price < 1"), INPUT, ("no such column",), argument="matched_if"),
    "merge columns": Wrong(lambda t: t.it.merge(ROWS.drop("price"), on="id"), SCHEMA, ("'price' is missing", "`update` and `insert`")),
    "optimize file": Wrong(lambda t: t.it.optimize(files=["nope"]), INPUT, ("Table.rows().files() lists them",)),
    "optimize fraction": Wrong(lambda t: t.it.optimize(fraction=2), INPUT, ("between 0 and 1", "For 2 % write fraction=0.02."), argument="fraction"),
    "optimize revision": Wrong(lambda t: t.it.optimize(revision=9), INPUT, ("[0, 1]",), argument="revision"),
    "optimize both": Wrong(lambda t: t.it.optimize(files=[], revision=1), INPUT, ("cannot be combined",), argument="revision"),
    "optimize into": Wrong(lambda t: t.it.optimize(into="fresh"), INPUT, ('"newest" or "new"', "'fresh'"), argument="into"),
    "optimize new": Wrong(lambda t: t.it.optimize(into="new", revision=1), INPUT, ('into="new"', "whole table"), argument="into"),
    "resources": Wrong(lambda t: write_table(ROWS, t.new, ["id"], resources={"memory_bytes": 1}), INPUT, ("qbeast.Resources",), argument="resources"),
    "drop": Wrong(lambda t: qbeast.drop_table(t.it.uri, confirm="yes"), INPUT, ("cannot be undone",), argument="confirm"),
    "drop nothing, unconfirmed": Wrong(lambda t: qbeast.drop_table(t.new), ABSENT, ("there is no Delta table",)),
    "drop nothing": Wrong(lambda t: qbeast.drop_table(t.new, confirm=True), ABSENT, ("there is no Delta table",)),
    "vacuum short": Wrong(lambda t: t.it.vacuum(retention_hours=0), INPUT, ("168 hours", "allow_short_retention=True")),
    "vacuum text": Wrong(lambda t: t.it.vacuum(retention_hours="a week"), INPUT, ("number of hours",), argument="retention_hours"),
    "restore": Wrong(lambda t: t.it.restore(77), VERSION, ("newest is 0", "Table.history()", "has no version")),
    "restore nothing": Wrong(lambda t: t.it.restore(None), INPUT, ("number",), argument="version"),
    "column there": Wrong(lambda t: t.it.add_columns({"id": pl.Int64}), SCHEMA, ("is there",)),
    "column type": Wrong(lambda t: t.it.add_columns({"x": "int53"}), INPUT, ("names to types", "pl.Float64", "long", "'int53'"), argument="columns"),
    "column list": Wrong(lambda t: t.it.add_columns(["x"]), INPUT, ("names to types",), argument="columns"),
    "widen column": Wrong(lambda t: t.it.widen_columns({"prce": pl.Float64}), INPUT, ("Did you mean 'price'?",), argument="columns"),
    "widen type": Wrong(lambda t: t.it.widen_columns({"user": "int53"}), INPUT, ("names to types",), argument="columns"),
    "sample name": Wrong(lambda t: t.it.add_sample_column("price"), INPUT, ("column 'price'", "another name"), argument="name"),
    "reindex column": Wrong(lambda t: t.it.reindex(["prce"]), COLUMNS, ("Did you mean 'price'?",), argument="columns"),
    "reindex size": Wrong(lambda t: t.it.reindex(cube_size=0), INPUT, ("1 to",), argument="cube_size"),
    "narrow": Wrong(lambda t: t.it.widen_columns({"price": pl.Float32}), UNSUPPORTED, ("cannot become Float32",)),
    "property": Wrong(lambda t: t.it.set_properties({"delta.foo": "1"}), UNSUPPORTED, ("these can be set", "delta.appendOnly")),
    "properties": Wrong(lambda t: t.it.set_properties("a=1"), INPUT, ("map names to texts",), argument="properties"),
    "own property": Wrong(lambda t: t.it.set_properties({"qbeast.x": "1"}), INPUT, ("qbeast's own",)),
    "dialect": Wrong(lambda t: t.it.switch_dialect("jvm"), INPUT, ('"qbeast-spark"',), argument="dialect"),
    "change feed": Wrong(lambda t: t.fed.merge(ROWS.with_columns(_change_type=1), "id", schema_mode="merge"), UNSUPPORTED, ("Table.set_properties({'delta.enableChangeDataFeed': None})",)),
    "append-only": Wrong(lambda t: t.appended.delete("id < 3"), UNSUPPORTED, ("allows only appends", "Table.set_properties({'delta.appendOnly': None})")),
    "convert nested": Wrong(lambda t: qbeast.convert_table(t.nested, ["id"]), UNSUPPORTED, ("Move them into one folder",)),
    "convert CSV": Wrong(lambda t: qbeast.convert_table(t.csv, ["id"]), ABSENT, ("pl.scan_csv(", "there is no |is a directory|is a file")),
    "convert again": Wrong(lambda t: qbeast.convert_table(t.table, ["brand"]), COLUMNS, ("Table.reindex",)),
    "append to Delta": Wrong(lambda t: write_table(ROWS, t.delta, ["id"], mode="append"), PLAIN, ("qbeast.convert_table(",)),
    "upgrade Delta": Wrong(lambda t: qbeast.open_table(t.delta).upgrade(), PLAIN, ("qbeast.convert_table(",)),
    "upgrade copies": Wrong(lambda t: qbeast.open_table(t.table).upgrade(replicated="maybe"), INPUT, ('"keep" or "drop"',), argument="replicated"),
    "suggest of a file": Wrong(lambda t: qbeast.suggest_columns("f.parquet"), INPUT, ("pl.scan_parquet('f.parquet')",), argument="df"),
    "suggest most": Wrong(lambda t: qbeast.suggest_columns(ROWS, most=0), INPUT, ("1 to 8",), argument="most"),
    "advise query": Wrong(lambda t: t.it.advise("price < 1"), INPUT, ("list of conditions",), argument="queries"),
    "advise nothing": Wrong(lambda t: t.it.advise([]), INPUT, ("at least one condition",), argument="queries"),
    "suggest query": Wrong(lambda t: qbeast.suggest_columns(ROWS, "price < 1"), INPUT, ("list of conditions",), argument="queries"),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Make tables and what newcomers take for tables; no case changes any of them."""
    root = tmp_path_factory.mktemp("newcomer")
    for name in ("parquet", "csv", "empty", "hive/day=1", "nested/x"):
        (root / name).mkdir(parents=True)
    for name in ("file.parquet", "parquet/a.parquet", "hive/day=1/a.parquet", "nested/x/a.parquet"):
        ROWS.write_parquet(root / name)
    ROWS.write_csv(root / "csv" / "a.csv")
    write_table(ROWS, root / "table", columns=["id", "price"])
    write_table(pl.DataFrame({"day": [date(2026, 1, 31)]}), root / "dated", columns=["day"])
    write_deltalake(root / "delta", ROWS)
    for name, key in (("fed", "delta.enableChangeDataFeed"), ("appended", "delta.appendOnly")):
        write_deltalake(root / name, ROWS, configuration={key: "true"})
        qbeast.convert_table(root / name, ["id"])
    paths = ("parquet", "csv", "empty", "hive", "nested", "table", "dated", "delta", "new")
    before = _content(root)
    yield SimpleNamespace(
        file=str(root / "file.parquet"),
        it=qbeast.open_table(root / "table"),
        fed=qbeast.open_table(root / "fed"),
        appended=qbeast.open_table(root / "appended"),
        **{name: str(root / name) for name in paths},
    )
    assert _content(root) == before  # what the messages promise


def _content(root: Path) -> dict[str, int]:
    actual = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {str(path): path.stat().st_mtime_ns for path in actual}


CASES = {
    f"{group}: {name}": wrong
    for group, cases in (("write", WRITES), ("read", READS), ("change", CHANGES))
    for name, wrong in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_invalid_input_error_names_the_fix(name: str, places: SimpleNamespace) -> None:
    wrong = CASES[name]
    with pytest.raises(qbeast.QbeastError) as caught:
        wrong.tried(places)
    error, text = caught.value, str(caught.value)
    assert isinstance(error, wrong.error)
    assert [words for words in wrong.said if not any(item in text for item in words.split("|"))] == [], text
    assert text.endswith("Nothing was changed.") == error.in_change
    if not re.search("^read|suggest|advise|read ", name):
        assert re.search(r"[.?!] Nothing was changed\.$", text)
    assert error.changed is False
    assert len(text) < LONGEST
    assert not HIDDEN.search(text)
    if wrong.argument is not None:
        assert error.argument == wrong.argument


def test_enough_invalid_inputs_are_tested() -> None:
    assert len(CASES) >= 110


def test_error_after_commits_says_table_changed(tmp_path: Path) -> None:
    for number, size in enumerate((100, 50, 100)):  # each other size of cubes begins a revision
        rows = ROWS.with_columns(pl.col("id") + number * ROWS.height)
        write_table(rows, tmp_path / "t", ["id"], mode="append", cube_size=size)
    table, full = qbeast.open_table(tmp_path / "t"), qbeast.StorageError("full.", path="t")
    second = tmp_path / "t" / "_delta_log" / f"{table.version + 1:020}.json"

    def fails(_: str) -> bool:
        return second.exists()

    sizes = {"small_file_rows": 0}  # otherwise the first commit joins all files
    with resized(**sizes), failing_puts(fails, full), pytest.raises(qbeast.StorageError) as caught:
        table.optimize(revision="all", full=True)
    assert caught.value.changed is True
    message = "full. Nothing more was changed. Versions that the call committed before stay."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value) == message  # noqa: S301
    assert pickle.loads(pickle.dumps(caught.value)).changed is True  # noqa: S301 -- made a moment ago
    full.changed = False
    with resized(**sizes), failing_puts(fails, full), pytest.raises(qbeast.StorageError) as caught:
        table.optimize(revision="all", full=True)
    assert caught.value.changed is False  # the first commit failed already


def test_failed_vacuum_reports_unknown_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        write_table(ROWS, tmp_path / "t", ["id"], mode="overwrite" if (tmp_path / "t").exists() else "error")

    denied = qbeast.StorageError("", path="t")

    def fails(*_: object) -> None:
        raise denied

    monkeypatch.setattr(LocalStore, "delete", fails)
    with pytest.raises(qbeast.StorageError) as caught:
        qbeast.open_table(tmp_path / "t").vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert caught.value.changed is None
    assert qbeast.CommitUnknownError.changed is None


def test_missing_package_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, needs in extras.items():
        for package in (re.split(r"[<>=\[]", need)[0] for need in needs):
            monkeypatch.setitem(sys.modules, package, None)
            with pytest.raises(qbeast.MissingDependencyError, match=f"pip install {package}") as caught:
                process.require(package, "this")
            assert caught.value.dependency == package
            assert caught.value.extra in (extra, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(qbeast.MissingDependencyError, match="qbeast's extra 'plot'"):
        process.require("matplotlib", "drawing")
