"""The plan builder: which rows pass, what is computed from them, how it is laid out.

Builds and reads the JSON of the server's plan.proto and checks what needs no data. Columns, types and SQL are the
server's to judge. Every object here is immutable: a chain's method returns a longer chain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, cast

import numpy as np

from . import ops as _ops
from .ops import Json, Op, number, whole

DType = Literal["FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT64", "UINT8", "AS_STORED"]
DTYPES: tuple[str, ...] = ("FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT64", "UINT8", "AS_STORED")


@dataclass(frozen=True)
class Columns:
    """Columns and the chain of ops applied to each of them; made by `cols`."""

    names: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    stored: bool = False

    def fill_null(
        self,
        value: float | str | None = None,
        /,
        *,
        text: str | None = None,
        stat: Literal["mean", "median", "mode"] | None = None,
    ) -> Columns:
        """Turn null into a value.

        ``fill_null(0.0)`` fills a number; ``fill_null("mean")``, ``"median"`` and ``"mode"`` (or ``stat=``) the
        statistic of the column, which a fit learns; ``fill_null(text="UA")`` a text.
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
        if isinstance(value, (int, np.integer)) and abs(int(value)) > _ops.EXACT_IN_DOUBLE:
            integer = whole("fill_null", value, least=_ops.INT64_MIN, most=_ops.INT64_MAX)
            return self._then(_ops.FillNull(integer=integer))
        if isinstance(value, (int, float, np.integer, np.floating)):
            return self._then(_ops.FillNull(value=float(value)))
        raise TypeError(f'fill_null takes a number, "mean", "median" or "mode", text="…"; not {value!r}')

    def clip(self, min: float | None = None, max: float | None = None) -> Columns:  # noqa: A002 (as numpy names them)
        """Hold values between the bounds; one of them may be left out."""
        if min is None and max is None:
            raise TypeError("clip takes min, max or both")
        low, high = _optional("clip: min", min), _optional("clip: max", max)
        if low is not None and high is not None and low > high:
            raise ValueError(f"clip: min {low} is above max {high}")
        return self._then(_ops.Clip(low, high))

    def log1p(self) -> Columns:
        """Take ln(1 + x)."""
        return self._then(_ops.Log1p())

    def standardize(self, *, mean: float | None = None, std: float | None = None) -> Columns:
        """Take (x - mean) / std, the population's deviation; learned unless both are given."""
        if (mean is None) != (std is None):
            raise TypeError("standardize: give both mean and std, or neither to learn them")
        return self._then(_ops.Standardize(_optional("standardize: mean", mean), _optional("standardize: std", std)))

    def min_max(self, *, min: float | None = None, max: float | None = None) -> Columns:  # noqa: A002
        """Take (x - min) / (max - min); learned unless both are given."""
        if (min is None) != (max is None):
            raise TypeError("min_max: give both min and max, or neither to learn them")
        return self._then(_ops.MinMax(_optional("min_max: min", min), _optional("min_max: max", max)))

    def bucketize(self, boundaries: Sequence[float] | None = None, *, quantiles: int | None = None) -> Columns:
        """Count the boundaries that are <= x: ascending ones that are given, or n quantiles' inner edges, learned."""
        if (boundaries is None) == (quantiles is None):
            raise TypeError("bucketize takes either boundaries or quantiles=")
        if quantiles is not None:
            count = whole("bucketize: quantiles", quantiles, least=2, most=_ops.UINT32_MAX)
            return self._then(_ops.Bucketize(quantiles=count))
        edges = tuple(number("bucketize: a boundary", edge) for edge in boundaries or ())
        if not edges:
            raise ValueError("bucketize: boundaries is empty; give one or more")
        if any(a >= b for a, b in pairwise(edges)):
            raise ValueError("bucketize: boundaries must ascend")
        return self._then(_ops.Bucketize(edges))

    def vocab(
        self,
        *,
        min_count: int = 0,
        max_size: int = 0,
        oov_buckets: int = 0,
        values: Sequence[str] | Sequence[int] | Sequence[float] | None = None,
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
                whole("vocab: oov_buckets", oov_buckets, most=_ops.UINT32_MAX),
                None if values is None else _ops.Values.of(values),
            )
        )

    def hash_bucket(self, buckets: int, seed: int = 0) -> Columns:
        """Turn a value into its XXH3-64 (seed) modulo `buckets`."""
        return self._then(
            _ops.HashBucket(whole("hash_bucket: buckets", buckets, least=1), whole("hash_bucket: seed", seed))
        )

    def one_hot(self, size: int | None = None) -> Columns:
        """Turn index i into columns with a 1 in column i: `size` of them, or as many as the op before has indices."""
        if size is None:
            if not self.ops or not self.ops[-1].indexes:
                raise ValueError("one_hot: give size=…, or put vocab, hash_bucket or bucketize before it")
            return self._then(_ops.OneHot())
        return self._then(_ops.OneHot(whole("one_hot: size", size, least=1, most=_ops.UINT32_MAX)))

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

    def _then(self, op: Op) -> Columns:
        if self.stored:
            raise ValueError(f"{op.name} after as_stored: a column passed through untouched takes no op")
        return Columns(self.names, (*self.ops, op))


@dataclass(frozen=True)
class Output:
    """One column of a batch: its parts side by side, in one dtype; made by `output`."""

    parts: tuple[Columns, ...]
    dtype: DType


def cols(*names: str) -> Columns:
    """Name columns of the dataset, or derived ones, to start a chain of ops from."""
    if not names:
        raise TypeError('cols needs a column name: cols("dep_delay", "distance")')
    for name in names:
        if not isinstance(cast(object, name), str) or not name:
            raise TypeError(f'cols takes column names one by one, cols("a", "b"); not {name!r}')
    return Columns(tuple(names))


def output(parts: Columns | Sequence[Columns], *, dtype: str | None = None) -> Output:
    """Lay parts side by side as one output, in a dtype of your choice.

    Left out, the dtype is INT32 (INT64 if it must be) where every part ends in an index (vocab, hash_bucket,
    bucketize), AS_STORED for `Columns.as_stored`, and FLOAT32 otherwise.
    """
    listed = (parts,) if isinstance(parts, Columns) else tuple(parts)
    if not listed:
        raise ValueError("an output needs at least one part")
    for part in listed:
        if not isinstance(cast(object, part), Columns):
            raise TypeError(f'an output is made of cols("…") chains, not {part!r}')
    stored = any(part.stored for part in listed)
    if stored and len(listed) > 1:
        raise ValueError("as_stored must be its output's only part")
    if dtype is None:
        return Output(listed, "AS_STORED" if stored else _default_dtype(listed))
    if not isinstance(cast(object, dtype), str) or dtype.upper() not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    chosen = cast(DType, dtype.upper())
    if stored and chosen != "AS_STORED":
        raise ValueError(f"as_stored keeps the column's own type; it cannot become {chosen}")
    if chosen == "AS_STORED":
        if len(listed) != 1:
            raise ValueError("dtype AS_STORED takes one part of one column")
        listed = (listed[0].as_stored(),)
    return Output(listed, chosen)


@dataclass(frozen=True, init=False)
class Plan:
    """Which rows of a dataset pass, what is computed from them, and how it is laid out.

    `filter` and the expressions of `derive` are SQL over the dataset's columns. `outputs` names the columns of every
    batch; each is one `cols` chain, a list of them side by side, or an `output` with a dtype of its own.
    """

    filter: str
    derive: Mapping[str, str] = field(hash=False)
    outputs: Mapping[str, Output] = field(hash=False)

    def __init__(
        self,
        *,
        outputs: Mapping[str, Columns | Sequence[Columns] | Output],
        filter: str | None = None,  # noqa: A002 (the contract's name)
        derive: Mapping[str, str] | None = None,
    ) -> None:
        if filter is not None and not isinstance(cast(object, filter), str):
            raise TypeError(f"filter must be an SQL expression in text, not {filter!r}")
        if not isinstance(cast(object, outputs), Mapping) or not outputs:
            raise TypeError('outputs must map names to cols chains: outputs={"dense": fb.cols("a", "b")}')
        for name, expr in (derive or {}).items():
            if not isinstance(cast(object, expr), str) or not expr.strip():
                raise TypeError(f"derive: {name!r} must be an SQL expression in text, not {expr!r}")
        made: dict[str, Output] = {}
        for name, parts in outputs.items():
            if not isinstance(cast(object, name), str) or not name:
                raise TypeError(f"outputs: a name must be text, not {name!r}")
            try:
                made[name] = parts if isinstance(parts, Output) else output(parts)
            except (TypeError, ValueError) as error:
                raise type(error)(f"outputs: {name!r}: {error}") from error
        object.__setattr__(self, "filter", filter or "")
        object.__setattr__(self, "derive", dict(derive or {}))
        object.__setattr__(self, "outputs", made)

    @property
    def needs_fit(self) -> bool:
        """Whether an op is left to learn something: a mean, a bound, a vocabulary."""
        return any(op.learns for out in self.outputs.values() for part in out.parts for op in part.ops)

    def to_dict(self) -> Json:
        """Return the plan as the server's JSON has it."""
        plan: Json = {}
        if self.filter:
            plan["filter"] = self.filter
        if self.derive:
            plan["derive"] = [{"name": name, "expr": expr} for name, expr in self.derive.items()]
        plan["outputs"] = [
            {"name": name, "dtype": out.dtype, "parts": [part.to_dict() for part in out.parts]}
            for name, out in self.outputs.items()
        ]
        return plan

    def to_json(self) -> str:
        """Return the plan as one line of JSON; equal plans give equal lines."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, plan: Mapping[str, object]) -> Plan:
        """Read what `to_dict` writes, or the server's JSON of a plan; an unknown field is an error."""
        from .plan_json import read_plan

        return read_plan(plan)

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str]) -> Plan:
        """Read a plan from a file, or from text that begins with a brace.

        Takes a bare plan, and the ``{"plan_id": …, "plan": …}`` that ``forebay fit --json`` prints.
        """
        if isinstance(source, bytes):
            text = source.decode()
        elif isinstance(source, str) and source.lstrip().startswith("{"):
            text = source
        else:
            text = Path(source).read_text(encoding="utf-8")
        try:
            read = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the plan is not JSON: {error}") from error
        if not isinstance(read, dict):
            raise ValueError("the plan must be a JSON object")
        found = cast(Json, read)
        if isinstance(found.get("result"), dict):
            found = cast(Json, found["result"])
        if isinstance(found.get("plan"), dict):
            found = cast(Json, found["plan"])
        return cls.from_dict(found)


def _default_dtype(parts: Sequence[Columns]) -> DType:
    last = [part.ops[-1] if part.ops else None for part in parts]
    if not all(op is not None and op.indexes for op in last):
        return "FLOAT32"
    wide = any(isinstance(op, _ops.HashBucket) and op.buckets > 2**31 - 1 for op in last)
    return "INT64" if wide else "INT32"


def _optional(where: str, value: float | None) -> float | None:
    return None if value is None else number(where, value)
