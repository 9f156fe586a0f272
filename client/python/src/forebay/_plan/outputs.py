"""The outputs of a plan: parts side by side, in one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from forebay._show.terminal_text import LINE_WIDTH, PARTS_SHOWN, Branch, elided, html_tree, text_width

from .arguments import column_name
from .chains import cols
from .columns import Columns
from .names import nearest
from .pack import Pack

DType = Literal["FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64", "INT32", "INT64", "UINT8", "AS_STORED", "ELEMENT"]
DTYPES: tuple[str, ...] = get_args(DType)

WindowPart = Literal["PAST", "FUTURE", "STATIC"]
WINDOW_PARTS: tuple[WindowPart, ...] = get_args(WindowPart)


@dataclass(frozen=True)
class Output:
    """One column of a batch: its parts side by side, in one dtype; made by `output`."""

    parts: tuple[Columns, ...]
    dtype: DType | None
    """None: the server chooses it, as `output` says."""
    pack: Pack | None = None
    """Set: the output's lists are packed, and the rows of the stream are sequences."""
    part: WindowPart = "PAST"
    """The rows of a window that the output has, in a stream with `window`."""

    def __repr__(self) -> str:
        parts = elided(list(map(repr, self.parts)), PARTS_SHOWN)
        rest = f"dtype={self.dtype!r}" + ("" if self.pack is None else f", pack={self.pack}")
        rest += "" if self.part == "PAST" else f", part={self.part!r}"
        if len(parts) == 1:
            return f"output({parts[0]}, {rest})"
        line = f"output([{', '.join(parts)}], {rest})"
        if text_width(line) <= LINE_WIDTH:
            return line
        return "\n".join(["output([", *(f"    {part}," for part in parts), f"], {rest})"])

    def _repr_html_(self) -> str:
        return html_tree(f"output of {self.dtype or 'a dtype that the server chooses'}", [self.branch("parts")])

    def branch(self, label: str) -> Branch:
        """Return the output as a line of a plan's tree."""
        packed = [] if self.pack is None else [repr(self.pack)]
        part = [] if self.part == "PAST" else [self.part]
        return Branch(label, [*map(repr, self.parts), *packed, *part])


def output(
    parts: Columns | Sequence[Columns],
    *,
    dtype: str | None = None,
    pack: Pack | int | None = None,
    part: str = "past",
) -> Output:
    """Return an output of parts side by side, in one dtype.

    Without a dtype, the server chooses: UINT8 if every part ends in bytes, INT32 (INT64 if necessary) if every part
    ends in indices, such as those of vocab or hash_bucket, also if they are filled or padded with whole numbers
    afterwards, that of the stored integers if lists of integers are padded, and FLOAT32 otherwise. `Columns.as_stored`
    is AS_STORED.

    A single part of a single column whose chain ends in a list is an output of lists: see `Ragged`. With `pack`, a
    `Pack` or the length of its sequences, the rows of the stream are sequences of such lists, and the output is the
    plan's only one: INT32, or INT64 if that is the `dtype`. A batch then also has ``document_ids``, which number the
    documents of each sequence from 0 (-1 for padding), and ``position_ids``, which number the tokens of each
    document's part of the sequence from 0.

    In a stream with `window`, a row is a window, and the output has a matrix of its past rows, [length, width]; with
    the `part` "future" one of the rows after them, [horizon, width], and with "static" the values of the last past row.
    """
    named = str(part).upper()
    if named not in WINDOW_PARTS:
        raise ValueError(f'part must be "past", "future" or "static", not {part!r}')
    return replace(_rows(parts, dtype, pack), part=named)


def _rows(parts: Columns | Sequence[Columns], dtype: str | None, pack: Pack | int | None) -> Output:
    packed = Pack(pack) if isinstance(pack, int) else pack
    if packed is not None and not isinstance(cast(object, packed), Pack):
        raise TypeError(f"pack must be fb.Pack(length, separator=…) or a number of tokens, not {pack!r}")
    listed = (parts,) if isinstance(parts, Columns) else tuple(parts)
    if not listed:
        raise ValueError("an output requires at least one part")
    for part in listed:
        if not isinstance(cast(object, part), Columns):
            raise TypeError(f'an output consists of cols("…") chains, not {part!r}')
    stored = any(part.stored for part in listed)
    if stored and len(listed) > 1:
        raise ValueError("as_stored must be the only part of its output")
    if dtype is None:
        if stored and packed is not None:
            raise ValueError("pack takes a list of tokens as INT32 or INT64, not a column as_stored")
        return Output(listed, "AS_STORED" if stored else None, packed)
    if not isinstance(cast(object, dtype), str) or dtype.upper() not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}{_dtype_hint(dtype)}")
    chosen = cast(DType, dtype.upper())
    if stored and chosen != "AS_STORED":
        raise ValueError(f"as_stored keeps the column's type; it cannot be converted to {chosen}")
    if chosen == "AS_STORED":
        if len(listed) != 1:
            raise ValueError("dtype AS_STORED requires one part of one column")
        listed = (listed[0].as_stored(),)
    if packed is not None and chosen not in {"INT32", "INT64"}:
        raise ValueError(f"pack requires INT32 or INT64 tokens, not {chosen}")
    return Output(listed, chosen, packed)


def label(column: str, *, classes: Sequence[str] | Sequence[int] | None = None) -> Output:
    """Return an output of class ids, INT64 from 0, as expected by ``torch.nn.functional.cross_entropy``.

    Integers and booleans are class ids as they are. `classes` lists the values of a column of text, or of other
    integers, in the order of their ids; the server rejects a row with another value or null, and names the column.
    """
    named = cols(column_name("label: column", column))
    if classes is None:
        return output(named, dtype="INT64")
    if isinstance(classes, (str, bytes)):
        raise TypeError('label: classes must be a list of values, in the order of their ids: classes=["no", "yes"]')
    listed = list(classes)
    if not listed or len(set(listed)) < len(listed):
        raise ValueError("label: classes must be one or more distinct values")
    # Index 0 of the vocabulary, for all other values, has no id: it becomes null, which no output may contain.
    ids = {index + 1: index for index in range(len(listed))}
    return output(named.vocab(values=cast("Sequence[str]", listed)).map_id(ids), dtype="INT64")


# What NumPy, torch and SQL call the same.
_ALIASES = {
    "float": "FLOAT32",
    "f32": "FLOAT32",
    "half": "FLOAT16",
    "int": "INT64",
    "integer": "INT64",
    "long": "INT64",
    "bigint": "INT64",
    "bool": "UINT8",
    "byte": "UINT8",
    "uint": "UINT8",
    "str": "AS_STORED",
    "string": "AS_STORED",
    "object": "AS_STORED",
    "double": "FLOAT64",
}


def _dtype_hint(dtype: object) -> str:
    name = str(dtype).removeprefix("torch.").lower()
    near = _ALIASES.get(name) or nearest(name, DTYPES)
    return f"; did you mean {near}?" if near in DTYPES else ""
