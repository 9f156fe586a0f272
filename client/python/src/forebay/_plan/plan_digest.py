"""The id of a fitted plan: a digest of its protobuf bytes, computed from its JSON.

The server's id is the SHA-256 of a line that names the format and of the plan's canonical protobuf bytes: fields in the
order of their numbers, without defaults, numbers in lists packed. `MESSAGES` repeats plan.proto; a test compares them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import cast

Fields = Mapping[str, object]

FORM = b"forebay plan 1\n"
DTYPES = ("FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT64", "UINT8", "AS_STORED", "FLOAT64", "ELEMENT")
STATS = ("MEAN", "MEDIAN", "MODE")
TRUNCATIONS = ("RIGHT", "LEFT", "ERROR")
RESIZES = ("BILINEAR", "NEAREST", "BICUBIC", "LANCZOS", "BOX", "HAMMING")
CROPS = ("NONE", "CENTER", "RANDOM")
ON_ERRORS = ("FAIL", "NULL", "SKIP")
ORIENTATIONS = ("APPLY", "IGNORE")
SIDES = ("RIGHT", "LEFT")
WINDOW_PARTS = ("PAST", "FUTURE", "STATIC")

# Messages and their fields, each a number and a kind. "?": explicit presence (optional, or in a oneof); "*": repeated.
# Kinds include the names of messages.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Plan": {
        "filter": (1, "string"),
        "derive": (2, "*Derive"),
        "outputs": (3, "*Output"),
        "units": (4, "*Unit"),
        "join": (5, "*Join"),
        "types": (6, "*ColumnType"),
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
    "Unit": {"column": (1, "string"), "unit": (2, "string")},
    "ColumnType": {"column": (1, "string"), "type": (2, "string")},
    "Derive": {"name": (1, "string"), "expr": (2, "string")},
    "Output": {
        "name": (1, "string"),
        "dtype": (2, "DType"),
        "parts": (3, "*Part"),
        "pack": (4, "?Pack"),
        "part": (5, "WindowPart"),
    },
    "Pack": {"length": (1, "uint32"), "separator": (2, "?int64"), "padding": (3, "int64")},
    "Part": {"columns": (1, "*string"), "ops": (2, "*Op")},
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
    "Standardize": {"mean": (1, "?double"), "std": (2, "?double")},
    "MinMax": {"min": (1, "?double"), "max": (2, "?double")},
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
    },
    "VocabValues": {
        "strings": (1, "*string"),
        "integers": (2, "*int64"),
        "unsigned": (3, "*uint64"),
        "floats": (4, "*double"),
        "decimals": (5, "*string"),
    },
    "HashBucket": {"buckets": (1, "uint64"), "seed": (2, "uint64")},
    "OneHot": {"size": (1, "uint32")},
    "Sqrt": {},
    "Abs": {},
    "Logit": {"eps": (1, "?double")},
    "BoxCox": {"lambda": (1, "double")},
    "MaxAbs": {"max_abs": (1, "?double")},
    "Robust": {"center": (1, "?double"), "scale": (2, "?double")},
    "Cross": {"columns": (1, "*string"), "buckets": (2, "uint64"), "seed": (3, "uint64")},
    "MultiHot": {"size": (1, "uint32")},
    "FirstN": {"n": (1, "uint32"), "value": (2, "?double")},
    "LastN": {"n": (1, "uint32"), "value": (2, "?double")},
    "Pad": {"n": (1, "uint32"), "value": (2, "double"), "side": (3, "Side")},
    "Lookup": {
        "table": (1, "string"),
        "key": (2, "string"),
        "columns": (3, "*string"),
        "snapshot": (4, "string"),
    },
    "Ngram": {"n": (1, "uint32"), "buckets": (2, "uint64"), "seed": (3, "uint64")},
    "SigridHash": {"salt": (1, "int64"), "max_value": (2, "int64")},
    "MapId": {
        "ids": (1, "*int64"),
        "values": (2, "*int64"),
        "default": (3, "?int64"),
        "unsigned": (4, "*uint64"),
    },
    "PositiveMod": {"modulus": (1, "int64")},
    "Bytes": {"n": (1, "uint32")},
    "Udf": {"name": (1, "string"), "columns": (2, "*string"), "digest": (3, "string")},
    "Tokenize": {
        "tokenizer": (1, "string"),
        "json": (2, "string"),
        "digest": (3, "string"),
        "max_length": (4, "uint32"),
        "truncation": (5, "Truncation"),
        "add_special_tokens": (6, "?bool"),
    },
    "AttentionMask": {"n": (1, "uint32"), "side": (2, "Side")},
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
    "Normalize": {"mean": (1, "*double"), "std": (2, "*double")},
    "CountEncode": {"values": (1, "?VocabValues"), "counts": (2, "*uint64")},
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
}
ENUMS = {
    "DType": DTYPES,
    "Stat": STATS,
    "Truncation": TRUNCATIONS,
    "Resize": RESIZES,
    "Crop": CROPS,
    "OnError": ON_ERRORS,
    "Orientation": ORIENTATIONS,
    "Side": SIDES,
    "WindowPart": WINDOW_PARTS,
}

VARINT, FIXED64, LENGTH = 0, 1, 2


def plan_digest(plan: Fields) -> str:
    """Return the id of a fitted plan from its JSON; unknown fields are errors."""
    return hashlib.sha256(FORM + encode("Plan", plan)).hexdigest()[:32]


def encode(message: str, fields: Fields) -> bytes:
    """Return a message's protobuf bytes."""
    known = MESSAGES[message]
    given = {_snake(name): value for name, value in fields.items()}
    for name in given:
        if name not in known:
            raise ValueError(f"{message} has no field {name!r}")
    return b"".join(_field(*known[name], given[name]) for name in known if given.get(name) is not None)


def _field(number: int, kind: str, value: object) -> bytes:
    if kind.startswith("*"):
        values = cast("Sequence[object]", value)
        if kind[1:] == "string" or kind[1:] in MESSAGES:
            return b"".join(_tagged(number, kind[1:], each) for each in values)
        packed = b"".join(_scalar(kind[1:], each)[1] for each in values)
        return _key(number, LENGTH) + _varint(len(packed)) + packed if packed else b""
    if kind.startswith("?"):
        return _tagged(number, kind[1:], value)
    wire, written = _scalar(kind, value)
    is_default = not any(written) or (kind == "double" and float(cast("float | str", value)) == 0)
    return b"" if is_default else _key(number, wire) + (_prefixed(written) if wire == LENGTH else written)


def _tagged(number: int, kind: str, value: object) -> bytes:
    if kind in MESSAGES:
        return _key(number, LENGTH) + _prefixed(encode(kind, cast(Fields, value)))
    wire, written = _scalar(kind, value)
    return _key(number, wire) + (_prefixed(written) if wire == LENGTH else written)


def _scalar(kind: str, value: object) -> tuple[int, bytes]:
    if kind == "string":
        return LENGTH, str(value).encode()
    if kind == "double":
        # Non-finite numbers are strings in proto3 JSON, which float() parses.
        return FIXED64, struct.pack("<d", float(cast("float | str", value)))
    if kind in ENUMS and isinstance(value, str):
        return VARINT, _varint(ENUMS[kind].index(value))
    return VARINT, _varint(int(cast("int | str", value)) % 2**64)


def _prefixed(written: bytes) -> bytes:
    return _varint(len(written)) + written


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
