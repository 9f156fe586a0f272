"""Translates a simple expression of Spark SQL to the expressions of a plan.

An operator-precedence parser that emits text. It rejects all that is not known to have the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from forebay._plan.translation.symbols import literal

TOKEN = re.compile(
    r"\s+|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))|(?P<string>'(?:[^'\\])*'|\"(?:[^\"\\])*\")"
    r"|`(?P<quoted>[^`]+)`|(?P<word>[A-Za-z_]\w*)|(?P<sign><=>|<>|!=|==|<=|>=|\|\||[-+*/%=<>(),.])"
)
NESTING_MAX = 64
# The server's limit of an expression. Rewritten functions repeat their argument.
EXPRESSION_CHARS_MAX = 65_536
RESERVED = {"and", "or", "not", "is", "in", "between", "like", "case", "when", "then", "else", "end", "null", "true",
            "false", "as", "from", "where", "select", "cast", "over", "distinct", "group", "order", "limit", "having",
            "union", "join", "lateral", "interval", "rlike", "div", "escape"}  # fmt: skip
# Functions with the same result in Spark and in a plan, and their numbers of arguments.
SAME: dict[str, tuple[int, int]] = {
    "abs": (1, 1), "coalesce": (1, 64), "nvl": (2, 2), "ifnull": (2, 2), "nullif": (2, 2), "if": (3, 3),
    "nanvl": (2, 2), "greatest": (2, 64), "least": (2, 64), "signum": (1, 1), "exp": (1, 1), "pow": (2, 2),
    "power": (2, 2), "floor": (1, 1), "ceil": (1, 1), "round": (1, 1), "upper": (1, 1), "lower": (1, 1),
    "length": (1, 1), "char_length": (1, 1), "trim": (1, 1), "ltrim": (1, 1), "rtrim": (1, 1), "replace": (3, 3),
    "reverse": (1, 1), "year": (1, 1), "quarter": (1, 1), "month": (1, 1), "weekofyear": (1, 1), "day": (1, 1),
    "dayofmonth": (1, 1), "dayofyear": (1, 1), "dayofweek": (1, 1), "hour": (1, 1), "minute": (1, 1),
    "second": (1, 1), "datediff": (2, 2),
}  # fmt: skip
# Functions that require another spelling for the same result.
REWRITTEN: dict[str, str] = {
    "ln": "CASE WHEN {0} > 0 THEN ln(CAST({0} AS DOUBLE)) END",
    "log": "CASE WHEN {0} > 0 THEN ln(CAST({0} AS DOUBLE)) END",
    "log2": "CASE WHEN {0} > 0 THEN log2(CAST({0} AS DOUBLE)) END",
    "log10": "CASE WHEN {0} > 0 THEN log10(CAST({0} AS DOUBLE)) END",
    "sqrt": "CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt(CAST({0} AS DOUBLE)) END",
    "isnan": "coalesce(isnan(CAST({0} AS DOUBLE)), false)",
    "isnull": "({0} IS NULL)",
    "isnotnull": "({0} IS NOT NULL)",
}
# Functions of the parts of a timestamp, which Spark computes in the time zone of its session.
ZONED = {"year", "quarter", "month", "weekofyear", "day", "dayofmonth", "dayofyear", "dayofweek", "hour", "minute",
         "second", "datediff"}  # fmt: skip
TYPES = {"double": "DOUBLE", "float": "REAL", "int": "INT", "integer": "INT", "bigint": "BIGINT", "long": "BIGINT",
         "string": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE"}  # fmt: skip
COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"}


class UntranslatableSql(ValueError):
    """A statement has a construct that is not translated; the message names it."""


class Token(NamedTuple):
    """A token of SQL: its kind (number, string, quoted, word, sign or end) and its text."""

    kind: str
    text: str


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a statement."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise UntranslatableSql(f"cannot read {text[at : at + 20]!r} at character {at + 1}")
        if match.lastgroup is not None:
            found.append(Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*found, Token("end", "")]


class ExpressionParser:
    """Parses expressions from tokens; `column` returns the expression of a column's name."""

    def __init__(self, tokens: list[Token], column: Callable[[str], str]) -> None:
        self._tokens = tokens
        self._column = column
        self.at = 0
        """The number of the token that follows."""
        self._depth = 0
        self.has_fraction = False
        """Whether a literal with a fraction occurred, which is a decimal in Spark."""
        self.has_division = False
        """Whether a divisor occurred that may be zero."""
        self.has_text_cast = False
        """Whether a value is cast to text."""
        self.has_zoned = False
        """Whether a result depends on the time zone of Spark's session, if its argument is a timestamp."""
        self.has_power = False
        """Whether a power may be that of zero and a negative exponent."""

    @property
    def next(self) -> Token:
        """The token that follows."""
        return self._tokens[self.at]

    def take(self, *texts: str) -> bool:
        """Consume a keyword or a sign if it is one of these."""
        token = self.next
        if token.kind in ("word", "sign") and token.text.lower() in texts:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Consume a keyword or a sign; raise if another token follows."""
        if not self.take(text):
            raise UntranslatableSql(f"expected {text.upper()} and found {self.next.text or 'the end'!r}")

    def name(self) -> str | None:
        """Consume a name if one follows."""
        token = self.next
        if token.kind == "quoted" or (token.kind == "word" and token.text.lower() not in RESERVED):
            self.at += 1
            return token.text
        return None

    def column(self) -> str | None:
        """Consume the name of a column if nothing is computed from it."""
        after = self._tokens[self.at + 1] if self.at + 1 < len(self._tokens) else Token("end", "")
        if after.kind == "sign" and after.text != ",":
            return None
        if after.kind == "word" and after.text.lower() in RESERVED - {"as", "from"}:
            return None
        return self.name()

    def expression(self) -> str:
        """Return the expression that follows."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise UntranslatableSql(f"it is nested more than {NESTING_MAX} deep")
        found = self._conjunction("or", lambda: self._conjunction("and", self._negation))
        self._depth -= 1
        return _short(found)

    def _conjunction(self, word: str, operand: Callable[[], str]) -> str:
        operands = [operand()]
        while self.take(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else "(" + f" {word.upper()} ".join(operands) + ")"

    def _negation(self) -> str:
        return f"(NOT {self._comparison()})" if self.take("not") else self._comparison()

    def _comparison(self) -> str:
        left = self._sum()
        if self.take("is"):
            negated = "NOT " if self.take("not") else ""
            what = next((word for word in ("null", "true", "false") if self.take(word)), None)
            if what is None:
                raise UntranslatableSql(f"IS {self.next.text}")
            return f"({left} IS {negated}{what.upper()})"
        negated = "NOT " if self.take("not") else ""
        if self.take("in"):
            return f"({left} {negated}IN ({', '.join(self._arguments())}))"
        if self.take("between"):
            low = self._sum()
            self.expect("and")
            return f"({left} {negated}BETWEEN {low} AND {self._sum()})"
        if self.take("like"):
            return f"({left} {negated}LIKE {self._sum()})"
        sign = self.next.text if self.next.kind == "sign" else ""
        if negated or sign not in COMPARISONS:
            if negated:
                raise UntranslatableSql(f"NOT before {self.next.text!r}")
            return left
        self.expect(sign)
        return f"({left} {COMPARISONS[sign]} {self._sum()})"

    def _sum(self) -> str:
        left = self._product()
        while (sign := self.next).kind == "sign" and sign.text in ("+", "-", "||"):
            self.expect(sign.text)
            left = f"({left} {sign.text} {self._product()})"
        return left

    def _product(self) -> str:
        left = self._unary()
        while (sign := self.next).kind == "sign" and sign.text in ("*", "/", "%"):
            self.expect(sign.text)
            is_literal = self.next.kind == "number" and float(self.next.text) != 0
            right = self._unary()
            if sign.text != "*" and not is_literal:
                self.has_division = True
                right = f"nullif({right}, 0)"
            if sign.text == "/":
                # In Spark the quotient of integers is not an integer.
                left = f"(CAST({left} AS DOUBLE) / CAST({right} AS DOUBLE))"
            else:
                left = f"({left} {sign.text} {right})"
        return left

    def _unary(self) -> str:
        if self.take("-"):
            return f"(- {self._unary()})"
        return self._unary() if self.take("+") else self._primary()

    def _primary(self) -> str:
        token = self.next
        if token.kind == "number":
            self.at += 1
            self.has_fraction = self.has_fraction or not token.text.isdigit()
            return token.text
        if token.kind == "string":
            self.at += 1
            return literal(token.text[1:-1])
        if self.take("("):
            found = self.expression()
            self.expect(")")
            return found
        for word in ("null", "true", "false"):
            if self.take(word):
                return word.upper()
        if self.take("case"):
            return self._case()
        if self.take("cast"):
            return self._cast()
        name = self.name()
        if name is None:
            raise UntranslatableSql(f"{token.text or 'the end'!r} where a value is expected")
        if token.kind == "word" and self.next == Token("sign", "("):
            return self._call(name.lower())
        if self.next == Token("sign", "."):
            raise UntranslatableSql(f"{name}.…: a qualified name or a field of a struct")
        return self._column(name)

    def _case(self) -> str:
        parts = ["CASE"] if self.next.text.lower() == "when" else [f"CASE {self.expression()}"]
        self.expect("when")
        while True:
            condition = self.expression()
            self.expect("then")
            parts.append(f"WHEN {condition} THEN {self.expression()}")
            if not self.take("when"):
                break
        if self.take("else"):
            parts.append(f"ELSE {self.expression()}")
        self.expect("end")
        return " ".join([*parts, "END"])

    def _cast(self) -> str:
        self.expect("(")
        value = self.expression()
        self.expect("as")
        name = (self.name() or self.next.text).lower()
        if name not in TYPES:
            raise UntranslatableSql(f"CAST to {name}; supported are {', '.join(TYPES)}")
        self.expect(")")
        self.has_text_cast = self.has_text_cast or name == "string"
        self.has_zoned = self.has_zoned or name in ("date", "string")
        return f"CAST({value} AS {TYPES[name]})"

    def _call(self, name: str) -> str:
        arguments = self._arguments()
        if self.next.text.lower() == "over":
            raise UntranslatableSql(f"{name}(…) OVER, a window function: compute it before")
        if name == "concat" and arguments:
            return "(" + " || ".join(arguments) + ")"
        if name in REWRITTEN and len(arguments) == 1:
            return _short(REWRITTEN[name].replace("{0}", arguments[0]))
        self.has_zoned = self.has_zoned or name in ZONED
        self.has_power = self.has_power or name in ("pow", "power")
        least, most = SAME.get(name, (0, -1))
        if not least <= len(arguments) <= most:
            raise UntranslatableSql(f"function {name} with {len(arguments)} arguments")
        return f"{name}({', '.join(arguments)})"

    def _arguments(self) -> list[str]:
        self.expect("(")
        if self.take(")"):
            return []
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        self.expect(")")
        return found


def _short(text: str) -> str:
    if len(text) > EXPRESSION_CHARS_MAX:
        raise UntranslatableSql(f"an expression of more than {EXPRESSION_CHARS_MAX} characters")
    return text
