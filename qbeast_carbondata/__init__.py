"""Reads tables of Apache CarbonData without a JVM, as files to Arrow, and imports them.

Each room and module imports only what is listed below it. Only `tables/` knows the tables of qbeast::

    tables/      the public part: `CarbonTable`, its plans, and imports
    task         a data file or some of its blocklets, to be read by any process
    reader       the rows of segments: opens and decodes the pages that a filter may match, by their bounds; applies
                 deletes, evolution and defaults
    metadata/    schema, table status and segments: directory -> live data files and deleted rows, for every layout
        history      the loads before compactions
        open_table   a table or a segment as values
        segments, deletes, json_files
    files/       data files: `open_file` chooses the module by the last bytes of a file
        v3_file      version 3, CarbonData 1.1 to 2.3
        old_file     versions 1 and 2, CarbonData 0.1 to 1.1
        row_file     streaming segments of rows
        foreign_file Parquet and ORC of added segments
        data_file    `DataFile`, `Blocklet`: the interface of all of these
        dictionaries members of global dictionaries (`.dict`, `.dictmeta`)
    stored_file  reads a store; errors name the file and the place in it

Pure, without files (bytes in, values or Arrow out)::

    pages/       whole pages: codecs, row ids, runs, presence, texts, decimals, nested values, statistics
        old/         measures, dictionaries and rows of CarbonData 1.x
    columns      the tree of columns of a file or a table, and the Arrow type of each
    structs/     the Thrift structs as dataclasses
    encryption   distinguishes encrypted files from damaged ones
    damage       `Damaged` and `UnsupportedForm`, the errors of pure code; `stored_file` makes public errors of them
"""
