"""Random conditions in SQL on columns of usual kinds, which name columns again and again as people do."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

__all__ = ["Conditions", "rows_of_many_kinds"]


def rows_of_many_kinds(count: int, seed: int = 0) -> pl.DataFrame:
    """Return rows with numbers, texts, dates, decimals and nulls, whose sums are exact."""
    random = np.random.default_rng(seed)
    number = pl.int_range(count, eager=True)
    return pl.select(
        id=number,
        x=number * 7919 % 10_007,
        y=pl.Series(random.integers(-5_000, 5_000, count)),
        user=pl.Series(np.minimum(random.zipf(1.3, count), 60_000)),
        kind=pl.Series(random.choice(["a", "bb", "ccc", "d'd"], count)),
        text=pl.format("user {}", number * 101 % 5003),
        day=pl.date(2024, 1, 1) + pl.duration(days=number // (count // 700 + 1)),
        moment=pl.datetime(2024, 1, 1) + pl.duration(seconds=pl.Series(random.integers(0, 6 * 10**7, count))),
        price=pl.Series(random.integers(0, 400_000, count)) / 64,
        amount=pl.Series(random.integers(0, 10**7, count)).cast(pl.Decimal(12, 2)) / 100,
        part=pl.when(number % 11 < 4).then(number % 977),
        flag=pl.when(number % 13 > 0).then(number % 3 == 0),
    )


class Conditions:
    """A stream of random conditions on some rows; `random` decides."""

    def __init__(self, rows: pl.DataFrame, random: np.random.Generator) -> None:
        self._values = {column.name: column.drop_nulls() for column in rows.get_columns()}
        self._random = random

    def draw(self) -> str:
        """Return a condition of one to four parts."""
        names = self._random.choice([*self._values], 3, replace=False)
        parts = [self._part(str(self._random.choice(names))) for _ in range(self._random.integers(1, 5))]
        text = parts[0]
        for part in parts[1:]:
            text = f"({text}) {self._random.choice(['AND', 'AND', 'OR'])} {part}"
        return f"NOT ({text})" if self._random.random() < 0.1 else text

    def _part(self, name: str) -> str:
        if name == "flag":
            return self._one_of("flag", "NOT flag", "flag IS NULL", "flag IS NOT NULL")
        forms = ["=", "=", "=", "IN", "BETWEEN", "BETWEEN", "<", "<=", ">", ">=", "<>"]
        forms += {"kind": ["LIKE"] * 4, "text": ["LIKE"] * 4, "part": ["IS NULL", "IS NOT NULL"]}.get(
            name, []
        )
        match form := self._one_of(*forms):
            case "IS NULL" | "IS NOT NULL":
                return f"{name} {form}"
            case "IN":
                values = ", ".join(self._value(name) for _ in range(self._random.integers(1, 6)))
                return f"{name} IN ({values})"
            case "BETWEEN":
                low, high = sorted(self._sampled(name, 2))
                return f"{name} BETWEEN {_text(low)} AND {_text(high)}"
            case "LIKE":
                start = self._sampled(name, 1)[0][: self._random.integers(1, 8)].rstrip("'")
                return f"{name} LIKE {_text(start + '%')}"
            case _:
                return f"{name} {form} {self._value(name)}"

    def _one_of(self, *texts: str) -> str:
        return str(self._random.choice(texts))

    def _value(self, name: str) -> str:
        return _text(self._sampled(name, 1)[0])

    def _sampled(self, name: str, count: int) -> list[Any]:
        values = self._values[name]
        return values.gather(self._random.integers(len(values), size=count)).to_list()


def _text(value: object) -> str:
    match value:
        case bool() | int() | float():
            return str(value)
        case str():
            return "'{}'".format(value.replace("'", "''"))
        case _:
            name = type(value).__name__
            return {"date": f"DATE '{value}'", "datetime": f"TIMESTAMP '{value}'"}.get(name, str(value))
