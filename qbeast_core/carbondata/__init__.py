"""Tables of Apache CarbonData, read without a JVM: files -> Arrow, no log and no table of ours.

What a table is comes first, bytes come last; each module imports what lies below it alone. What users see stands
above, in `qbeast_core.carbon_tables`::

    task         a data file or some of its blocklets, to be read by any process
    reader       the rows of segments: what a filter may match is opened, page by page, and decoded
    history      the loads as they came, before compactions
    open_table   directory -> segments -> data files and delete deltas that are live, for every layout there was:
    snapshot         what it finds, as values
    table_status     which segments are live, by the version of the table status that counts
    segments         by `.segment` files; listed_segments: by what lies in the folder
    rows         data file -> batches in the table's columns: deleted rows, evolution, defaults
    pruning      which blocklets and pages a filter may match, by their bounds
    open_file    the first bytes of a data file -> the module that reads it:
    v3_file          version 3, CarbonData 1.1 to 2.3
    old_file         versions 1 and 2, CarbonData 0.1 to 1.1
    row_file         streaming segments of rows
    foreign_file     Parquet and ORC of added segments
    data_file    `DataFile`, `Blocklet`: what each of these gives, and all that is above knows of a file
    dictionaries members of global dictionaries (`.dict`, `.dictmeta`); what a data file asks them by is `Dictionaries`
    inside       reads a store and says of each damage in which file and where

Pure, knowing no file (bytes in, values or Arrow out)::

    pages/       whole pages: codecs, widths, row ids, runs, presence, texts, decimals, nested values, statistics
    columns      the tree of columns of a file or a table, and the Arrow type of each
    structs/     the Thrift structs as values; `fields` reads them with bounds
    json_files   tablestatus, `.segment`, update status, delete deltas
    encryption   encrypted files, told from damaged ones by their bytes
    damage       `Damaged` and `Unreadable`: what pure code raises; `inside` makes public errors of them
"""
