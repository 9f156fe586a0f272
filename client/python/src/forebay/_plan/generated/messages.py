"""The messages of a plan, and its enums.

Generated from plan.proto by the tests of forebay-proto.
"""

from __future__ import annotations

from typing import Literal

# Each field has a number and a kind. "?": explicit presence (optional, or in a oneof); "*": repeated. Kinds include
# the names of messages and enums.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Plan": {
        "filter": (1, "string"),
        "derive": (2, "*Derive"),
        "outputs": (3, "*Output"),
        "units": (4, "*Unit"),
        "join": (5, "*Join"),
        "types": (6, "*ColumnType"),
        "history": (7, "?History"),
    },
    "Derive": {
        "name": (1, "string"),
        "expr": (2, "string"),
    },
    "Output": {
        "name": (1, "string"),
        "dtype": (2, "DType"),
        "parts": (3, "*Part"),
        "pack": (4, "?Pack"),
        "part": (5, "WindowPart"),
    },
    "Part": {
        "columns": (1, "*string"),
        "ops": (2, "*Op"),
    },
    "Op": {
        "fill_null": (1, "?FillNull"),
        "clip": (2, "?Clip"),
        "log1p": (3, "?Log1p"),
        "standardize": (4, "?Standardize"),
        "min_max": (5, "?MinMax"),
        "bucketize": (6, "?Bucketize"),
        "vocab": (7, "?Vocab"),
        "hash_bucket": (8, "?HashBucket"),
        "one_hot": (9, "?OneHot"),
        "sqrt": (10, "?Sqrt"),
        "abs": (11, "?Abs"),
        "logit": (12, "?Logit"),
        "box_cox": (13, "?BoxCox"),
        "max_abs": (14, "?MaxAbs"),
        "robust": (15, "?Robust"),
        "cross": (16, "?Cross"),
        "multi_hot": (17, "?MultiHot"),
        "first_n": (18, "?FirstN"),
        "pad": (19, "?Pad"),
        "lookup": (20, "?Lookup"),
        "ngram": (21, "?Ngram"),
        "sigrid_hash": (22, "?SigridHash"),
        "map_id": (23, "?MapId"),
        "positive_mod": (24, "?PositiveMod"),
        "count_encode": (25, "?CountEncode"),
        "target_mean": (26, "?TargetMean"),
        "bytes": (27, "?Bytes"),
        "udf": (28, "?Udf"),
        "tokenize": (29, "?Tokenize"),
        "attention_mask": (31, "?AttentionMask"),
        "decode_image": (32, "?DecodeImage"),
        "last_n": (33, "?LastN"),
        "lag": (34, "?Lag"),
        "diff": (35, "?Diff"),
        "rolling": (36, "?Rolling"),
    },
    "FillNull": {
        "value": (1, "?double"),
        "text": (2, "?string"),
        "stat": (3, "?Stat"),
        "integer": (4, "?int64"),
        "unsigned": (5, "?uint64"),
        "decimal": (6, "?string"),
    },
    "Clip": {
        "min": (1, "?double"),
        "max": (2, "?double"),
        "min_integer": (3, "?int64"),
        "max_integer": (4, "?int64"),
        "min_unsigned": (5, "?uint64"),
        "max_unsigned": (6, "?uint64"),
    },
    "Log1p": {},
    "Standardize": {
        "mean": (1, "?double"),
        "std": (2, "?double"),
        "by": (3, "*string"),
        "scales": (4, "?Scales"),
    },
    "Scales": {
        "keys": (1, "*VocabValues"),
        "shifts": (2, "*double"),
        "divisors": (3, "*double"),
    },
    "VocabValues": {
        "strings": (1, "*string"),
        "integers": (2, "*int64"),
        "unsigned": (3, "*uint64"),
        "floats": (4, "*double"),
        "decimals": (5, "*string"),
    },
    "MinMax": {
        "min": (1, "?double"),
        "max": (2, "?double"),
        "by": (3, "*string"),
        "scales": (4, "?Scales"),
    },
    "Bucketize": {
        "boundaries": (1, "*double"),
        "quantiles": (2, "uint32"),
        "integers": (3, "*int64"),
        "unsigned": (4, "*uint64"),
    },
    "Vocab": {
        "min_count": (1, "uint64"),
        "max_size": (2, "uint64"),
        "oov_buckets": (3, "uint32"),
        "values": (4, "?VocabValues"),
        "shared": (5, "string"),
    },
    "HashBucket": {
        "buckets": (1, "uint64"),
        "seed": (2, "uint64"),
    },
    "OneHot": {
        "size": (1, "uint32"),
    },
    "Sqrt": {},
    "Abs": {},
    "Logit": {
        "eps": (1, "?double"),
    },
    "BoxCox": {
        "lambda": (1, "double"),
    },
    "MaxAbs": {
        "max_abs": (1, "?double"),
    },
    "Robust": {
        "center": (1, "?double"),
        "scale": (2, "?double"),
        "by": (3, "*string"),
        "scales": (4, "?Scales"),
    },
    "Cross": {
        "columns": (1, "*string"),
        "buckets": (2, "uint64"),
        "seed": (3, "uint64"),
    },
    "MultiHot": {
        "size": (1, "uint32"),
    },
    "FirstN": {
        "n": (1, "uint32"),
        "value": (2, "?double"),
    },
    "Pad": {
        "n": (1, "uint32"),
        "value": (2, "double"),
        "side": (3, "Side"),
    },
    "Lookup": {
        "table": (1, "string"),
        "key": (2, "string"),
        "columns": (3, "*string"),
        "snapshot": (4, "string"),
    },
    "Ngram": {
        "n": (1, "uint32"),
        "buckets": (2, "uint64"),
        "seed": (3, "uint64"),
    },
    "SigridHash": {
        "salt": (1, "int64"),
        "max_value": (2, "int64"),
    },
    "MapId": {
        "ids": (1, "*int64"),
        "values": (2, "*int64"),
        "default": (3, "?int64"),
        "unsigned": (4, "*uint64"),
    },
    "PositiveMod": {
        "modulus": (1, "int64"),
    },
    "CountEncode": {
        "values": (1, "?VocabValues"),
        "counts": (2, "*uint64"),
    },
    "TargetMean": {
        "label": (1, "string"),
        "smoothing": (2, "?double"),
        "folds": (3, "?uint32"),
        "seed": (4, "uint64"),
        "values": (5, "?VocabValues"),
        "means": (6, "*double"),
        "rows": (7, "?FittedRows"),
    },
    "FittedRows": {
        "snapshot": (1, "string"),
        "filter": (2, "string"),
        "sample_seed": (3, "uint64"),
        "sample_end": (4, "uint64"),
    },
    "Bytes": {
        "n": (1, "uint32"),
    },
    "Udf": {
        "name": (1, "string"),
        "columns": (2, "*string"),
        "digest": (3, "string"),
    },
    "Tokenize": {
        "tokenizer": (1, "string"),
        "json": (2, "string"),
        "digest": (3, "string"),
        "max_length": (4, "uint32"),
        "truncation": (5, "Truncation"),
        "add_special_tokens": (6, "?bool"),
    },
    "AttentionMask": {
        "n": (1, "uint32"),
        "side": (2, "Side"),
    },
    "DecodeImage": {
        "height": (1, "uint32"),
        "width": (2, "uint32"),
        "channels": (3, "?uint32"),
        "resize": (4, "Resize"),
        "crop": (5, "Crop"),
        "scale_min": (6, "?double"),
        "scale_max": (7, "?double"),
        "ratio_min": (8, "?double"),
        "ratio_max": (9, "?double"),
        "flip": (10, "bool"),
        "seed": (11, "uint64"),
        "normalize": (12, "?Normalize"),
        "on_error": (13, "OnError"),
        "encoded": (14, "bool"),
        "orientation": (15, "Orientation"),
        "turned_like": (16, "*string"),
    },
    "Normalize": {
        "mean": (1, "*double"),
        "std": (2, "*double"),
    },
    "LastN": {
        "n": (1, "uint32"),
        "value": (2, "?double"),
    },
    "Lag": {
        "n": (1, "uint32"),
    },
    "Diff": {
        "n": (1, "uint32"),
    },
    "Rolling": {
        "stat": (1, "Statistic"),
        "length": (2, "uint32"),
    },
    "Pack": {
        "length": (1, "uint32"),
        "separator": (2, "?int64"),
        "padding": (3, "int64"),
    },
    "Unit": {
        "column": (1, "string"),
        "unit": (2, "string"),
    },
    "Join": {
        "table": (1, "string"),
        "on": (2, "string"),
        "key": (3, "string"),
        "columns": (4, "*string"),
        "prefix": (5, "string"),
        "snapshot": (6, "string"),
        "as_of": (7, "?AsOf"),
    },
    "AsOf": {
        "left": (1, "string"),
        "right": (2, "string"),
        "allow_exact": (3, "?bool"),
        "tolerance_seconds": (4, "?double"),
    },
    "ColumnType": {
        "column": (1, "string"),
        "type": (2, "string"),
    },
    "History": {
        "by": (1, "*string"),
        "order": (2, "string"),
    },
}

# In the order of their numbers.
ENUMS: dict[str, tuple[str, ...]] = {
    "DType": ("FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT64", "UINT8", "AS_STORED", "FLOAT64", "ELEMENT"),
    "WindowPart": ("PAST", "FUTURE", "STATIC"),
    "Stat": ("MEAN", "MEDIAN", "MODE"),
    "Side": ("RIGHT", "LEFT"),
    "Truncation": ("RIGHT", "LEFT", "ERROR"),
    "Resize": ("BILINEAR", "NEAREST", "BICUBIC", "LANCZOS", "BOX", "HAMMING"),
    "Crop": ("NONE", "CENTER", "RANDOM"),
    "OnError": ("FAIL", "NULL", "SKIP"),
    "Orientation": ("APPLY", "IGNORE"),
    "Statistic": ("MEAN", "STD", "MIN", "MAX", "SUM", "COUNT"),
}

# As methods take them.
Stat = Literal["mean", "median", "mode"]
Side = Literal["right", "left"]
Truncation = Literal["right", "left", "error"]
Resize = Literal["bilinear", "nearest", "bicubic", "lanczos", "box", "hamming"]
Crop = Literal["none", "center", "random"]
OnError = Literal["fail", "null", "skip"]
Orientation = Literal["apply", "ignore"]
Statistic = Literal["mean", "std", "min", "max", "sum", "count"]
