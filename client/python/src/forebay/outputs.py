"""The outputs of a plan: parts side by side, in one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from .columns import Columns

DType = Literal["FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64", "INT32", "INT64", "UINT8", "AS_STORED"]
DTYPES: tuple[str, ...] = ("FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64", "INT32", "INT64", "UINT8", "AS_STORED")


@dataclass(frozen=True)
class Output:
    """One column of a batch: its parts side by side, in one dtype; made by `output`."""

    parts: tuple[Columns, ...]
    dtype: DType | None
    """None: the server chooses it, as `output` says."""


def output(parts: Columns | Sequence[Columns], *, dtype: str | None = None) -> Output:
    """Return an output of parts side by side, in one dtype.

    Without a dtype, the server chooses: INT32 (INT64 if necessary) if every part ends in indices (bucketize, vocab,
    hash_bucket, cross, ngram, sigrid_hash, map_id, positive_mod, optionally followed by fill_null, first_n or pad with
    whole numbers), and FLOAT32 otherwise. `Columns.as_stored` is AS_STORED.

    A single part of a single column whose chain ends in a list is an output of lists: see `Ragged`.
    """
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
        return Output(listed, "AS_STORED" if stored else None)
    if not isinstance(cast(object, dtype), str) or dtype.upper() not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    chosen = cast(DType, dtype.upper())
    if stored and chosen != "AS_STORED":
        raise ValueError(f"as_stored keeps the column's type; it cannot be converted to {chosen}")
    if chosen == "AS_STORED":
        if len(listed) != 1:
            raise ValueError("dtype AS_STORED requires one part of one column")
        listed = (listed[0].as_stored(),)
    return Output(listed, chosen)
