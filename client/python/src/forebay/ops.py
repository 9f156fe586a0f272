"""The ops of a plan, one class each, as the server's plan.proto has them.

An op knows its JSON, whether it is left to learn something, and whether what it makes is an index. Meanings are the
server's; here they are only written down and checked for what can be seen without data.
"""

from __future__ import annotations

from .index_ops import (
    Bucketize,
    Cross,
    HashBucket,
    MapId,
    MultiHot,
    OneHot,
    PositiveMod,
    SigridHash,
    Values,
    Vocab,
)
from .list_ops import FirstN, Lookup, Ngram, Pad
from .number_ops import (
    STATS,
    Abs,
    BoxCox,
    Clip,
    FillNull,
    Log1p,
    Logit,
    MaxAbs,
    MinMax,
    Robust,
    Sqrt,
    Standardize,
)
from .op import Json, Op

__all__ = [
    "STATS",
    "Abs",
    "BoxCox",
    "Bucketize",
    "Clip",
    "Cross",
    "FillNull",
    "FirstN",
    "HashBucket",
    "Json",
    "Log1p",
    "Logit",
    "Lookup",
    "MapId",
    "MaxAbs",
    "MinMax",
    "MultiHot",
    "Ngram",
    "OneHot",
    "Op",
    "Pad",
    "PositiveMod",
    "Robust",
    "SigridHash",
    "Sqrt",
    "Standardize",
    "Values",
    "Vocab",
]
