"""Names of columns that frames have for a while, beside those of a table or of rows that come into one."""

from __future__ import annotations


def own_column(name: str) -> str:
    r"""Return the name of a column of our own: it ends in NUL, and columns whose name holds one are refused.

    A number may follow: no other column begins with the name either. Arrow takes no such name: it stays in Polars.

    >>> own_column("row").encode()
    b'__qbeast_row\x00'
    """
    return f"__qbeast_{name}\0"
