"""The ops of a plan, one class per message of plan.proto.

An op has its JSON, and properties such as whether it must be fitted and whether it produces an index. The server
defines their meaning.
"""

from __future__ import annotations

from .encoding_ops import CountEncode, FittedRows, TargetMean
from .image_ops import DecodeImage
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
from .list_ops import AttentionMask, Bytes, FirstN, LastN, Lookup, Ngram, Pad
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
from .text_ops import Tokenize
from .udf_op import Udf

__all__ = [
    "STATS",
    "Abs",
    "AttentionMask",
    "BoxCox",
    "Bucketize",
    "Bytes",
    "Clip",
    "CountEncode",
    "Cross",
    "DecodeImage",
    "FillNull",
    "FirstN",
    "FittedRows",
    "HashBucket",
    "Json",
    "LastN",
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
    "TargetMean",
    "Tokenize",
    "Udf",
    "Values",
    "Vocab",
]
