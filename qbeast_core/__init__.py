"""The library behind ``import qbeast``; it exports nothing itself.

::

    api                    signatures, documentation, order of steps
    table                  the shell: clock, ids, retries, storage; write, scan, commit
    query | log | io       read planning (pure) | Delta log as values (pure) | bytes
    tree                   the OTree on NumPy and Polars (pure)
    space                  kernels: hashes, weights, coordinates, cubes, boxes (pure)
    spec                   the format as frozen values (pure)
    errors | hints         what is raised, and what its messages advise

Imports point down only.
"""
