"""The library behind ``import qbeast``; it exports nothing itself.

::

    api                    signatures, documentation, order of steps
    table                  the shell: clock, ids, retries, storage; write, scan, commit
    sampling               estimates from a sample of keys (pure)
    sql | log | io         SQL texts (pure) | Delta log as values (pure) | bytes
    plan                   read planning (pure)
    tree                   the OTree on NumPy and Polars (pure)
    space                  kernels: hashes, weights, coordinates, cubes, boxes (pure)
    spec                   the format as frozen values (pure)
    errors                 the errors, and the hints of their messages
    support                texts, joins, sizes, the process

Imports point down only.
"""
