"""What a fitted plan has learned: parameters of ops, vocabularies and numbers of indices. Makes no calls."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import NamedTuple, cast

from forebay._show.terminal_text import html_table

from .columns import Columns
from .generated.ops import Bucketize, CountEncode, Cross, Lookup, MapId, TargetMean, Vocab
from .names import suggestion
from .op import Op, ending_in_indexes, shortened
from .plan import Plan
from .values import Scales, VocabValues

Value = str | int | float | Decimal

HTML_ROWS_MAX = 200
HEADINGS = ("output", "column", "op", "parameters")


class Step(NamedTuple):
    """One op of a column's chain."""

    output: str
    column: str
    op: Op


class Description(str):
    """A text that an interactive session shows with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def steps(plan: Plan) -> Iterator[Step]:
    """Yield the ops of every output and column, in order."""
    for name, out in plan.outputs.items():
        for part in out.parts:
            for column in part.names:
                yield from (Step(name, column, op) for op in part.ops)


def parameters(op: Op) -> dict[str, object]:
    """Return the op's parameters; a vocabulary's values and a bucketize's edges as lists."""
    if isinstance(op, Vocab):
        given = {"min_count": op.min_count, "max_size": op.max_size, "oov_buckets": op.oov_buckets, "shared": op.shared}
        learned: dict[str, object] = {} if op.values is None else {"values": typed(op.values)}
        return {**learned, **{name: value for name, value in given.items() if value}}
    if isinstance(op, Bucketize):
        edges: dict[str, object] = {"boundaries": list(_edges(op))}
        return {**edges, "quantiles": op.quantiles} if op.quantiles else edges
    if isinstance(op, (CountEncode, TargetMean)) and op.values is not None:
        return {**op.to_dict(), "values": typed(op.values)}
    return dict(op.to_dict())


def _edges(op: Bucketize) -> tuple[float, ...]:
    return op.boundaries or op.integers or op.unsigned


def described(plan: Plan, heading: str) -> Description:
    """Return a table of all ops and their parameters under the heading."""
    rows = [HEADINGS, *((step.output, step.column, step.op.name, _text(step.op)) for step in steps(plan))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS) - 1)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]
    return Description("\n".join([heading, *lines]))


def described_html(plan: Plan, heading: str) -> str:
    """Return the same table as HTML, of at most `HTML_ROWS_MAX` rows."""
    listed = list(islice(steps(plan), HTML_ROWS_MAX + 1))
    rows = [[step.output, step.column, step.op.name, _text(step.op)] for step in listed[:HTML_ROWS_MAX]]
    if len(listed) > HTML_ROWS_MAX:
        rows.append(["…", "", "", "more ops: see describe()"])
    filters = [f"filter {plan.filter!r}"] if plan.filter else []
    return html_table(", ".join([heading, *filters]), rows, headings=[HEADINGS])


def _text(op: Op) -> str:
    fields = parameters(op)
    values = fields.pop("values", None) if isinstance(op, (Vocab, CountEncode, TargetMean)) else None
    texts = [f"{name}={shortened(value)}" for name, value in fields.items()]
    if values is not None:
        listed = cast("list[object]", values)
        texts.insert(0, f"{len(listed):,} value{'s' * (len(listed) != 1)} {shortened(listed)}")
    return ", ".join(texts)


def typed(values: VocabValues) -> list[Value]:
    """Return a vocabulary's values; decimals as `Decimal`."""
    items = cast("tuple[Value, ...]", values.items)
    return [Decimal(cast(str, item)) for item in items] if values.kind == "decimals" else list(items)


def vocabulary(plan: Plan, output: str, column: str) -> list[Value | None]:
    """Return the value of each index of a column's vocabulary; None at index 0."""
    if output not in plan.outputs:
        raise KeyError(f"no output {output!r}: {suggestion(output, plan.outputs)}")
    found = {step.column: step.op for step in steps(plan) if step.output == output and isinstance(step.op, Vocab)}
    op = found.get(column)
    if op is None:
        known = suggestion(column, found) if found else "none of its columns has one"
        raise KeyError(f"output {output!r} has no vocabulary of a column {column!r}: {known}")
    return [None, *([] if op.values is None else typed(op.values))]


def scales(plan: Plan, output: str, column: str) -> dict[Value | tuple[Value, ...], tuple[float, float]]:
    """Return the shift and the divisor of each group of the last scaler of a column that has groups."""
    if output not in plan.outputs:
        raise KeyError(f"no output {output!r}: {suggestion(output, plan.outputs)}")
    found: dict[str, Scales] = {}
    for step in steps(plan):
        learned = step.op.field("scales") if "scales" in step.op.learned else None
        if step.output == output and isinstance(learned, Scales):
            found[step.column] = learned
    if column not in found:
        known = suggestion(column, found) if found else "none of its columns has one"
        raise KeyError(f"output {output!r} has no scaler with by of a column {column!r}: {known}")
    of_column = found[column]
    keys = [typed(keys) for keys in of_column.keys]
    groups = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
    return dict(zip(groups, zip(of_column.shifts, of_column.divisors, strict=True), strict=True))


def cardinalities(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the number of indices of each column, for the outputs whose parts all end in indices."""
    found: dict[str, dict[str, int]] = {}
    for name, out in plan.outputs.items():
        counts: dict[str, int] = {}
        for part in out.parts:
            count = _index_count(part)
            if count is None:
                break
            for column in _columns(part):
                counts[_unused(column, part, counts)] = count
        else:
            found[name] = counts
    return found


def _columns(part: Columns) -> list[str]:
    """Return the names of a part's columns in the output, apart from those of `pad`, which share one vocabulary."""
    names = list(part.names)
    for op in part.ops:
        if isinstance(op, Lookup):
            names = [f"{name}.{column}" for name in names for column in op.columns]
        elif isinstance(op, Cross):
            names = [" x ".join([name, *op.columns]) for name in names]
    return names


def _unused(column: str, part: Columns, counts: dict[str, int]) -> str:
    """Return a name for a column that the output may have several times, with other ops."""
    producer = ending_in_indexes(part.ops)[0].name
    names = [column, f"{column}.{producer}", *(f"{column}.{producer}.{number}" for number in range(2, len(counts) + 3))]
    return next(name for name in names if name not in counts)


def _index_count(part: Columns) -> int | None:
    """Return the number of indices, from 0 to the highest one; None if the part does not end in indices."""
    chain = ending_in_indexes(part.ops)
    if not chain:
        return None
    count = _produced(chain[0])
    # Fills are further indices.
    return None if count is None else max([count, *(1 + int(op.fill or 0) for op in chain[1:])])


def _produced(op: Op) -> int | None:
    """Return the number of indices that an op computes; None where its parameters do not bound them."""
    if isinstance(op, Vocab):
        return 1 + (0 if op.values is None else len(op.values.items)) + op.oov_buckets
    if isinstance(op, Bucketize):
        return len(_edges(op)) + 1
    if isinstance(op, MapId):
        return 1 + max((*op.values, op.default or 0))
    return cast(int, op.field(op.bounds[0])) if op.bounds else None
