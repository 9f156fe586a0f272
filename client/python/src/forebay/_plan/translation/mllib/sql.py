"""SQLTransformer: a statement that selects expressions of single rows becomes derived columns and a filter."""

from __future__ import annotations

from forebay._plan.chains import cols
from forebay._plan.translation.symbols import Scalar

from .frame import Frame
from .predicted import Symbol
from .sql_expression import ExpressionParser, Token, UntranslatableSql, tokens_of
from .stage import MllibStage

STATEMENT_CHARS_MAX = 65_536
THIS = "__this__"


def sql_transformer(frame: Frame, stage: MllibStage) -> None:
    """Add the columns that the statement selects, and drop the rows that its WHERE drops."""
    statement = stage.text("statement")
    if len(statement) > STATEMENT_CHARS_MAX:
        raise stage.refusal(f"its statement has {len(statement)} characters, the limit is {STATEMENT_CHARS_MAX}")
    try:
        _Statement(frame, stage, tokens_of(statement)).apply()
    except UntranslatableSql as error:
        raise stage.refusal(
            f"cannot translate {error}; write the columns with derive= in a plan, or compute them before"
        ) from None


class _Statement:
    """A statement while it is read. Every expression refers to the columns before the stage."""

    def __init__(self, frame: Frame, stage: MllibStage, tokens: list[Token]) -> None:
        self._frame = frame
        self._stage = stage
        self._inline = False
        self._parser = ExpressionParser(tokens, self._column)
        self._kept: dict[str, Symbol] = {}
        self._computed: dict[str, tuple[str, str]] = {}
        self._selects_all = False

    def apply(self) -> None:
        """Read the statement, then add its columns and its filter."""
        parser, frame = self._parser, self._frame
        parser.expect("select")
        self._item()
        while parser.take(","):
            self._item()
        parser.expect("from")
        name = parser.name()
        if name is None or name.lower() != THIS:
            raise UntranslatableSql(f"FROM {name or parser.next.text}; only FROM __THIS__ is supported")
        self._inline = True
        condition = parser.expression() if parser.take("where") else None
        if parser.next.kind != "end":
            raise UntranslatableSql(f"{parser.next.text!r} after the expressions of the statement")
        if condition is not None:
            frame.add_filter(self._stage, condition)
        added: dict[str, Symbol] = {
            name: Scalar(cols(frame.derived(name, expr)), inline) for name, (expr, inline) in self._computed.items()
        }
        if not self._selects_all:
            frame.select_only()
        for name, symbol in {**self._kept, **added}.items():
            frame.put(name, symbol)
        self._note()

    def _item(self) -> None:
        """Read one selected column or expression, and its name."""
        parser = self._parser
        if parser.take("*"):
            self._selects_all = True
            return
        plain = parser.column()
        if plain is not None:
            name = self._alias() or plain
            self._kept[name] = self._frame.symbol(self._stage, plain)
        else:
            start = parser.at
            expr = parser.expression()
            parser.at, self._inline = start, True
            inline = parser.expression()
            self._inline = False
            alias = self._alias()
            if alias is None and parser.next.text.lower() not in (",", "from"):
                raise UntranslatableSql(f"{parser.next.text!r} after {expr}")
            if alias is None:
                raise UntranslatableSql(f"{expr} without a name; add AS name")
            name = alias
            self._computed[name] = (expr, inline)
        if name in self._kept and name in self._computed:
            raise UntranslatableSql(f"two columns of the name {name}")

    def _alias(self) -> str | None:
        if not self._parser.take("as"):
            return self._parser.name()
        name = self._parser.name()
        if name is None:
            raise UntranslatableSql(f"{self._parser.next.text!r} where a name is expected")
        return name

    def _column(self, name: str) -> str:
        """Return a column in an expression."""
        symbol = self._frame.symbol(self._stage, name)
        if not isinstance(symbol, Scalar):
            raise UntranslatableSql(f"an expression of column {name}, which has vectors")
        found = symbol.sql if self._inline else symbol.reference
        if found is None:
            raise UntranslatableSql(f"an expression of column {name}, which an earlier stage computes by ops")
        return found

    def _note(self) -> None:
        if self._parser.has_fraction:
            self._frame.note(
                f"{self._stage.uid}: literals such as 0.5 are doubles here; with a column of integers or decimals, "
                "Spark computes in decimals"
            )
        if self._parser.has_text_cast:
            self._frame.note(f"{self._stage.uid}: floats cast to text have another form than in Spark, such as 1e-7")
        if self._parser.has_zoned:
            self._frame.note(
                f"{self._stage.uid}: parts, dates and texts of a timestamp are those in the column's time zone here, "
                "and in spark.sql.session.timeZone in Spark: they are the same if the zones are, or for dates"
            )
        if self._parser.has_power:
            self._frame.note(f"{self._stage.uid}: zero to a negative power is an error here, and Infinity in Spark")
        if self._parser.has_division:
            self._frame.note(f"{self._stage.uid}: a division by zero is null here, and an error in Spark's ANSI mode")
