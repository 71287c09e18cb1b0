"""The grammar of expressions in SQL: what it admits is written anew, names in quotes, all else from lists of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias, Union

from qbeast_core.query.sql_cursor import Cursor, refuse_query
from qbeast_core.query.sql_tokens import SqlRefused, Token
from qbeast_core.query.sql_words import (
    AGGREGATES,
    COMPARISONS,
    CURRENT,
    FORMS,
    FUNCTIONS,
    LITERALS,
    QUERIES,
    SIGNS,
    TYPE_TAILS,
    TYPED,
    TYPES,
    UNITS,
    WORD_OPERATORS,
)

__all__ = ["Chain", "Part", "read_expression", "written"]

_MOST_CONDITIONS: Final = 500
"""Conditions at most: the time to plan and to apply them grows with their square."""

_MOST_ARGUMENTS: Final = 1_000
_MOST_DIGITS: Final = 38
_ORDERED: Final = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"})
_PARTS: Final = frozenset({"WHEN", "THEN", "ELSE", "END", "AS"})
_AFTER_OPERANDS: Final = (
    (SIGNS - {"+", "-"}) | (WORD_OPERATORS - {"NOT"}) | _PARTS | {")", "]", ",", ".", "::"}
)


@dataclass(frozen=True, slots=True)
class Chain:
    """Conditions joined by one connective."""

    word: Literal["AND", "OR"]
    parts: Sequence[Part]

    @property
    def size(self) -> int:
        """How many conditions there are, those within included."""
        return sum(1 if isinstance(part, str) else part.size for part in self.parts)


Part: TypeAlias = Union[Chain, str]  # noqa: UP007 - it is named before it is made
"""A chain, or the text of anything else."""


def written(part: Part, within: str = "") -> str:
    """Return the text that Polars gets.

    Parameters
    ----------
    part : Chain or str
        Of an expression.
    within : str
        The connective that it is joined by.
    """
    if isinstance(part, str):
        return part
    text = f" {part.word} ".join([written(one, part.word) for one in part.parts])
    return f"({text})" if within == "AND" and part.word == "OR" else text


def read_expression(tokens: Sequence[Token], columns: frozenset[str]) -> Part:
    """Admit an expression.

    Parameters
    ----------
    tokens : sequence of Token
        All of it.
    columns : frozenset of str
        Words that are names of columns wherever they can be.

    Raises
    ------
    SqlRefused
        It is something else, or too deep, or too long.
    """
    reader = _Reader(tokens, columns)
    part = reader.expression(joined=True)
    if reader.token is not None:
        reader.refuse()
    return part


class _Reader(Cursor):
    """Admits what comes, operand by operand."""

    # Conditions

    def expression(self, *, joined: bool = False) -> Part:
        """Read conditions with AND and OR between them; if `joined`, they are put together in a balanced tree."""
        self.descend()
        either: list[Part] = []
        highest = count = 0
        while not either or self.takes("OR"):
            both: list[Part] = []
            while not both or self.takes("AND"):
                both.append(self.condition(joined=joined))
                highest, count = max(highest, self.height), count + 1
            either.append(both[0] if len(both) == 1 else Chain("AND", both))
        self.depth -= 1
        self.grow(highest, 0 if joined else count - 1)
        return either[0] if len(either) == 1 else Chain("OR", either)

    def condition(self, *, joined: bool) -> Part:
        """Read what stands between connectives."""
        if not (joined and self.sees("(") and self.is_group()):
            self.count_condition()
            return self.operation()
        self.take("(")
        part = self.expression(joined=True)
        self.take(")")
        return f"({part})" if isinstance(part, str) else part

    def count_condition(self) -> None:
        """Count the operands of connectives, of which there are not too many."""
        self.conditions += self.at > 0 and self.tokens[self.at - 1].upper in ("AND", "OR")
        if self.conditions >= _MOST_CONDITIONS:
            msg = (
                f"it joins more than {_MOST_CONDITIONS} conditions; compare a column with many values by "
                "column IN (1, 2, 3), give a Polars expression, or cut the work into several calls"
            )
            raise SqlRefused(msg)

    def is_group(self) -> bool:
        """Tell whether parentheses hold a whole condition, and not an operand such as that of ``(a + b) * 2``."""
        place = self.closings.get(self.at, len(self.tokens)) + 1
        return place >= len(self.tokens) or self.tokens[place].upper in ("AND", "OR", ")")

    def nested(self) -> str:
        """Read an expression within another."""
        return written(self.expression())

    # Operators

    def operation(self) -> str:
        """Read operands with operators between them."""
        words: list[str] = []
        highest = count = 0
        compared, more = False, True
        while more:
            while (sign := self.prefix()) is not None:
                words.append(sign)
                count += 1
            words.append(self.operand())
            highest = max(highest, self.height)
            more = False
            while not more and (operator := self.operator()) is not None:
                text, more, steps = operator
                compared = self.count_comparison(text, compared)
                words.append(text)
                highest, count = max(highest, self.height), count + steps
                self.grow(highest, count)  # here, not at the end: what is too long is not read on
        self.grow(highest, count)
        return " ".join(words)

    def count_comparison(self, text: str, compared: bool) -> bool:  # noqa: FBT001 -- a state, no option
        """Refuse a second comparison in a row: ``1 < a < 3`` and ``a < 3 & b > 2`` are not what they look like."""
        if text in _ORDERED and compared:
            msg = (
                f"{self.tokens[self.at - 1].shown} compares what is compared already; join comparisons by AND, as in "
                "1 < a AND a < 3, or put one of them in parentheses"
            )
            raise SqlRefused(msg)
        return text != "XOR" and (compared or text in _ORDERED)

    def prefix(self) -> str | None:
        """Read an operator before an operand."""
        token = self.token
        if token is None or token.upper not in ("NOT", "+", "-"):
            return None
        if token.text in self.columns and self.ends_operand():
            return None  # a column of that name
        self.at += 1
        return token.upper

    def operator(self) -> tuple[str, bool, int] | None:
        """Read an operator, with its right side where that is no plain operand.

        Returns
        -------
        tuple of str, bool and int, or None
            The text, whether an operand has to follow, and by how much the tree grows. None: no operator is due.
        """
        token = self.token
        self.height = 0
        if token is None or token.kind not in ("op", "word", "mark"):
            return None
        if token.upper in SIGNS or token.upper == "XOR":
            self.at += 1
            return token.upper, True, 1
        if token.upper in ("[", "::"):
            return self.subscript() if self.takes("[") else (self.cast_sign(), False, 1)
        if token.upper == "IS":
            return self.truth()
        return self.comparison()

    def comparison(self) -> tuple[str, bool, int] | None:
        """Read LIKE, IN, BETWEEN and their like, perhaps after a NOT."""
        negated = "NOT " if self.sees("NOT") else ""
        place = self.at + bool(negated)
        verb = self.tokens[place].upper if place < len(self.tokens) else ""
        if verb not in COMPARISONS and verb not in ("IN", "BETWEEN"):
            return None
        self.at = place + 1
        if verb in COMPARISONS:
            return negated + verb, True, 1
        return self.membership(negated) if verb == "IN" else self.range(negated)

    def subscript(self) -> tuple[str, bool, int]:
        """Read the place of an element."""
        text = f"[{self.nested()}]"
        self.take("]")
        return text, False, 1

    def cast_sign(self) -> str:
        """Read ``::type``."""
        self.take("::")
        return f"::{self.type_name()}"

    def truth(self) -> tuple[str, bool, int]:
        """Read ``IS NULL`` and its like."""
        self.take("IS")
        negated = "NOT " if self.takes("NOT") else ""
        what = self.take("NULL", "TRUE", "FALSE", "DISTINCT")
        if what == "DISTINCT":
            self.take("FROM")
            return f"IS {negated}DISTINCT FROM", True, 1
        return f"IS {negated}{what}", False, 1

    def membership(self, negated: str) -> tuple[str, bool, int]:
        """Read the list after IN. Values alone make a set; of anything else Polars makes a chain of comparisons."""
        self.take("(")
        first = self.at
        listed = self.listed(")")
        plain = all(token.kind not in {"word", "name"} for token in self.tokens[first : self.at])
        self.take(")")
        return f"{negated}IN ({listed[0]})", False, 1 if plain else listed[1]

    def range(self, negated: str) -> tuple[str, bool, int]:
        """Read the bounds after BETWEEN, whose AND is no connective."""
        self.descend()
        low = self.operation()
        self.depth -= 1
        highest = self.height
        self.take("AND")
        self.height = highest
        return f"{negated}BETWEEN {low} AND", True, 1

    # Operands

    def operand(self) -> str:
        """Read a value, a column, a call, or what is in parentheses."""
        token = self.token
        self.height = 0
        if token is None:
            self.refuse()
        match token.kind:
            case "number" | "string" | "bytes":
                self.at += 1
                return token.text
            case "name":
                return self.column()
            case "word":
                return self.word(token)
            case _:
                return self.bracketed()

    def bracketed(self) -> str:
        """Read what is in parentheses, or an array."""
        if self.takes("["):
            return self.array()
        if not self.takes("("):
            self.refuse()
        text = f"({self.nested()})"
        self.take(")")
        return text

    def array(self) -> str:
        """Read the elements of an array, after its bracket."""
        text = "" if self.sees("]") else self.listed("]")[0]
        self.take("]")
        return f"[{text}]"

    def listed(self, end: str) -> tuple[str, int]:
        """Read what commas part, and say how many there are."""
        texts: list[str] = []
        highest = others = 0
        while not texts or self.takes(","):
            token = self.token
            if token is not None and token.kind in ("number", "string") and self.sees(",", end, further=1):
                self.at += 1  # lists of values are long
                texts.append(token.text)
                continue
            texts.append(self.nested())
            highest, others = max(highest, self.height), others + 1
            if others > _MOST_ARGUMENTS:
                msg = f"it lists more than {_MOST_ARGUMENTS:,} values that are no plain numbers or texts"
                raise SqlRefused(msg)
        self.height = highest
        return ", ".join(texts), len(texts)

    def word(self, token: Token) -> str:
        """Read what begins with a word: a call, a value, a column."""
        upper, named = token.upper, token.text in self.columns
        if self.sees("(", further=1) and upper != "CASE":
            return self.call(upper)
        if upper == "CASE" and self.is_case(named=named):
            return self.case()
        if (text := self.value(token, named=named)) is not None:
            return text
        if not named and (upper in QUERIES or upper in WORD_OPERATORS or upper in _PARTS):
            self.refuse()
        return self.column()

    def is_case(self, *, named: bool) -> bool:
        """Tell whether the word CASE begins one, where a column may be called so too."""
        begins = self.sees("WHEN", further=1) and not (self.at and self.sees("CASE", further=-1))
        return not named or begins or not self.ends_operand()

    def value(self, token: Token, *, named: bool) -> str | None:
        """Read a value that begins with a word; None if it is none."""
        upper = token.upper
        after = self.tokens[self.at + 1].kind if self.at + 1 < len(self.tokens) else ""
        if upper in TYPED and after == "string":
            self.at += 2
            text = f"{upper} {self.tokens[self.at - 1].text}"
            return f"{text} {self.take(*UNITS)}" if upper == "INTERVAL" and self.sees(*UNITS) else text
        if upper == "ARRAY" and self.sees("[", further=1):
            self.at += 2
            return f"ARRAY{self.array()}"
        if upper not in LITERALS and (named or upper not in CURRENT):
            return None
        if named:
            msg = (
                f"{token.shown} is a value of SQL and a column too: write the column in double quotes, "
                f'"{token.text}", and the value in other letters, {token.text.swapcase()}'
            )
            raise SqlRefused(msg)
        self.at += 1
        return upper

    def ends_operand(self) -> bool:
        """Tell whether what follows the token shows that it is an operand itself."""
        place = self.at + 1
        if place == len(self.tokens):
            return True
        return self.tokens[place].upper in _AFTER_OPERANDS

    def column(self) -> str:
        """Read the name of a column, and those of fields within it."""
        token = self.take_kind("word", "name")
        if token.text == "*" or (token.text.startswith("^") and token.text.endswith("$")):
            msg = f"{token.shown} is a pattern for Polars, not the name of one column: rename it, or use an expression"
            raise SqlRefused(msg)
        names = [token.text]
        while self.takes("."):
            names.append(self.take_kind("word", "name").text)
        self.grow(0, len(names) - 1)
        return ".".join(['"' + name.replace('"', '""') + '"' for name in names])

    def case(self) -> str:
        """Read a CASE. Each WHEN holds those after it."""
        self.take("CASE")
        words = ["CASE"]
        highest = count = 0
        if not self.sees("WHEN"):
            words.append(self.nested())
            highest = self.height
        while not count or self.sees("WHEN"):
            self.take("WHEN")
            words += ["WHEN", self.nested()]
            highest = max(highest, self.height)
            self.take("THEN")
            words += ["THEN", self.nested()]
            highest, count = max(highest, self.height), count + 1
        if self.takes("ELSE"):
            words += ["ELSE", self.nested()]
            highest = max(highest, self.height)
        self.take("END")
        self.grow(highest, count)
        return " ".join([*words, "END"])

    # Calls

    def call(self, name: str) -> str:
        """Read a call of a function that is known."""
        special = _SPECIAL.get(name)
        if special is None and name not in FUNCTIONS:
            self.refuse_call()
        self.at += 2
        if special is not None:
            text = special(self, name)
        elif self.sees(")"):
            text = ""
        else:
            text = self.listed(")")[0]
        self.take(")")
        self.grow(self.height, 1)
        return f"{name}({text})"

    def refuse_call(self) -> NoReturn:
        """Say why a function cannot be called."""
        token = self.take_kind("word")
        if token.upper in QUERIES or token.upper in AGGREGATES:
            refuse_query(token)
        msg = (
            f"{token.shown} is no function that may be called here; give a Polars expression instead of text where SQL "
            "does not suffice"
        )
        raise SqlRefused(msg)

    def cast(self, _: str) -> str:
        """Read ``value AS type``."""
        value = self.nested()
        self.take("AS")
        return f"{value} AS {self.type_name()}"

    def extract(self, _: str) -> str:
        """Read ``part FROM value``, or a list."""
        if not self.sees("FROM", further=1):
            return self.listed(")")[0]
        token = self.take_kind("word", "string")
        part = token.text if token.kind == "string" or token.text.isascii() else "?"
        self.take("FROM")
        return f"{part} FROM {self.nested()}"

    def trim(self, _: str) -> str:
        """Read ``BOTH 'x' FROM text``, or less of it."""
        side = ""
        if self.sees("BOTH", "LEADING", "TRAILING") and not self.sees(")", further=1):
            side = self.take("BOTH", "LEADING", "TRAILING") + " "
        text = self.nested()
        return f"{side}{text} FROM {self.nested()}" if self.takes("FROM") else side + text

    def position(self, _: str) -> str:
        """Read ``part IN text``."""
        part = self.operand()
        self.take("IN")
        return f"{part} IN {self.nested()}"

    def substring(self, _: str) -> str:
        """Read ``text FROM 1 FOR 2``, or a list."""
        text = self.listed(")")[0]
        for word in ("FROM", "FOR"):
            if self.takes(word):
                text += f" {word} {self.nested()}"
        return text

    def normalize(self, _: str) -> str:
        """Read a text and perhaps the word of a form."""
        text = self.nested()
        return f"{text}, {self.take(*sorted(FORMS))}" if self.takes(",") else text

    def type_name(self) -> str:
        """Read the name of a type."""
        token = self.take_kind("word")
        if token.upper not in TYPES:
            msg = f"{token.shown} is no type that is known here; there are {', '.join(sorted(TYPES))}"
            raise SqlRefused(msg)
        text = token.upper
        if self.sees(*TYPE_TAILS.get(text, ())):
            tail = self.take(*TYPE_TAILS[text])
            text += f" {tail}"
            if tail in ("WITH", "WITHOUT"):
                text += f" {self.take('TIME')} {self.take('ZONE')}"
        if self.takes("("):
            text += f"({self.digits()})"
        before = self.depth
        while self.sees("[") and self.sees("]", further=1):
            self.descend()
            self.at += 2
            text += "[]"
        self.depth = before
        return text

    def digits(self) -> str:
        """Read the numbers of a type: digits in all, and after the point."""
        numbers = [self.take_kind("number").text]
        if self.takes(","):
            numbers.append(self.take_kind("number").text)
        self.take(")")
        if not all(number.isdecimal() and int(number[:4]) <= _MOST_DIGITS for number in numbers):
            msg = f"a type of {' and '.join(numbers)} digits is no type: there are {_MOST_DIGITS} at most"
            raise SqlRefused(msg)
        if len(numbers) == 2 and int(numbers[1]) > int(numbers[0]):
            msg = f"a type of {numbers[0]} digits cannot have {numbers[1]} after the point"
            raise SqlRefused(msg)
        return ", ".join(numbers)


_SPECIAL: Final[dict[str, Callable[[_Reader, str], str]]] = {
    "CAST": _Reader.cast,
    "EXTRACT": _Reader.extract,
    "NORMALIZE": _Reader.normalize,
    "POSITION": _Reader.position,
    "SAFE_CAST": _Reader.cast,
    "SUBSTRING": _Reader.substring,
    "TRIM": _Reader.trim,
    "TRY_CAST": _Reader.cast,
}
