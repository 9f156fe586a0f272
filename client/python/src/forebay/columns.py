"""Columns and the chain of ops on them: what the parts of a plan are written with.

Every chain is immutable: a method returns a longer one. What can be seen without data is checked here; columns and
their types are the server's to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Literal, cast

import numpy as np

from . import ops as _ops
from .op import (
    EXACT_IN_DOUBLE,
    INT64_MAX,
    INT64_MIN,
    UINT32_MAX,
    Json,
    Op,
    column_name,
    ending_in_indexes,
    exact,
    filling,
    in_range,
    number,
    optional,
    whole,
)

# The server's limits: columns that one column may become, and elements of a run.
PAD_MAX = 65_536
NGRAM_MAX = 256


@dataclass(frozen=True)
class Columns:
    """Columns and the chain of ops applied to each of them; made by `cols`."""

    names: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    stored: bool = False

    def fill_null(
        self,
        value: float | Decimal | str | None = None,
        /,
        *,
        text: str | None = None,
        stat: Literal["mean", "median", "mode"] | None = None,
    ) -> Columns:
        """Turn null into a value.

        ``fill_null(0.0)`` fills a number; ``fill_null("mean")``, ``"median"`` and ``"mode"`` (or ``stat=``) the
        statistic of the column, which a fit learns; ``fill_null(text="UA")`` a text. A ``Decimal`` and an integer
        keep all their digits.
        """
        if sum(given is not None for given in (value, text, stat)) != 1:
            raise TypeError('fill_null takes one of a number, "mean", "median" or "mode", text="…"')
        if isinstance(value, str):
            if value.upper() not in _ops.STATS:
                raise ValueError(
                    f'fill_null({value!r}) is no statistic ("mean", "median", "mode"); '
                    f"to fill the text write fill_null(text={value!r})"
                )
            return self._then(_ops.FillNull(stat=value.upper()))
        if stat is not None:
            if str(stat).upper() not in _ops.STATS:
                raise ValueError(f'fill_null(stat={stat!r}): choose "mean", "median" or "mode"')
            return self._then(_ops.FillNull(stat=stat.upper()))
        if text is not None:
            if not isinstance(cast(object, text), str):
                raise TypeError(f"fill_null(text=…) must be text, not {text!r}; a number goes without text=")
            return self._then(_ops.FillNull(text=text))
        if isinstance(value, (bool, np.bool_)):
            return self._then(_ops.FillNull(value=float(value)))
        if isinstance(value, (int, np.integer)) and abs(int(value)) > EXACT_IN_DOUBLE:
            integer = whole("fill_null", value, least=INT64_MIN)
            if integer > INT64_MAX:
                return self._then(_ops.FillNull(unsigned=integer))
            return self._then(_ops.FillNull(integer=integer))
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise ValueError(f"fill_null: {value} is no value of a decimal column")
            return self._then(_ops.FillNull(decimal=f"{value:f}"))
        if isinstance(value, (int, float, np.integer, np.floating)):
            return self._then(_ops.FillNull(value=float(value)))
        raise TypeError(f'fill_null takes a number, "mean", "median" or "mode", text="…"; not {value!r}')

    def clip(self, min: float | None = None, max: float | None = None) -> Columns:  # noqa: A002 (as numpy names them)
        """Hold values between the bounds; one of them may be left out."""
        if min is None and max is None:
            raise TypeError("clip takes min, max or both")
        low = None if min is None else exact("clip: min", min)
        high = None if max is None else exact("clip: max", max)
        if low is not None and high is not None and low > high:
            raise ValueError(f"clip: min {low} is above max {high}")
        return self._then(_ops.Clip(low, high))

    def log1p(self) -> Columns:
        """Take ln(1 + x)."""
        return self._then(_ops.Log1p())

    def sqrt(self) -> Columns:
        """Take the square root; NaN below 0."""
        return self._then(_ops.Sqrt())

    def abs(self) -> Columns:
        """Take the absolute value."""
        return self._then(_ops.Abs())

    def logit(self, eps: float | None = None) -> Columns:
        """Take ln(x / (1 - x)), x clipped to [eps, 1 - eps] first where `eps` is given."""
        return self._then(_ops.Logit(None if eps is None else in_range("logit: eps", eps, 0.0, 0.5)))

    def box_cox(self, lambda_: float) -> Columns:
        """Take (x^lambda - 1) / lambda, or ln x where `lambda_` is 0; NaN below 0."""
        return self._then(_ops.BoxCox(number("box_cox: lambda_", lambda_)))

    def standardize(self, *, mean: float | None = None, std: float | None = None) -> Columns:
        """Take (x - mean) / std, the population's deviation; learned unless both are given."""
        if (mean is None) != (std is None):
            raise TypeError("standardize: give both mean and std, or neither to learn them")
        return self._then(_ops.Standardize(optional("standardize: mean", mean), optional("standardize: std", std)))

    def min_max(self, *, min: float | None = None, max: float | None = None) -> Columns:  # noqa: A002
        """Take (x - min) / (max - min); learned unless both are given."""
        if (min is None) != (max is None):
            raise TypeError("min_max: give both min and max, or neither to learn them")
        return self._then(_ops.MinMax(optional("min_max: min", min), optional("min_max: max", max)))

    def max_abs(self, *, max_abs: float | None = None) -> Columns:
        """Take x / max_abs, the largest absolute value; learned unless it is given."""
        return self._then(_ops.MaxAbs(None if max_abs is None else in_range("max_abs: max_abs", max_abs, 0.0)))

    def robust(self, *, center: float | None = None, scale: float | None = None) -> Columns:
        """Take (x - center) / scale, the median and the distance between the quartiles; learned unless both are given.

        Quartiles are interpolated, as numpy.nanpercentile does.
        """
        if center is None and scale is None:
            return self._then(_ops.Robust())
        if center is None or scale is None:
            raise TypeError("robust: give both center and scale, or neither to learn them")
        return self._then(_ops.Robust(number("robust: center", center), in_range("robust: scale", scale, 0.0)))

    def bucketize(self, boundaries: Sequence[float] | None = None, *, quantiles: int | None = None) -> Columns:
        """Count the boundaries that are <= x: ascending ones that are given, or n quantiles' inner edges, learned."""
        if (boundaries is None) == (quantiles is None):
            raise TypeError("bucketize takes either boundaries or quantiles=")
        if quantiles is not None:
            count = whole("bucketize: quantiles", quantiles, least=2, most=UINT32_MAX)
            return self._then(_ops.Bucketize(quantiles=count))
        edges = tuple(exact("bucketize: a boundary", edge) for edge in boundaries or ())
        if not edges:
            raise ValueError("bucketize: boundaries is empty; give one or more")
        if any(a >= b for a, b in pairwise(edges)):
            raise ValueError("bucketize: boundaries must ascend")
        if any(isinstance(edge, int) for edge in edges):
            edges = _whole_edges(edges)
        return self._then(_ops.Bucketize(edges))

    def vocab(
        self,
        *,
        min_count: int = 0,
        max_size: int = 0,
        oov_buckets: int = 0,
        values: Sequence[str] | Sequence[int] | Sequence[float] | Sequence[Decimal] | None = None,
    ) -> Columns:
        """Turn a value into its index: 0 unseen or null, then 1 and up by count; learned unless `values` are given.

        Values seen fewer than `min_count` times are left out, at most `max_size` are kept (0: all), and the unseen go
        to `oov_buckets` hashed indices behind the vocabulary (0: to index 0).
        """
        if isinstance(values, (str, bytes)):
            raise TypeError("vocab: values must be a list of values, in index order")
        return self._then(
            _ops.Vocab(
                whole("vocab: min_count", min_count),
                whole("vocab: max_size", max_size),
                whole("vocab: oov_buckets", oov_buckets, most=UINT32_MAX),
                None if values is None else _ops.Values.of(values),
            )
        )

    def hash_bucket(self, buckets: int, seed: int = 0) -> Columns:
        """Turn a value into its XXH3-64 (seed) modulo `buckets`."""
        return self._then(_ops.HashBucket(_buckets("hash_bucket", buckets), whole("hash_bucket: seed", seed)))

    def cross(self, *columns: str, buckets: int, seed: int = 0) -> Columns:
        """Turn the tuple of the value and these columns' values into its hash modulo `buckets`; never null.

        The columns are taken as they are stored or derived. Their order counts.
        """
        if not columns:
            raise TypeError('cross needs a column to cross with: cols("a").cross("b", buckets=1000)')
        names = tuple(column_name("cross: a column's name", name) for name in columns)
        return self._then(_ops.Cross(names, _buckets("cross", buckets), whole("cross: seed", seed)))

    def sigrid_hash(self, *, max_value: int, salt: int = 0) -> Columns:
        """Turn an id into TorchArrow's hash of it, from 0 to max_value - 1."""
        return self._then(
            _ops.SigridHash(
                whole("sigrid_hash: salt", salt, least=INT64_MIN, most=INT64_MAX),
                whole("sigrid_hash: max_value", max_value, least=1, most=INT64_MAX),
            )
        )

    def map_id(
        self,
        mapping: Mapping[int, int] | None = None,
        *,
        ids: Sequence[int] | None = None,
        values: Sequence[int] | None = None,
        default: int | None = None,
    ) -> Columns:
        """Turn ids into other ids: ``map_id({7: 1, 9: 2})``, or lists of equal length as `ids` and `values`.

        An id that is not there becomes `default`, or null where there is none. Null stays null.
        """
        if (mapping is None) == (ids is None) or (ids is None) != (values is None):
            raise TypeError("map_id takes either a mapping, or both ids= and values=")
        mapping = mapping or {}
        old = list(mapping if ids is None else ids)
        new = list(mapping.values() if values is None else values)
        if len(old) != len(new):
            raise ValueError(f"map_id: there are {len(old)} ids and {len(new)} values; give one value for each id")
        if not old:
            raise ValueError("map_id: the mapping is empty; give one id or more")
        int64 = {"least": INT64_MIN, "most": INT64_MAX}
        # Ids beyond int64 are those of a uint64 column, which has none below 0.
        is_unsigned = any(int(value) > INT64_MAX for value in old if isinstance(cast(object, value), (int, np.integer)))
        known = tuple(whole("map_id: an id", value, **({} if is_unsigned else int64)) for value in old)
        if len(set(known)) < len(known):
            raise ValueError(f"map_id: id {next(k for k, n in Counter(known).items() if n > 1)} is there twice")
        return self._then(
            _ops.MapId(
                known,
                tuple(whole("map_id: a value", value, **int64) for value in new),
                None if default is None else whole("map_id: default", default, **int64),
            )
        )

    def positive_mod(self, modulus: int) -> Columns:
        """Take x modulo `modulus`, from 0 up also for x below 0; whole numbers stay whole, fractions need a dtype."""
        return self._then(_ops.PositiveMod(whole("positive_mod: modulus", modulus, least=1, most=INT64_MAX)))

    def first_n(self, n: int, *, value: float | None = None) -> Columns:
        """Keep the first `n` elements of a list; with `value` fill shorter lists up, so that there are n columns."""
        count = whole("first_n: n", n, least=1, most=PAD_MAX)
        return self._then(_ops.FirstN(count, None if value is None else filling("first_n: value", value)))

    def pad(self, n: int, value: float = 0.0) -> Columns:
        """Turn a list into `n` columns: fill shorter ones up with `value`, cut longer ones."""
        return self._then(_ops.Pad(whole("pad: n", n, least=1, most=PAD_MAX), filling("pad: value", value)))

    def ngram(self, n: int, *, buckets: int, seed: int = 0) -> Columns:
        """Turn a list into the list of its runs of `n` elements, each hashed modulo `buckets`."""
        return self._then(
            _ops.Ngram(
                whole("ngram: n", n, least=1, most=NGRAM_MAX), _buckets("ngram", buckets), whole("ngram: seed", seed)
            )
        )

    def lookup(self, table: str, key: str, columns: Sequence[str]) -> Columns:
        """Join: the value becomes these `columns` of the row of dataset `table` whose `key` it is; null where none is.

        The dataset is one of the same server, and its keys are unique. Each column goes on through the chain.
        """
        if isinstance(columns, str):
            raise TypeError(f"lookup: columns must be a list of names: columns=[{columns!r}]")
        names = tuple(column_name("lookup: a column's name", name) for name in columns)
        if not names:
            raise ValueError("lookup: columns is empty; name one or more columns of the table")
        return self._then(_ops.Lookup(column_name("lookup: table", table), column_name("lookup: key", key), names))

    def one_hot(self, size: int | None = None) -> Columns:
        """Turn index i into columns with a 1 in column i: `size` of them, or as many as the op before has indices."""
        return self._then(_ops.OneHot(self._size("one_hot", size)))

    def multi_hot(self, size: int | None = None) -> Columns:
        """Turn a list of indices into columns with a 1 in the column of each; `size` as in `one_hot`."""
        return self._then(_ops.MultiHot(self._size("multi_hot", size)))

    def as_stored(self) -> Columns:
        """Pass one column through untouched, of any type, nulls and all."""
        if len(self.names) != 1 or self.ops:
            raise ValueError("as_stored passes one column through: one column, and no other op beside it")
        return Columns(self.names, (), stored=True)

    def to_dict(self) -> Json:
        """Return the part as the server's JSON has it."""
        part: Json = {"columns": list(self.names)}
        if self.ops:
            part["ops"] = [{op.name: op.to_dict()} for op in self.ops]
        return part

    def _size(self, op: str, size: int | None) -> int:
        """Return how many columns indices are laid out to; 0 is as many as there are indices."""
        if size is not None:
            return whole(f"{op}: size", size, least=1, most=UINT32_MAX)
        if not ending_in_indexes(self.ops):
            raise ValueError(f"{op}: give size=…, or put vocab, hash_bucket or bucketize before it")
        return 0

    def _then(self, op: Op) -> Columns:
        if self.stored:
            raise ValueError(f"{op.name} after as_stored: a column passed through untouched takes no op")
        return Columns(self.names, (*self.ops, op))


def cols(*names: str) -> Columns:
    """Name columns of the dataset, or derived ones, to start a chain of ops from."""
    if not names:
        raise TypeError('cols needs a column name: cols("dep_delay", "distance")')
    for name in names:
        if not isinstance(cast(object, name), str) or not name:
            raise TypeError(f'cols takes column names one by one, cols("a", "b"); not {name!r}')
    return Columns(tuple(names))


def _whole_edges(edges: tuple[float, ...]) -> tuple[int, ...]:
    """Return boundaries of which a float does not hold one as integers."""
    if any(not isinstance(edge, int) and not edge.is_integer() for edge in edges):
        raise ValueError("bucketize: with an integer that float64 does not hold, every boundary must be a whole number")
    whole_edges = tuple(int(edge) for edge in edges)
    if whole_edges[0] < 0 and whole_edges[-1] > INT64_MAX:
        raise ValueError("bucketize: no integer type has both boundaries below 0 and above 2^63 - 1")
    return whole_edges


def _buckets(op: str, value: object) -> int:
    return whole(f"{op}: buckets", value, least=1, most=INT64_MAX)
