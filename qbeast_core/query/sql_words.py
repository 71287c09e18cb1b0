"""Words of SQL that an expression on a row may hold, as Polars understands them, and words that it may not."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGGREGATES",
    "COMPARISONS",
    "CURRENT",
    "FORMS",
    "FUNCTIONS",
    "LITERALS",
    "QUERIES",
    "SIGNS",
    "TYPED",
    "TYPES",
    "TYPE_TAILS",
    "UNITS",
    "WORD_OPERATORS",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SIGNS: Final = _words("= == <> != < <= > >= <=> + - * / // % || & | -> ->> ~ ~* !~ !~* ~~ ~~* !~~ !~~* ^@")
"""Operators between two operands that are signs."""

COMPARISONS: Final = frozenset({"LIKE", "ILIKE", "RLIKE", "REGEXP"})
"""Operators between two operands that are words and may have a NOT before them."""

WORD_OPERATORS: Final = COMPARISONS | {"AND", "OR", "XOR", "IS", "IN", "NOT", "BETWEEN"}
"""What may stand where an operator is due."""

LITERALS: Final = frozenset({"NULL", "TRUE", "FALSE"})
"""Values that are words."""

UNITS: Final = ("DAY", "HOUR", "MINUTE", "MONTH", "QUARTER", "SECOND", "WEEK", "YEAR")
"""Words after the text of an INTERVAL."""

TYPED: Final = frozenset({"DATE", "DATETIME", "INTERVAL", "TIME", "TIMESTAMP", "TIMESTAMPTZ"})
"""Words before a text in quotes that make it a value of that type."""

CURRENT: Final = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"}
)
"""Values of the moment, written without parentheses."""

FORMS: Final = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
"""What NORMALIZE brings a text to."""

TYPES: Final = _words(
    """
    BIGINT BINARY BLOB BOOL BOOLEAN BYTEA BYTES CHAR CHARACTER CLOB DATE DATETIME DEC DECIMAL DOUBLE FLOAT
    FLOAT4 FLOAT8 HUGEINT INT INT1 INT128 INT16 INT2 INT32 INT4 INT64 INT8 INTEGER INTERVAL NUMERIC REAL
    SMALLINT STRING TEXT TIME TIMESTAMP TIMESTAMPTZ TINYINT UBIGINT UINT16 UINT32 UINT64 UINT8 UINTEGER
    USMALLINT UTINYINT UUID VARBINARY VARCHAR
    """
)
"""What CAST brings a value to."""

TYPE_TAILS: Final = {
    "CHARACTER": ("VARYING",),
    "DOUBLE": ("PRECISION",),
    "INT": ("UNSIGNED",),
    "TIMESTAMP": ("WITH", "WITHOUT"),
}
"""Words after the name of a type; WITH and WITHOUT are those of a TIME ZONE."""

FUNCTIONS: Final = _words(
    """
    ABS ACOS ACOSD ANY ASIN ASIND ATAN ATAN2 ATAN2D ATAND CBRT CEIL CEILING COS COSD COT COTD DEGREES DIV
    EXP FLOOR LN LOG LOG10 LOG1P LOG2 MOD PI POW POWER RADIANS ROUND SIGN SIN SIND SQRT TAN TAND TRUNC
    TRUNCATE BIT_AND BIT_COUNT BIT_NOT BIT_OR BIT_XOR BIT_LENGTH CHARACTER_LENGTH CHAR_LENGTH CONCAT
    CONCAT_WS ENDS_WITH INITCAP LEFT LENGTH LOWER LTRIM NORMALIZE OCTET_LENGTH REGEXP_LIKE REGEXP_REPLACE
    REPLACE REVERSE RIGHT RTRIM SPLIT_PART STARTS_WITH STRING_TO_ARRAY STRPOS STRPTIME SUBSTR SUBSTRING
    UPPER CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DATE DATETIME DATE_PART DAY DAYOFWEEK DAYOFYEAR HOUR
    LOCALTIME LOCALTIMESTAMP MINUTE MONTH NOW QUARTER SECOND STRFTIME TIME TIMESTAMP WEEK YEAR COALESCE
    GREATEST IF IFNULL LEAST NULLIF ARRAY_CONTAINS ARRAY_GET ARRAY_LENGTH ARRAY_LOWER ARRAY_MEAN
    ARRAY_REVERSE ARRAY_SUM ARRAY_TO_STRING ARRAY_UNIQUE ARRAY_UPPER
    """
)
"""Functions of a row. Not among them: those that make texts of any length (LPAD), and rows (GENERATE_SERIES)."""

AGGREGATES: Final = _words(
    """
    ALL ARRAY_AGG AVG CORR COUNT COVAR COVAR_POP COVAR_SAMP DENSE_RANK EXPLODE FIRST FIRST_VALUE LAG LAST
    LAST_VALUE LEAD MAX MEDIAN MIN QUANTILE_CONT QUANTILE_DISC RANK ROW_NUMBER STDDEV STDDEV_POP
    STDDEV_SAMP SUM UNNEST VARIANCE VAR_POP VAR_SAMP
    """
)
"""Functions of several rows, or that make several."""

QUERIES: Final = _words(
    """
    ALTER ATTACH CALL COPY CREATE DELETE DESCRIBE DROP EXCEPT EXECUTE EXISTS EXPLAIN FILTER FROM GROUP
    HAVING INSERT INTERSECT INTO JOIN LATERAL LIMIT MERGE ORDER OVER PIVOT PRAGMA QUALIFY SELECT SET SHOW
    TABLE UNION UPDATE VALUES WHERE WINDOW WITH
    """
)
"""Words of queries and statements."""
