"""The supported nodes of sqlglot's tree, with their supported arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

_Nodes = Mapping[type[exp.Expr], frozenset[str]]


def _nodes(*kinds: type[exp.Expr], args: str = "") -> _Nodes:
    more = frozenset(args.split())
    return {kind: frozenset({"this", "expression"}) | more for kind in kinds}


# Comparisons. A comparison of comparisons needs parentheses: dialects differ in precedence.
PREDICATES: Final = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike),
)

_PARTS: Final = (exp.Year, exp.Quarter, exp.Month, exp.Week, exp.Day, exp.DayOfWeek, exp.DayOfYear)
_TIMES: Final = (exp.Hour, exp.Minute, exp.Second)
# Functions that return a part of a time, with its name in EXTRACT.
PARTS: Final[Mapping[type[exp.Expr], str]] = {
    **{kind: kind.key.upper() for kind in (*_PARTS, *_TIMES)},
    exp.DayOfWeekIso: "ISODOW",
    exp.TimeToUnix: "EPOCH",
}

# Nodes of expressions over one row. Functions without a node class are in `functions.NAMED`.
NODES: Final[_Nodes] = {
    **_nodes(exp.Column, args="table db catalog"),
    **_nodes(exp.Identifier, args="quoted"),
    **_nodes(exp.Literal, args="is_string"),
    **_nodes(exp.Dot, exp.Boolean, exp.Null, exp.Paren, exp.Var, exp.DataTypeParam),
    **_nodes(exp.And, exp.Or, exp.Not, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow),
    **_nodes(exp.Div, args="typed safe"),
    **_nodes(*PREDICATES),
    **_nodes(exp.Like, exp.ILike, args="negate"),
    **_nodes(exp.In, exp.Coalesce, exp.DataType, args="expressions nested"),
    **_nodes(exp.Greatest, exp.Least, args="expressions ignore_nulls"),
    **_nodes(exp.Between, args="low high"),
    **_nodes(exp.Case, args="ifs default"),
    **_nodes(exp.If, args="true false"),
    **_nodes(exp.Cast, exp.TryCast, args="to safe"),
    **_nodes(exp.DPipe, args="safe"),
    **_nodes(exp.Concat, args="expressions safe coalesce"),
    **_nodes(exp.Interval, exp.DateTrunc, exp.TimestampTrunc, args="unit"),
    **_nodes(exp.Bracket, args="expressions offset safe returns_list_for_maps"),
    **_nodes(exp.Extract, *PARTS, exp.Date, exp.CurrentDate, exp.CurrentTimestamp),
    **_nodes(
        exp.Abs, exp.Sign, exp.Floor, exp.Ceil, exp.Trunc, exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.IsNan
    ),
    **_nodes(exp.Round, args="decimals"),
    **_nodes(exp.Lower, exp.Upper, exp.Length, exp.Left, exp.Right, exp.StartsWith, exp.EndsWith),
    **_nodes(exp.Contains, exp.ArrayContains, exp.Nullif),
    **_nodes(exp.Trim, args="position"),
    **_nodes(exp.Substring, args="start length"),
    **_nodes(exp.StrPosition, args="substr"),
    **_nodes(exp.Replace, args="replacement"),
    **_nodes(exp.TimeToStr, args="format"),
    **_nodes(exp.Anonymous, args="expressions"),
}

# Further nodes of aggregates.
AGGREGATES: Final[_Nodes] = {
    **_nodes(exp.Count, args="big_int"),
    **_nodes(exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.First, exp.Last, exp.Median),
    **_nodes(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
    **_nodes(exp.PercentileCont, exp.PercentileDisc),
    **_nodes(exp.Quantile, args="quantile"),
    **_nodes(exp.Distinct, exp.Tuple, args="expressions"),
    **_nodes(exp.Filter, exp.Where, exp.Star),
}

# Unsupported words and signs, with a replacement.
CURES: Final = {"XOR": "write (a) <> (b)", "&": "write AND", "|": "write OR", "&&": "write AND"}
