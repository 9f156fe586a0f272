"""The methods that add an op to a chain, of ops that take their fields as arguments.

Generated from plan.proto by the tests of forebay-proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from forebay._plan.arguments import (
    INT64_MAX,
    INT64_MIN,
    choice,
    column_names,
    fill_value,
    in_range,
    number,
    together,
    whole_number,
)
from forebay._plan.op import Op

from . import ops
from .messages import ENUMS, Side, Statistic

Chain = TypeVar("Chain", bound="OpMethods")


class OpMethods:
    """A chain of ops that these methods extend."""

    def _then(self: Chain, op: Op) -> Chain:
        raise NotImplementedError

    def log1p(self: Chain) -> Chain:
        """Compute ln(1 + x)."""
        return self._then(ops.Log1p())

    def standardize(
        self: Chain, *, by: str | Sequence[str] = (), mean: float | None = None, std: float | None = None
    ) -> Chain:
        """Compute (x - mean) / std of the population, with `by` of each group of rows; a std of 0 divides by 1.

        Learned unless mean and std are given.
        """
        together("standardize", {"mean": mean, "std": std}, by)
        return self._then(
            ops.Standardize(
                by=column_names("standardize: by", by),
                mean=None if mean is None else number("standardize: mean", mean),
                std=None if std is None else number("standardize: std", std),
            )
        )

    def min_max(
        self: Chain,
        *,
        by: str | Sequence[str] = (),
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
    ) -> Chain:
        """Compute (x - min) / (max - min), with `by` of each group of rows; a range of 0 divides by 1.

        Learned unless min and max are given.
        """
        together("min_max", {"min": min, "max": max}, by)
        return self._then(
            ops.MinMax(
                by=column_names("min_max: by", by),
                min=None if min is None else number("min_max: min", min),
                max=None if max is None else number("min_max: max", max),
            )
        )

    def hash_bucket(self: Chain, buckets: int, seed: int = 0) -> Chain:
        """Map a value to its XXH3-64 modulo `buckets`.

        Integers as 8 little-endian bytes, floats as the bytes of their float64, text as UTF-8.
        """
        return self._then(
            ops.HashBucket(
                buckets=whole_number("hash_bucket: buckets", buckets, least=1, most=INT64_MAX),
                seed=whole_number("hash_bucket: seed", seed),
            )
        )

    def sqrt(self: Chain) -> Chain:
        """Compute the square root; NaN below 0."""
        return self._then(ops.Sqrt())

    def abs(self: Chain) -> Chain:
        """Compute the absolute value; integers stay integers."""
        return self._then(ops.Abs())

    def logit(self: Chain, eps: float | None = None) -> Chain:
        """Compute ln(x / (1 - x)), with `eps` after clipping x to [eps, 1 - eps]."""
        return self._then(
            ops.Logit(
                eps=None if eps is None else in_range("logit: eps", eps, 0.0, 0.5),
            )
        )

    def box_cox(self: Chain, lambda_: float) -> Chain:
        """Compute (x^lambda - 1) / lambda, or ln x if lambda is 0; NaN below 0."""
        return self._then(
            ops.BoxCox(
                lambda_=number("box_cox: lambda_", lambda_),
            )
        )

    def max_abs(self: Chain, *, max_abs: float | None = None) -> Chain:
        """Compute x / the largest absolute value; 0 divides by 1; learned unless given."""
        return self._then(
            ops.MaxAbs(
                max_abs=None if max_abs is None else in_range("max_abs: max_abs", max_abs, 0.0),
            )
        )

    def robust(
        self: Chain, *, by: str | Sequence[str] = (), center: float | None = None, scale: float | None = None
    ) -> Chain:
        """Compute (x - median) / (75 % - 25 % quantile), with `by` of each group of rows.

        Quantiles are linear between values; a scale of 0 divides by 1; learned unless center and scale are given.
        """
        together("robust", {"center": center, "scale": scale}, by)
        return self._then(
            ops.Robust(
                by=column_names("robust: by", by),
                center=None if center is None else number("robust: center", center),
                scale=None if scale is None else in_range("robust: scale", scale, 0.0),
            )
        )

    def first_n(self: Chain, n: int, *, value: float | None = None) -> Chain:
        """Keep the first n elements of a list; with `value`, pad shorter lists at the end and return n columns."""
        return self._then(
            ops.FirstN(
                n=whole_number(
                    "first_n: n",
                    n,
                    least=1,
                    most=65536,
                    instead='for the last elements of lists, use last_n(n) or pad(n, side="left")',
                ),
                value=None if value is None else fill_value("first_n: value", value),
            )
        )

    def pad(self: Chain, n: int, value: float = 0.0, *, side: Side = "right") -> Chain:
        """Convert a list to n columns.

        Pad shorter lists with `value` and cut longer ones, both after the last element, or before the first one with
        side LEFT.
        """
        return self._then(
            ops.Pad(
                n=whole_number(
                    "pad: n",
                    n,
                    least=1,
                    most=65536,
                    instead='for the last elements of lists, use last_n(n) or pad(n, side="left")',
                ),
                value=fill_value("pad: value", value),
                side=choice("pad: side", side, ENUMS["Side"]),
            )
        )

    def ngram(self: Chain, n: int, *, buckets: int, seed: int = 0) -> Chain:
        """Convert a list to the list of its runs of n elements, each hashed like the tuple of a `cross`."""
        return self._then(
            ops.Ngram(
                n=whole_number("ngram: n", n, least=1, most=256),
                buckets=whole_number("ngram: buckets", buckets, least=1, most=INT64_MAX),
                seed=whole_number("ngram: seed", seed),
            )
        )

    def sigrid_hash(self: Chain, *, max_value: int, salt: int = 0) -> Chain:
        """Map an id to its hash by TorchArrow, from 0 to max_value - 1."""
        return self._then(
            ops.SigridHash(
                max_value=whole_number("sigrid_hash: max_value", max_value, least=1, most=INT64_MAX),
                salt=whole_number("sigrid_hash: salt", salt, least=INT64_MIN, most=INT64_MAX),
            )
        )

    def positive_mod(self: Chain, modulus: int) -> Chain:
        """Compute x modulo `modulus`, never negative; integers stay integers."""
        return self._then(
            ops.PositiveMod(
                modulus=whole_number("positive_mod: modulus", modulus, least=1, most=INT64_MAX),
            )
        )

    def count_encode(self: Chain) -> Chain:
        """Map a value to the number of rows with it that the fit saw; 0 for null and other values."""
        return self._then(ops.CountEncode())

    def bytes(self: Chain, n: int) -> Chain:
        """Convert a value of exactly n bytes, such as the pixels of an image, to n columns of 0 to 255."""
        return self._then(
            ops.Bytes(
                n=whole_number("bytes: n", n, least=1, most=65536),
            )
        )

    def attention_mask(self: Chain, n: int, *, side: Side = "right") -> Chain:
        """Convert a list of integers to n columns.

        1 for each element, and 0 where `pad` with the same arguments pads.
        """
        return self._then(
            ops.AttentionMask(
                n=whole_number(
                    "attention_mask: n",
                    n,
                    least=1,
                    most=65536,
                    instead='for the last elements of lists, use last_n(n) or pad(n, side="left")',
                ),
                side=choice("attention_mask: side", side, ENUMS["Side"]),
            )
        )

    def last_n(self: Chain, n: int, *, value: float | None = None) -> Chain:
        """Keep the last n elements of a list, the newest of a history that is stored oldest first.

        With `value`, pad shorter lists at the start and return n columns.
        """
        return self._then(
            ops.LastN(
                n=whole_number(
                    "last_n: n",
                    n,
                    least=1,
                    most=65536,
                    instead='for the last elements of lists, use last_n(n) or pad(n, side="left")',
                ),
                value=None if value is None else fill_value("last_n: value", value),
            )
        )

    def lag(self: Chain, n: int = 1) -> Chain:
        """Replace the value by that of the row `n` rows before in its series; null where there is none."""
        return self._then(
            ops.Lag(
                n=whole_number("lag: n", n, least=1, most=65536),
            )
        )

    def diff(self: Chain, n: int = 1) -> Chain:
        """Subtract the value of the row `n` rows before in its series; dates and times give seconds."""
        return self._then(
            ops.Diff(
                n=whole_number("diff: n", n, least=1, most=65536),
            )
        )

    def rolling(self: Chain, stat: Statistic, length: int) -> Chain:
        """Compute a statistic of the last `length` rows of its series, fewer at its beginning.

        The mean, deviation, extreme, sum or count of values other than null and NaN.
        """
        return self._then(
            ops.Rolling(
                stat=choice("rolling: stat", stat, ENUMS["Statistic"]),
                length=whole_number("rolling: length", length, least=1, most=65536),
            )
        )
