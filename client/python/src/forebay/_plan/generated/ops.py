"""The ops of a plan, one class per message of plan.proto. The server defines what they compute.

Generated from plan.proto by the tests of forebay-proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from forebay._plan.arguments import INT64_MAX
from forebay._plan.op import Op
from forebay._plan.values import FittedRows, Normalize, Scales, VocabValues


@dataclass(frozen=True)
class FillNull(Op):
    """Replace null by a value, and a null list by an empty one."""

    name: ClassVar[str] = "fill_null"
    fit_triggers: ClassVar[tuple[str, ...]] = ("stat",)
    one_of: ClassVar[tuple[str, ...]] = ("value", "text", "stat", "integer", "unsigned", "decimal")
    fills: ClassVar[tuple[str, ...]] = ("value", "integer", "unsigned")
    value: float | None = None
    text: str | None = None
    stat: str | None = None
    integer: int | None = None
    unsigned: int | None = None
    decimal: str | None = None


@dataclass(frozen=True)
class Clip(Op):
    """Limit values to the bounds, either of which may be omitted; NaN stays NaN."""

    name: ClassVar[str] = "clip"
    min: float | None = None
    max: float | None = None
    min_integer: int | None = None
    max_integer: int | None = None
    min_unsigned: int | None = None
    max_unsigned: int | None = None


@dataclass(frozen=True)
class Log1p(Op):
    """Compute ln(1 + x)."""

    name: ClassVar[str] = "log1p"


@dataclass(frozen=True)
class Standardize(Op):
    """Compute (x - mean) / std of the population, with `by` of each group of rows; a std of 0 divides by 1."""

    name: ClassVar[str] = "standardize"
    learned: ClassVar[tuple[str, ...]] = ("mean", "std", "scales")
    mean: float | None = None
    std: float | None = None
    by: tuple[str, ...] = ()
    scales: Scales | None = None


@dataclass(frozen=True)
class MinMax(Op):
    """Compute (x - min) / (max - min), with `by` of each group of rows; a range of 0 divides by 1."""

    name: ClassVar[str] = "min_max"
    learned: ClassVar[tuple[str, ...]] = ("min", "max", "scales")
    min: float | None = None
    max: float | None = None
    by: tuple[str, ...] = ()
    scales: Scales | None = None


@dataclass(frozen=True)
class Bucketize(Op):
    """Count the boundaries <= x: the given ascending ones, or the inner edges of n quantiles.

    NaN is in the last bucket.
    """

    name: ClassVar[str] = "bucketize"
    indexes: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("boundaries", "integers", "unsigned")
    boundaries: tuple[float, ...] = ()
    quantiles: int = 0
    integers: tuple[int, ...] = ()
    unsigned: tuple[int, ...] = ()


@dataclass(frozen=True)
class Vocab(Op):
    """Map a value to its index: 0 for null and unseen values, then from 1 by count descending, value ascending.

    `oov_buckets` hashes unseen values to further indices.
    """

    name: ClassVar[str] = "vocab"
    indexes: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("values",)
    bounds: ClassVar[tuple[str, ...]] = ("oov_buckets",)
    min_count: int = 0
    max_size: int = 0
    oov_buckets: int = 0
    values: VocabValues | None = None
    shared: str = ""


@dataclass(frozen=True)
class HashBucket(Op):
    """Map a value to its XXH3-64 modulo `buckets`.

    Integers as 8 little-endian bytes, floats as the bytes of their float64, text as UTF-8.
    """

    name: ClassVar[str] = "hash_bucket"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("buckets",)
    bounds: ClassVar[tuple[str, ...]] = ("buckets",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "buckets": (1, INT64_MAX),
    }
    buckets: int = 0
    seed: int = 0


@dataclass(frozen=True)
class OneHot(Op):
    """Convert index i to columns with a 1 in column i: `size` columns, or one for each index of the previous op.

    An index outside is an error.
    """

    name: ClassVar[str] = "one_hot"
    size: int = 0


@dataclass(frozen=True)
class Sqrt(Op):
    """Compute the square root; NaN below 0."""

    name: ClassVar[str] = "sqrt"


@dataclass(frozen=True)
class Abs(Op):
    """Compute the absolute value; integers stay integers."""

    name: ClassVar[str] = "abs"


@dataclass(frozen=True)
class Logit(Op):
    """Compute ln(x / (1 - x)), with `eps` after clipping x to [eps, 1 - eps]."""

    name: ClassVar[str] = "logit"
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "eps": (0.0, 0.5),
    }
    eps: float | None = None


@dataclass(frozen=True)
class BoxCox(Op):
    """Compute (x^lambda - 1) / lambda, or ln x if lambda is 0; NaN below 0."""

    name: ClassVar[str] = "box_cox"
    required: ClassVar[tuple[str, ...]] = ("lambda",)
    renamed: ClassVar[dict[str, str]] = {"lambda": "lambda_"}
    lambda_: float = 0.0


@dataclass(frozen=True)
class MaxAbs(Op):
    """Compute x / the largest absolute value; 0 divides by 1."""

    name: ClassVar[str] = "max_abs"
    learned: ClassVar[tuple[str, ...]] = ("max_abs",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "max_abs": (0.0, inf),
    }
    max_abs: float | None = None


@dataclass(frozen=True)
class Robust(Op):
    """Compute (x - median) / (75 % - 25 % quantile), with `by` of each group of rows.

    Quantiles are linear between values; a scale of 0 divides by 1.
    """

    name: ClassVar[str] = "robust"
    learned: ClassVar[tuple[str, ...]] = ("center", "scale", "scales")
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "scale": (0.0, inf),
    }
    center: float | None = None
    scale: float | None = None
    by: tuple[str, ...] = ()
    scales: Scales | None = None


@dataclass(frozen=True)
class Cross(Op):
    """Map the tuple of the value and those of `columns` to a hash modulo `buckets`, never null.

    The XXH3-64 of the XXH3-64 (seed 0) of each value as 8 bytes, of 8 zero bytes for null.
    """

    name: ClassVar[str] = "cross"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("columns", "buckets")
    bounds: ClassVar[tuple[str, ...]] = ("buckets",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "buckets": (1, INT64_MAX),
    }
    columns: tuple[str, ...] = ()
    buckets: int = 0
    seed: int = 0


@dataclass(frozen=True)
class MultiHot(Op):
    """Convert a list of indices to columns with a 1 in the column of each: as many columns as `one_hot`.

    An index outside is an error.
    """

    name: ClassVar[str] = "multi_hot"
    size: int = 0


@dataclass(frozen=True)
class FirstN(Op):
    """Keep the first n elements of a list; with `value`, pad shorter lists at the end and return n columns."""

    name: ClassVar[str] = "first_n"
    required: ClassVar[tuple[str, ...]] = ("n",)
    fills: ClassVar[tuple[str, ...]] = ("value",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0
    value: float | None = None


@dataclass(frozen=True)
class Pad(Op):
    """Convert a list to n columns.

    Pad shorter lists with `value` and cut longer ones, both after the last element, or before the first one with side
    LEFT.
    """

    name: ClassVar[str] = "pad"
    required: ClassVar[tuple[str, ...]] = ("n", "value")
    fills: ClassVar[tuple[str, ...]] = ("value",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0
    value: float = 0.0
    side: str = "RIGHT"


@dataclass(frozen=True)
class Lookup(Op):
    """Join: replace the value by `columns` of the row of the dataset `table` with that `key`, or by null."""

    name: ClassVar[str] = "lookup"
    required: ClassVar[tuple[str, ...]] = ("table", "key", "columns")
    table: str = ""
    key: str = ""
    columns: tuple[str, ...] = ()
    snapshot: str = ""


@dataclass(frozen=True)
class Ngram(Op):
    """Convert a list to the list of its runs of n elements, each hashed like the tuple of a `cross`."""

    name: ClassVar[str] = "ngram"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("n", "buckets")
    bounds: ClassVar[tuple[str, ...]] = ("buckets",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 256),
        "buckets": (1, INT64_MAX),
    }
    n: int = 0
    buckets: int = 0
    seed: int = 0


@dataclass(frozen=True)
class SigridHash(Op):
    """Map an id to its hash by TorchArrow, from 0 to max_value - 1."""

    name: ClassVar[str] = "sigrid_hash"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("max_value",)
    bounds: ClassVar[tuple[str, ...]] = ("max_value",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "max_value": (1, INT64_MAX),
    }
    salt: int = 0
    max_value: int = 0


@dataclass(frozen=True)
class MapId(Op):
    """Map ids[i] to values[i]; other ids become `default`, or null without one."""

    name: ClassVar[str] = "map_id"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("values",)
    bounds: ClassVar[tuple[str, ...]] = ("values", "default")
    ids: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    default: int | None = None
    unsigned: tuple[int, ...] = ()


@dataclass(frozen=True)
class PositiveMod(Op):
    """Compute x modulo `modulus`, never negative; integers stay integers."""

    name: ClassVar[str] = "positive_mod"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("modulus",)
    bounds: ClassVar[tuple[str, ...]] = ("modulus",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "modulus": (1, INT64_MAX),
    }
    modulus: int = 0


@dataclass(frozen=True)
class CountEncode(Op):
    """Map a value to the number of rows with it that the fit saw; 0 for null and other values."""

    name: ClassVar[str] = "count_encode"
    learned: ClassVar[tuple[str, ...]] = ("values",)
    values: VocabValues | None = None
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class TargetMean(Op):
    """Map a value to the mean of a label over the rows with it, drawn to the mean of all rows.

    Out of fold for the rows of the fit.
    """

    name: ClassVar[str] = "target_mean"
    required: ClassVar[tuple[str, ...]] = ("label",)
    learned: ClassVar[tuple[str, ...]] = ("values",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "smoothing": (0.0, inf),
        "folds": (0, 64),
    }
    label: str = ""
    smoothing: float | None = None
    folds: int | None = None
    seed: int = 0
    values: VocabValues | None = None
    means: tuple[float, ...] = ()
    rows: FittedRows | None = None


@dataclass(frozen=True)
class Bytes(Op):
    """Convert a value of exactly n bytes, such as the pixels of an image, to n columns of 0 to 255."""

    name: ClassVar[str] = "bytes"
    required: ClassVar[tuple[str, ...]] = ("n",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0


@dataclass(frozen=True)
class Udf(Op):
    """Replace the value by the result of a Python function of the server, of this column and further `columns`.

    The first op of its part.
    """

    name: ClassVar[str] = "udf"
    required: ClassVar[tuple[str, ...]] = ("name",)
    renamed: ClassVar[dict[str, str]] = {"name": "function"}
    function: str = ""
    columns: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class Tokenize(Op):
    """Convert text to the list of its tokens; the first op of its part, or the second after `fill_null` with a text."""

    name: ClassVar[str] = "tokenize"
    indexes: ClassVar[bool] = True
    tokenizer: str = ""
    json: str = ""
    digest: str = ""
    max_length: int = 0
    truncation: str = "RIGHT"
    add_special_tokens: bool | None = None


@dataclass(frozen=True)
class AttentionMask(Op):
    """Convert a list of integers to n columns: 1 for each element, and 0 where `pad` with the same arguments pads."""

    name: ClassVar[str] = "attention_mask"
    indexes: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("n",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0
    side: str = "RIGHT"


@dataclass(frozen=True)
class DecodeImage(Op):
    """Convert the bytes of an image to a tensor [height, width, channels]; the first op of its part."""

    name: ClassVar[str] = "decode_image"
    required: ClassVar[tuple[str, ...]] = ("height", "width")
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "height": (1, 16384),
        "width": (1, 16384),
    }
    height: int = 0
    width: int = 0
    channels: int | None = None
    resize: str = "BILINEAR"
    crop: str = "NONE"
    scale_min: float | None = None
    scale_max: float | None = None
    ratio_min: float | None = None
    ratio_max: float | None = None
    flip: bool = False
    seed: int = 0
    normalize: Normalize | None = None
    on_error: str = "FAIL"
    encoded: bool = False
    orientation: str = "APPLY"
    turned_like: tuple[str, ...] = ()


@dataclass(frozen=True)
class LastN(Op):
    """Keep the last n elements of a list, the newest of a history that is stored oldest first.

    With `value`, pad shorter lists at the start and return n columns.
    """

    name: ClassVar[str] = "last_n"
    required: ClassVar[tuple[str, ...]] = ("n",)
    fills: ClassVar[tuple[str, ...]] = ("value",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0
    value: float | None = None


@dataclass(frozen=True)
class Lag(Op):
    """Replace the value by that of the row `n` rows before in its series; null where there is none."""

    name: ClassVar[str] = "lag"
    required: ClassVar[tuple[str, ...]] = ("n",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0


@dataclass(frozen=True)
class Diff(Op):
    """Subtract the value of the row `n` rows before in its series; dates and times give seconds."""

    name: ClassVar[str] = "diff"
    required: ClassVar[tuple[str, ...]] = ("n",)
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "n": (1, 65536),
    }
    n: int = 0


@dataclass(frozen=True)
class Rolling(Op):
    """Compute a statistic of the last `length` rows of its series, fewer at its beginning.

    The mean, deviation, extreme, sum or count of values other than null and NaN.
    """

    name: ClassVar[str] = "rolling"
    required: ClassVar[tuple[str, ...]] = ("stat", "length")
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "length": (1, 65536),
    }
    stat: str = "MEAN"
    length: int = 0


OPS: dict[str, type[Op]] = {
    "fill_null": FillNull,
    "clip": Clip,
    "log1p": Log1p,
    "standardize": Standardize,
    "min_max": MinMax,
    "bucketize": Bucketize,
    "vocab": Vocab,
    "hash_bucket": HashBucket,
    "one_hot": OneHot,
    "sqrt": Sqrt,
    "abs": Abs,
    "logit": Logit,
    "box_cox": BoxCox,
    "max_abs": MaxAbs,
    "robust": Robust,
    "cross": Cross,
    "multi_hot": MultiHot,
    "first_n": FirstN,
    "pad": Pad,
    "lookup": Lookup,
    "ngram": Ngram,
    "sigrid_hash": SigridHash,
    "map_id": MapId,
    "positive_mod": PositiveMod,
    "count_encode": CountEncode,
    "target_mean": TargetMean,
    "bytes": Bytes,
    "udf": Udf,
    "tokenize": Tokenize,
    "attention_mask": AttentionMask,
    "decode_image": DecodeImage,
    "last_n": LastN,
    "lag": Lag,
    "diff": Diff,
    "rolling": Rolling,
}
