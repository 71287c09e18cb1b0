"""Reads tables of Apache CarbonData without a JVM, as files to Arrow, and imports them.

Each room and module imports only what is listed below it. Only `tables/` knows the tables of qbeast::

    tables/      the public part: `CarbonTable`, its plans, and imports
    reader       the rows of segments, whole or in tasks for any process: opens and decodes the pages that a filter may
                 match, by their bounds; applies deletes, evolution and defaults
    metadata/    schema, table status and segments: directory -> live data files and deleted rows, for every layout
        open_table   a table or a segment as values, also the loads before compactions
        segments     data files and deleted rows of a segment
        json_files
    files/       data files
        open_file    chooses the reader by the last bytes of a file; version 3, CarbonData 1.1 to 2.3
        old_file     versions 1 and 2, CarbonData 0.1 to 1.1, and streaming segments of rows
        foreign_file Parquet and ORC of added segments
        data_file    `DataFile`, `Blocklet`: the interface of all of these; global dictionaries (`.dict`, `.dictmeta`)
    stored_file  reads a store; errors name the file and the place in it

Pure, without files (bytes in, values or Arrow out)::

    pages/       whole pages: codecs, row ids, runs, presence, texts, decimals, nested values, statistics;
                 `old_measures` and `old_rows` are of CarbonData 1.x
    columns      the tree of columns of a file or a table, and the Arrow type of each
    structs      the Thrift structs as dataclasses
    damage       `Damaged` and `UnsupportedForm`, the errors of pure code, of which `stored_file` makes public errors;
                 distinguishes encrypted files from damaged ones
"""
