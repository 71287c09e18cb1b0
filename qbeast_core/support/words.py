"""Words of other libraries, and the line to type for each of them: the data of `hints`.

A value is a call or an argument of ours; or, if it ends with a period, a sentence. Names are in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_APPEND: Final = 'qbeast.write_table(rows, table.uri, mode="append")'
_CHANGES: Final = "changes(since=...): the changes after this version"
_CLUSTER: Final = "optimize(): it clusters by the indexed columns, which reindex(columns=[...]) changes"
_COLUMNS: Final = "add_columns({...}), rename_column(...), drop_column(...) or widen_columns({...})"
_COMMENT: Final = "comment= or column_comments= of qbeast.write_table, when the table is created"
_COPY: Final = "qbeast.write_table(table.rows(), new, columns=table.indexed_columns)"
_DISTINCT: Final = "rows().lazy().unique(...)"
_FILES: Final = "rows().files()"
_MANY: Final = "rows(...).batches(), or rows(...).shuffled(): batches in random order"
_RESTORE: Final = "restore(version)"
_SPLIT: Final = 'rows().split({"train": 0.8, "test": 0.2})'
_SQL: Final = 'sql("SELECT ... FROM self")'
_UPGRADE: Final = "set_properties({...}) or upgrade()"
_VERSION: Final = "qbeast.open_table(table.uri, version=...)"
_VERSIONS: Final = "versions() or history()"
_WHERE: Final = "read(where=...) or rows().lazy().filter(...)"
_AUTOMATIC: Final = "Each commit does that when it is due: leave it out."

# What a table has instead of names of other libraries. Names of Polars are offered without an entry here.
MEMBERS: Final[Mapping[str, str]] = {
    "add": _APPEND,
    "add_column": "add_columns({...})",
    "add_feature": _UPGRADE,
    "agg": "rows().lazy().select(...)",
    "aggregate": "rows().lazy().select(...)",
    "alias": "rows().lazy()",
    "alter": _COLUMNS,
    "alter_column": "widen_columns({...})",
    "append": _APPEND,
    "as_of": _VERSION,
    "at_version": _VERSION,
    "cast": "widen_columns({...}) or rows().lazy().cast({...})",
    "cdf": _CHANGES,
    "change_feed": _CHANGES,
    "checkpoint": _AUTOMATIC,
    "cleanup": "vacuum()",
    "cleanup_metadata": "deltalake.DeltaTable(table.uri).cleanup_metadata()",
    "clone": _COPY,
    "close": "A table holds no file open: leave it out.",
    "cluster": _CLUSTER,
    "cluster_by": _CLUSTER,
    "coalesce": "optimize()",
    "collect": "read()",
    "collect_schema": "schema",
    "comment": _COMMENT,
    "compact": "optimize()",
    "compact_logs": "deltalake.DeltaTable(table.uri).compact_logs()",
    "constraints": "properties, add_constraint(name, expression) or drop_constraint(name)",
    "copy": _COPY,
    "create_checkpoint": _AUTOMATIC,
    "create_index": "reindex(columns=[...])",
    "create_or_replace_temp_view": _SQL,
    "current_snapshot": "snapshot",
    "dataset": "rows().arrow() or rows().batches()",
    "deep_clone": _COPY,
    "delete_rows": "delete(where)",
    "deletion_vectors": 'properties, or set_properties({"delta.enableDeletionVectors": "true"})',
    "detail": "metrics()",
    "df": "read()",
    "display": "rows().head(...)",
    "distinct": _DISTINCT,
    "drop": "drop_column(...), or qbeast.drop_table(path, confirm=True) for the whole table",
    "drop_column_not_null": "properties, or drop_constraint(name)",
    "drop_columns": "drop_column(...)",
    "drop_duplicates": _DISTINCT,
    "dtypes": "schema",
    "duckdb": "rows().arrow()",
    "execute": _SQL,
    "execute_compaction": "optimize()",
    "execute_z_order_by": _CLUSTER,
    "extend": _APPEND,
    "fields": "schema",
    "file_uris": _FILES,
    "filter": _WHERE,
    "generate": "rows().files(): the files for other engines",
    "get_add_actions": _FILES,
    "groupby": "rows().lazy().group_by(...)",
    "height": "count()",
    "iloc": "rows().head(...)",
    "index": "indexed_columns",
    "info": "metrics() or schema",
    "insert": _APPEND,
    "insert_into": _APPEND,
    "inspect": "history(), rows().files() or metrics()",
    "iter_batches": _MANY,
    "iter_rows": "rows().batches()",
    "iterrows": "rows().batches()",
    "lazy": "rows().lazy()",
    "limit": "rows().head(...)",
    "load_as_version": _VERSION,
    "load_cdf": _CHANGES,
    "loc": _WHERE,
    "location": "uri",
    "manage_snapshots": _RESTORE,
    "merge_into": "merge(rows, on=...)",
    "metadata": "properties, or metrics()",
    "name": "uri",
    "num_records": "count()",
    "num_rows": "count()",
    "order_by": "rows().lazy().sort(...)",
    "overwrite": 'qbeast.write_table(rows, table.uri, mode="overwrite")',
    "partition_by": _CLUSTER,
    "partitions": _FILES,
    "path": "uri",
    "pl": "read()",
    "plan": "rows(...).explain()",
    "print_schema": "schema",
    "protocol": "snapshot.protocol",
    "purge": "optimize(purge=True)",
    "query": _SQL,
    "random_split": _SPLIT,
    "read_change_feed": _CHANGES,
    "remove": "delete(where)",
    "rename": "rename_column(...) or rows().lazy().rename({...})",
    "rename_columns": "rename_column(...)",
    "reorg": "optimize(purge=True)",
    "repartition": "optimize()",
    "replace_where": 'qbeast.write_table(rows, table.uri, mode="overwrite", where=...)',
    "restore_to_timestamp": _RESTORE,
    "restore_to_version": _RESTORE,
    "rollback": _RESTORE,
    "row_count": "count()",
    "sample": "read(sample=0.01)",
    "scan": "rows(...).lazy()",
    "scan_tasks": "rows(...).tasks()",
    "select": "read(columns=[...])",
    "set_comment": _COMMENT,
    "set_column_metadata": _COMMENT,
    "set_property": "set_properties({...})",
    "set_table_description": _COMMENT,
    "set_table_properties": "set_properties({...})",
    "shallow_clone": _COPY,
    "shape": "count() and columns",
    "show": "rows().head(...)",
    "shuffle": "rows().shuffled()",
    "size": "metrics() or count()",
    "snapshot_at": _VERSION,
    "snapshots": _VERSIONS,
    "sort_values": "rows().lazy().sort(...)",
    "split": _SPLIT,
    "statistics": "metrics() or rows().files()",
    "stats": "metrics() or rows().files()",
    "table_changes": _CHANGES,
    "table_config": "properties",
    "table_uri": "uri",
    "tag": "commit_metadata={...} of a change, which history() lists",
    "take": "rows().head(...)",
    "time_travel": _VERSION,
    "to_arrow": "rows(...).arrow()",
    "to_csv": "rows().lazy().sink_csv(path)",
    "to_df": "read()",
    "to_json": "rows().lazy().sink_ndjson(path)",
    "to_pandas": "rows(...).pandas()",
    "to_parquet": "rows().lazy().sink_parquet(path)",
    "to_polars": "read(...)",
    "to_pyarrow_dataset": "rows().arrow() or rows().batches()",
    "to_pyarrow_table": "rows().arrow()",
    "to_torch": "rows(...).torch()",
    "train_test_split": _SPLIT,
    "truncate": "delete(True)",
    "union": _APPEND,
    "update_incremental": "refresh()",
    "upsert": "merge(rows, on=...)",
    "value_counts": "rows().lazy().group_by(...).len()",
    "vstack": _APPEND,
    "where": _WHERE,
    "width": "columns",
    "with_column": "rows().lazy().with_columns(...)",
    "with_columns": "rows().lazy().with_columns(...), or add_columns({...}) for a column of the table",
    "write": _APPEND,
    "write_csv": "rows().lazy().sink_csv(path)",
    "write_ipc": "rows().lazy().sink_ipc(path)",
    "write_ndjson": "rows().lazy().sink_ndjson(path)",
    "write_parquet": "rows().lazy().sink_parquet(path)",
    "z_order": _CLUSTER,
    "zorder": _CLUSTER,
}

# What rows have instead of names that their lazy frame has in another sense, or not at all.
ROWS: Final[Mapping[str, str]] = {
    "agg": "lazy().select(...)",
    "columns": "lazy().collect_schema().names()",
    "drop_duplicates": "lazy().unique(...)",
    "groupby": "lazy().group_by(...)",
    "iter_batches": "batches(), or shuffled(): batches in random order",
    "sample": "read().sample(...), or pass it to Table.rows: rows(sample=...)",
    "schema": "lazy().collect_schema()",
    "show": "head(...)",
    "shuffle": "shuffled()",
    "to_torch": "torch()",
    "where": "lazy().filter(...), or pass it to Table.rows: rows(where)",
}

# What was wanted of the result of a change, which is committed when it is returned.
_DEFAULT: Final = "The merge is committed: this is what it does by default."
RESULTS: Final[Mapping[str, str]] = {
    "collect": "The change is committed: leave it out.",
    "commit": "The change is committed: leave it out.",
    "execute": "The change is committed: leave it out.",
    "num_copied_rows": "rows_copied",
    "num_deleted_rows": "rows_deleted",
    "num_inserted_rows": "rows_inserted",
    "num_target_rows_copied": "rows_copied",
    "num_target_rows_deleted": "rows_deleted",
    "num_target_rows_inserted": "rows_inserted",
    "num_target_rows_updated": "rows_updated",
    "num_updated_rows": "rows_updated",
    "when_matched_delete": 'The merge is committed. Write merge(rows, on=..., when_matched="delete").',
    "when_matched_update": "The merge is committed. Write merge(rows, on=..., update={...}).",
    "when_matched_update_all": _DEFAULT,
    "when_not_matched_by_source_delete": (
        'The merge is committed. Write merge(rows, on=..., when_not_matched_by_source="delete").'
    ),
    "when_not_matched_insert": "The merge is committed. Write merge(rows, on=..., insert={...}).",
    "when_not_matched_insert_all": _DEFAULT,
}

# Functions of the package for names of other libraries. A name of a table's method needs no entry.
FUNCTIONS: Final[Mapping[str, str]] = {
    "connect": "open_table",
    "convert": "convert_table",
    "convert_to_delta": "convert_table",
    "create_table": "write_table",
    "delete_table": "drop_table",
    "delta_table": "open_table",
    "deltatable": "open_table",
    "drop": "drop_table",
    "exists": "table_exists",
    "for_name": "open_table",
    "for_path": "open_table",
    "from_arrow": "write_table",
    "from_pandas": "write_table",
    "from_polars": "write_table",
    "is_delta_table": "table_exists",
    "is_deltatable": "table_exists",
    "is_table": "table_exists",
    "load": "open_table",
    "load_table": "open_table",
    "open": "open_table",
    "read": "read_table",
    "read_delta": "read_table",
    "read_parquet": "read_table",
    "save": "write_table",
    "scan": "scan_table",
    "scan_delta": "scan_table",
    "scan_parquet": "scan_table",
    "table": "open_table",
    "write": "write_table",
    "write_delta": "write_table",
    "write_deltalake": "write_table",
}

# Arguments of other libraries; a call is offered the first of ours that it has, with a value if that is known.
_UPDATES: Final = ("set", "update")
_OVERWRITE: Final = ('mode="overwrite"',)
_CONFIRM: Final = ("confirm=True",)
_COUNT: Final = ("limit", "count", "rows")
_CONDITION: Final = ("where", "queries", "on")
_ERROR: Final = ("error",)
_FEED: Final = ("change_feed=True",)
_INDEX: Final = ("columns",)
_NO_ERROR: Final = ("mode",)
_SINCE: Final = ("since",)
_VECTORS: Final = ("deletion_vectors=True",)
KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "abs_error": ("absolute",),
    "app_id": ("txn",),
    "append": ('mode="append"',),
    "as_of": ("version",),
    "batch_size": ("batch_rows",),
    "by": ("on",),
    "cdc": _FEED,
    "cdf": _FEED,
    "change_data_feed": _FEED,
    "clustering_columns": _INDEX,
    "cluster_by": _INDEX,
    "codec": ("compression",),
    "columns_to_index": _INDEX,
    "commit_properties": ("commit_metadata",),
    "condition": _CONDITION,
    "confidence_level": ("confidence",),
    "custom_metadata": ("commit_metadata",),
    "cv": ("count",),
    "data": ("df",),
    "days": ("retention_hours",),
    "description": ("comment",),
    "desired_cube_size": ("cube_size",),
    "dry": ("dry_run=True",),
    "enable_change_data_feed": _FEED,
    "enable_deletion_vectors": _VECTORS,
    "end": ("until",),
    "end_version": ("until",),
    "ending_timestamp": ("until",),
    "ending_version": ("until",),
    "enforce_retention_duration": ("allow_short_retention=True",),
    "exists": _NO_ERROR,
    "filter": _CONDITION[:2],
    "filters": _CONDITION[:2],
    "force": _CONFIRM,
    "frac": ("sample", "fraction"),
    "fraction": ("sample",),
    "group_by": ("aggregates", "by"),
    "head": _COUNT,
    "hours": ("retention_hours",),
    "if_exists": _NO_ERROR,
    "index": _INDEX,
    "index_columns": _INDEX,
    "indexed_columns": _INDEX,
    "join_cols": ("on",),
    "k": ("count",),
    "key": ("on",),
    "keys": ("on",),
    "left_on": ("on",),
    "level": ("confidence",),
    "limit": _COUNT,
    "max_error": _ERROR,
    "merge_schema": ('schema_mode="merge"',),
    "n": _COUNT,
    "n_folds": ("count",),
    "n_rows": _COUNT,
    "n_splits": ("count",),
    "num_rows": _COUNT,
    "overwrite": _OVERWRITE,
    "overwrite_schema": ('schema_mode="overwrite"',),
    "partition_cols": ("partition_by",),
    "partition_columns": ("partition_by",),
    "partition_filters": ("where",),
    "partition_on": ("partition_by",),
    "partitions": ("partition_by",),
    "precision": _ERROR,
    "predicate": _CONDITION,
    "primary_key": ("on", "key"),
    "rel_error": _ERROR,
    "relative_error": _ERROR,
    "replace": _OVERWRITE,
    "replace_where": ("where",),
    "retention": ("retention_hours",),
    "select": _INDEX,
    "set": ("update",),
    "sort_by": _INDEX,
    "start": _SINCE,
    "start_version": _SINCE,
    "starting_timestamp": _SINCE,
    "starting_version": _SINCE,
    "subset": _INDEX,
    "table": ("path",),
    "table_uri": ("path",),
    "timestamp": ("version",),
    "timestamp_as_of": ("version",),
    "tolerance": _ERROR,
    "update_all": ('when_matched="update"',),
    "updates": _UPDATES,
    "uri": ("path",),
    "usecols": _INDEX,
    "values": ("set", "insert"),
    "vectors": _VECTORS,
    "version_as_of": ("version",),
    "where": ("queries",),
    "writer_properties": ("compression",),
    "yes": _CONFIRM,
    "z_order": _INDEX,
    "z_order_by": _INDEX,
    "zorder": _INDEX,
}

# Memory and temporary files, in words of other libraries.
RESOURCES: Final[Mapping[str, str]] = {
    "max_memory": "memory_bytes",
    "max_spill_size": "memory_bytes",
    "max_temp_directory_size": "spill_dir",
    "memory": "memory_bytes",
    "memory_bytes": "memory_bytes",
    "memory_limit": "memory_bytes",
    "resources": "",
    "spill_dir": "spill_dir",
    "temp_dir": "spill_dir",
    "temp_directory": "spill_dir",
    "tmp_dir": "spill_dir",
}

# Arguments that need no counterpart, with the reason.
_OWN_ENGINE: Final = "Polars reads the rows: leave it out."
_OWN_TASKS: Final = "The memory and the processors decide that: leave it out."
UNNEEDED: Final[Mapping[str, str]] = {
    "error_on_type_mismatch": "Other types raise an error: leave it out.",
    "index_col": _OWN_ENGINE,
    "lazy": "qbeast.scan_table(path) is lazy, qbeast.read_table(path) is not: leave it out.",
    "log_buffer_size": "The log is read with the defaults of deltalake: leave it out.",
    "max_concurrent_tasks": _OWN_TASKS,
    "n_jobs": _OWN_TASKS,
    "num_threads": _OWN_TASKS,
    "num_workers": _OWN_TASKS,
    "parallel": _OWN_TASKS,
    "post_commithook_properties": _AUTOMATIC,
    "rechunk": _OWN_ENGINE,
    "skip_stats": "Statistics are needed to skip files: leave it out.",
    "streamed_exec": "A source that is larger than memory is read in batches: leave it out.",
    "streaming": "lazy().collect(engine='streaming') of Polars reads in batches: leave it out.",
    "use_pyarrow": _OWN_ENGINE,
    "with_replacement": "A sample is without replacement: leave it out.",
    "without_files": "A read needs the list of files: leave it out.",
    "workers": _OWN_TASKS,
}

# Arguments of one call, or of all calls (""), that are something else here.
_BY: Final = "Write by=..."
_IN_PARTS: Final = "Files have rows by the size of a row; cube_size=... is the rows of a cube: leave it out."
_PROPERTIES: Final = (
    "Deletion vectors and the change feed are deletion_vectors=True and change_feed=True; for others, call "
    "qbeast.open_table(path).set_properties({...}) after the write."
)
_PANDAS: Final = "Write qbeast.open_table(path).rows().pandas()."
_SHUFFLED: Final = "Use shuffled(batch_rows=...): batches in random order, from a seed."
_READ_SHUFFLED: Final = (
    "Write qbeast.read_table(path).sample(fraction=1, shuffle=True); for batches in random order, write "
    "qbeast.open_table(path).rows().shuffled()."
)
_OPTIMIZED: Final = "An optimize clusters by the indexed columns; reindex(columns=[...]) changes them."
_NAMES: Final = (
    "In conditions and values, price is a column of the table and source.price one of the source: leave it out, "
    "or write source_name=..."
)
_UPDATE_ALL: Final = 'Leave it out: when_matched="update" and when_not_matched="insert" are the defaults.'
OF_CALLS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "configuration": _PROPERTIES,
        "properties": _PROPERTIES,
        "table_properties": _PROPERTIES,
        "tblproperties": _PROPERTIES,
        "file_size": _IN_PARTS,
        "max_rows_per_file": _IN_PARTS,
        "max_rows_per_group": _IN_PARTS,
        "row_group_size": _IN_PARTS,
        "target_file_size": _IN_PARTS,
    },
    "Read.batches": {"shuffle": _SHUFFLED},
    "Read.estimate": {"group_by": _BY, "groupby": _BY, "groups": _BY},
    "Read.estimates": {"group_by": _BY, "groupby": _BY, "groups": _BY},
    "Read.shuffled": {
        "batch_bytes": "Write batch_rows=...: the batches have equal numbers of rows.",
        "shuffle": "The batches are in random order: leave it out.",
    },
    "Read.split": {"random_state": "Write seed=...", "shuffle": "The parts are random: leave it out."},
    "Read.folds": {"random_state": "Write seed=...", "shuffle": "The folds are random: leave it out."},
    "Read.torch": {"shuffle": "The batches are in random order, from a seed: leave it out."},
    "Table.check": {
        "fix": "A check changes nothing: call repair().",
        "repair": "A check changes nothing: call repair().",
    },
    "Table.merge": {
        "how": (
            'Matching rows are updated and others inserted; write when_not_matched="ignore" to update only, or '
            'when_matched="ignore" to insert only.'
        ),
        "insert_all": 'Leave it out: when_not_matched="insert" is the default.',
        "source_alias": _NAMES,
        "target_alias": _NAMES,
        "update_all": 'Leave it out: when_matched="update" is the default.',
        "when_matched_delete": 'Write when_matched="delete".',
        "when_matched_update": "Write update={...}.",
        "when_matched_update_all": _UPDATE_ALL,
        "when_not_matched_by_source_delete": 'Write when_not_matched_by_source="delete".',
        "when_not_matched_insert": "Write insert={...}.",
        "when_not_matched_insert_all": _UPDATE_ALL,
    },
    "Table.optimize": {
        "columns": _OPTIMIZED,
        "partition_filters": "The plan of an optimize chooses the files: leave it out.",
        "target_size": _IN_PARTS,
        "where": "The plan of an optimize chooses the files: leave it out.",
    },
    "Table.read": {"as_pandas": _PANDAS, "engine": _PANDAS, "shuffle": _READ_SHUFFLED},
    "estimate": {"group_by": _BY, "groupby": _BY, "groups": _BY},
    "open_table": {"shuffle": _READ_SHUFFLED},
    "read_table": {"as_pandas": _PANDAS, "engine": _PANDAS, "shuffle": _READ_SHUFFLED},
    "scan_table": {"as_pandas": _PANDAS, "engine": _PANDAS, "shuffle": _READ_SHUFFLED},
}

# The line to type for a call with too few or too many arguments.
CALLS: Final[Mapping[str, str]] = {
    "Read.batches": "batches(batch_rows=...)",
    "Read.estimate": 'estimate("avg(...)", error=0.05)',
    "Read.folds": "folds(5)",
    "Read.split": 'split({"train": 0.8, "test": 0.2})',
    "Read.sql": _SQL,
    "Table.add_columns": 'add_columns({"...": "double"})',
    "Table.add_constraint": 'add_constraint("...", "...")',
    "Table.changes": "changes(since=...)",
    "Table.count": 'count("...", columns=[...])',
    "Table.delete": 'delete("..."), or delete(True) for all rows',
    "Table.diff": "diff(..., key=[...])",
    "Table.drop_column": 'drop_column("...")',
    "Table.merge": "merge(..., on=[...])",
    "Table.optimize": "optimize()",
    "Table.read": 'read("...", columns=[...])',
    "Table.rename_column": 'rename_column("...", "...")',
    "Table.restore": "restore(...)",
    "Table.rows": 'rows("...", columns=[...])',
    "Table.set_properties": 'set_properties({"...": "..."})',
    "Table.sql": _SQL,
    "Table.update": 'update("...", {"...": "..."})',
    "Table.vacuum": "vacuum(retention_hours=...)",
    "Table.widen_columns": 'widen_columns({"...": "double"})',
    "Resources.__init__": "qbeast.Resources(memory_bytes=...)",
    "Table.advise": "advise([...])",
    "convert_table": "qbeast.convert_table(path, columns=[...])",
    "drop_table": "qbeast.drop_table(path, confirm=True)",
    "estimate": 'qbeast.estimate(path, "avg(...)", error=0.05)',
    "open_table": "qbeast.open_table(path, version=...)",
    "read_table": 'qbeast.read_table(path, where="...")',
    "scan_table": 'qbeast.scan_table(path, where="...")',
    "suggest_columns": "qbeast.suggest_columns(rows)",
    "table_exists": "qbeast.table_exists(path)",
    "write_table": "qbeast.write_table(rows, path, columns=[...])",
}

# Values of arguments in words of other libraries: a value of ours, or a sentence.
_MERGED: Final = "Use qbeast.open_table(path).merge(rows, on=...)."
VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "compression": {
        **dict.fromkeys(("brotli", "gz", "gzip", "lz4", "zip"), "zstd"),
        "uncompressed": "none",
    },
    "mode": {
        **dict.fromkeys(("a", "add", "extend", "insert"), "append"),
        **dict.fromkeys(("create", "errorifexists", "error_if_exists", "fail", "new", "raise", "x"), "error"),
        **dict.fromkeys(("create_or_replace", "replace", "truncate", "w", "write"), "overwrite"),
        **dict.fromkeys(("merge", "update", "upsert"), _MERGED),
        "delete": "Use qbeast.open_table(path).delete(where).",
        "skip": "ignore",
    },
    "schema_mode": {
        **dict.fromkeys(("add", "append", "evolve", "merge_schema"), "merge"),
        **dict.fromkeys(("overwrite_schema", "replace"), "overwrite"),
    },
    "when_matched": {
        **dict.fromkeys(("replace", "update_all", "upsert"), "update"),
        **dict.fromkeys(("do nothing", "keep", "skip"), "ignore"),
        "remove": "delete",
    },
    "when_not_matched": {
        **dict.fromkeys(("add", "append", "insert_all"), "insert"),
        **dict.fromkeys(("do nothing", "drop", "skip"), "ignore"),
    },
}

# What was probably wanted by the text of a condition that is not SQL, by a pattern of the text.
CONDITIONS: Final[Mapping[str, str]] = {
    r"^\s*(SELECT|WITH|FROM)\b": 'A query is for sql("SELECT ... FROM self").',
    r"\bLIMIT\b": "Leave LIMIT out: rows(where).head(...) returns some rows.",
    r"\bORDER\s+BY\b": "Leave ORDER BY out: rows(where).lazy().sort(...) sorts rows.",
    r"\bGROUP\s+BY\b": 'Groups are for sql("SELECT ... FROM self GROUP BY ...").',
    r"\bNone\b": "Write IS NULL, or IS NOT NULL.",
    r"\bIS\s+nan\b": "Write isnan(...).",
    r"\bis_?(null|na)\b": "Write IS NULL.",
    r"\bIS\s+(NOT\s+)?[-\d']": "Write = or <>.",
    r"\.is_?in\(": "Write IN (1, 2).",
    r"\bpl\.|\bcol\(|\.str\.|\.dt\.": "Pass an expression of Polars itself, without quotes: where=pl.col(...) > 5.",
    r"\|\|": "Write OR; || joins texts.",
    r"~\s*\(": "Write NOT (...).",
    r"=>": "Write >=.",
    r"=<": "Write <=.",
    r"^\s*\[": 'Quote names doubly: "...".',
    r"\bBETWEEN\b(?!.*\bAND\b)": "Write BETWEEN 1 AND 5.",
    r"%s": "Write the value itself.",
    r"\d{1,2}[/.]\d{1,2}[/.]\d{4}": "Write dates as '2026-10-31'.",
    r"\bdate\(\d+,": "Write DATE '2026-10-31'.",
}

# Properties of Delta in other words.
_FEED_PROPERTY: Final = "delta.enableChangeDataFeed"
_VECTORS_PROPERTY: Final = "delta.enableDeletionVectors"
PROPERTIES: Final[Mapping[str, str]] = {
    "append_only": "delta.appendOnly",
    "cdf": _FEED_PROPERTY,
    "change_data_feed": _FEED_PROPERTY,
    "change_feed": _FEED_PROPERTY,
    "checkpoint_interval": "delta.checkpointInterval",
    "deletion_vectors": _VECTORS_PROPERTY,
    "enable_change_data_feed": _FEED_PROPERTY,
    "enable_deletion_vectors": _VECTORS_PROPERTY,
    "vectors": _VECTORS_PROPERTY,
}

# What an estimate has, beside its frame.
_ENDS: Final = 'frame: the columns "<name>_low" and "<name>_high"'
_ANSWER: Final = 'frame["..."]'
ESTIMATES: Final[Mapping[str, str]] = {
    "answer": _ANSWER,
    "bounds": _ENDS,
    "ci": _ENDS,
    "confidence_interval": _ENDS,
    "high": _ENDS,
    "interval": _ENDS,
    "low": _ENDS,
    "result": _ANSWER,
    "results": _ANSWER,
    "std_error": _ENDS,
    "value": _ANSWER,
    "values": _ANSWER,
}
