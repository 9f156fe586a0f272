"""Columns and chains of ops, the parts of a plan.

Chains are immutable: each method returns a longer chain. Parameters are checked here as far as possible without data;
the server checks columns and types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from forebay._show.terminal_text import NAMES_SHOWN, elided

from .arguments import (
    EXACT_IN_DOUBLE,
    INT64_MAX,
    INT64_MIN,
    UINT32_MAX,
    choice,
    column_name,
    exact,
    in_range,
    whole_number,
)
from .generated import ops as _ops
from .generated.builder import OpMethods
from .generated.messages import ENUMS, Crop, OnError, Orientation, Resize, Truncation
from .image_ops import decode_image
from .message import Json
from .op import Op, ending_in_indexes, shortened
from .selectors import Selector
from .text_ops import name_or_json
from .values import VocabValues

# Ops that read earlier rows of a series.
HISTORY_OPS = ("lag", "diff", "rolling")


@dataclass(frozen=True)
class Columns(OpMethods):
    """Columns and the chain of ops applied to each of them; made by `cols`."""

    names: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    stored: bool = False
    selector: Selector | None = None
    """Selects the columns when the plan meets a dataset; then there are no names yet."""

    def __repr__(self) -> str:
        calls = [*map(str, self.ops), *(["as_stored()"] if self.stored else [])]
        names = elided(list(map(shortened, self.names)), NAMES_SHOWN)
        start = f"cols({', '.join(names)})" if self.selector is None else str(self.selector)
        return ".".join([start, *calls])

    def exclude(self, *names: str) -> Columns:
        """Leave these columns out of a selection: ``cols.numeric().exclude("label")``."""
        if self.selector is None or self.ops:
            raise ValueError("exclude follows a selection of columns, cols.numeric() for instance, before any op")
        if not names:
            raise TypeError('exclude requires a column name: cols.all().exclude("label")')
        excluded = tuple(column_name("exclude: a column's name", name) for name in names)
        return replace(self, selector=replace(self.selector, excluded=(*self.selector.excluded, *excluded)))

    def resolve(self, schema: pa.Schema) -> Columns:
        """Return the chain on the columns that its selector selects from the schema."""
        if self.selector is None:
            return self
        return replace(self, names=self.selector.select(schema), selector=None)

    def fill_null(
        self,
        value: float | Decimal | str | None = None,
        /,
        *,
        text: str | None = None,
        stat: Literal["mean", "median", "mode"] | None = None,
    ) -> Columns:
        """Replace null by a value.

        ``fill_null(0.0)`` fills a number; ``fill_null("mean")``, ``"median"`` and ``"mode"`` (or ``stat=``) a statistic
        of the column, learned by a fit; ``fill_null(text="UA")`` a text. A ``Decimal`` and an integer keep all digits.
        """
        if sum(given is not None for given in (value, text, stat)) != 1:
            raise TypeError('fill_null expects one of a number, "mean", "median" or "mode", text="…"')
        if isinstance(value, str):
            if value.upper() not in ENUMS["Stat"]:
                raise ValueError(
                    f'fill_null({value!r}) is not a statistic ("mean", "median", "mode"); '
                    f"to fill a text, write fill_null(text={value!r})"
                )
            return self._then(_ops.FillNull(stat=value.upper()))
        if stat is not None:
            if str(stat).upper() not in ENUMS["Stat"]:
                raise ValueError(f'fill_null(stat={stat!r}): choose "mean", "median" or "mode"')
            return self._then(_ops.FillNull(stat=stat.upper()))
        if text is not None:
            if not isinstance(cast(object, text), str):
                raise TypeError(f"fill_null(text=…) must be text, not {text!r}; pass a number without text=")
            return self._then(_ops.FillNull(text=text))
        if isinstance(value, (bool, np.bool_)):
            return self._then(_ops.FillNull(value=float(value)))
        if isinstance(value, (int, np.integer)) and abs(int(value)) > EXACT_IN_DOUBLE:
            integer = whole_number("fill_null", value, least=INT64_MIN)
            if integer > INT64_MAX:
                return self._then(_ops.FillNull(unsigned=integer))
            return self._then(_ops.FillNull(integer=integer))
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise ValueError(f"fill_null: {value} is not a value of a decimal column")
            return self._then(_ops.FillNull(decimal=f"{value:f}"))
        if isinstance(value, (int, float, np.integer, np.floating)):
            return self._then(_ops.FillNull(value=float(value)))
        raise TypeError(f'fill_null expects a number, "mean", "median" or "mode", text="…"; not {value!r}')

    def clip(self, min: float | None = None, max: float | None = None) -> Columns:  # noqa: A002 (as numpy names them)
        """Limit values to the bounds, either of which may be omitted."""
        if min is None and max is None:
            raise TypeError("clip requires min, max or both")
        low = None if min is None else exact("clip: min", min)
        high = None if max is None else exact("clip: max", max)
        if low is not None and high is not None and low > high:
            raise ValueError(f"clip: min {low} is above max {high}")
        return self._then(_ops.Clip(**_bound("min", low), **_bound("max", high)))

    def bucketize(self, boundaries: Sequence[float] | None = None, *, quantiles: int | None = None) -> Columns:
        """Count the boundaries <= x: the given ascending ones, or the learned inner edges of n quantiles."""
        if (boundaries is None) == (quantiles is None):
            raise TypeError("bucketize requires either boundaries or quantiles=")
        if quantiles is not None:
            count = whole_number("bucketize: quantiles", quantiles, least=2, most=UINT32_MAX)
            return self._then(_ops.Bucketize(quantiles=count))
        edges = tuple(exact("bucketize: a boundary", edge) for edge in boundaries or ())
        if not edges:
            raise ValueError("bucketize: boundaries is empty; pass one or more")
        if any(a >= b for a, b in pairwise(edges)):
            raise ValueError("bucketize: boundaries must be ascending")
        if not any(isinstance(edge, int) for edge in edges):
            return self._then(_ops.Bucketize(boundaries=edges))
        whole = _whole_edges(edges)
        if whole[-1] > INT64_MAX:
            return self._then(_ops.Bucketize(unsigned=whole))
        return self._then(_ops.Bucketize(integers=whole))

    def vocab(
        self,
        *,
        min_count: int = 0,
        max_size: int = 0,
        oov_buckets: int = 0,
        shared: str = "",
        values: Sequence[str] | Sequence[int] | Sequence[float] | Sequence[Decimal] | None = None,
    ) -> Columns:
        """Map a value to its index: 0 for null and unknown values, then from 1 by count; learned unless given.

        The vocabulary omits values with a count below `min_count` and has at most `max_size` values (0: all). Unknown
        values are hashed to `oov_buckets` indices after the vocabulary (0: to index 0). Ops with the same name as
        `shared`, in any output and column, learn one vocabulary of all their values.
        """
        if isinstance(values, (str, bytes)):
            raise TypeError("vocab: values must be a list of values, in index order")
        return self._then(
            _ops.Vocab(
                whole_number("vocab: min_count", min_count),
                whole_number("vocab: max_size", max_size),
                whole_number("vocab: oov_buckets", oov_buckets, most=UINT32_MAX),
                None if values is None else VocabValues.of(values),
                column_name("vocab: shared", shared) if shared else "",
            )
        )

    def target_mean(
        self, label: str, *, smoothing: float | None = None, folds: int | None = None, seed: int = 0
    ) -> Columns:
        """Map a value to the mean of `label` over the rows with it, drawn towards the mean of all rows by `smoothing`.

        The mean is (sum + smoothing * mean of all) / (count + smoothing); 20 is the default. A row takes the mean of
        the rows of all other `folds` (5 by default), so that its own label does not leak into the feature; 0 gives all
        rows the same mean. `label` is a numeric or boolean column, stored, joined or derived.
        """
        if folds == 1:
            raise ValueError("target_mean: folds must be 2 or more, or 0 for one mean of all rows")
        limits = _ops.TargetMean.limits
        return self._then(
            _ops.TargetMean(
                column_name("target_mean: label", label),
                None if smoothing is None else in_range("target_mean: smoothing", smoothing, *limits["smoothing"]),
                None if folds is None else whole_number("target_mean: folds", folds, *limits["folds"]),
                whole_number("target_mean: seed", seed),
            )
        )

    def cross(self, *columns: str, buckets: int, seed: int = 0) -> Columns:
        """Map the tuple of the value and these columns' values to its hash modulo `buckets`; never null.

        The columns are stored or derived ones, without ops. Their order matters.
        """
        if not columns:
            raise TypeError('cross requires a column: cols("a").cross("b", buckets=1000)')
        names = tuple(column_name("cross: a column's name", name) for name in columns)
        count = whole_number("cross: buckets", buckets, *_ops.Cross.limits["buckets"])
        return self._then(_ops.Cross(names, count, whole_number("cross: seed", seed)))

    def map_id(
        self,
        mapping: Mapping[int, int] | None = None,
        *,
        ids: Sequence[int] | None = None,
        values: Sequence[int] | None = None,
        default: int | None = None,
    ) -> Columns:
        """Map ids to other ids: ``map_id({7: 1, 9: 2})``, or lists of equal length as `ids` and `values`.

        Other ids become `default`, or null without one. Null stays null.
        """
        if (mapping is None) == (ids is None) or (ids is None) != (values is None):
            raise TypeError("map_id requires either a mapping, or both ids= and values=")
        mapping = mapping or {}
        old = list(mapping if ids is None else ids)
        new = list(mapping.values() if values is None else values)
        if len(old) != len(new):
            raise ValueError(f"map_id: there are {len(old)} ids and {len(new)} values; pass one value per id")
        if not old:
            raise ValueError("map_id: the mapping is empty; pass one or more ids")
        int64 = (INT64_MIN, INT64_MAX)
        # Ids above int64 belong to a uint64 column, which has none below 0.
        is_unsigned = any(int(value) > INT64_MAX for value in old if isinstance(cast(object, value), (int, np.integer)))
        known = tuple(whole_number("map_id: an id", value, *(() if is_unsigned else int64)) for value in old)
        if len(set(known)) < len(known):
            raise ValueError(f"map_id: id {next(k for k, n in Counter(known).items() if n > 1)} is given twice")
        return self._then(
            _ops.MapId(
                ids=() if is_unsigned else known,
                values=tuple(whole_number("map_id: a value", value, *int64) for value in new),
                default=None if default is None else whole_number("map_id: default", default, *int64),
                unsigned=known if is_unsigned else (),
            )
        )

    def lookup(self, table: str, key: str, columns: Sequence[str]) -> Columns:
        """Join: replace the value by these `columns` of the row of dataset `table` with that `key`, or by null.

        The dataset must be on the same server, with unique keys. The following ops apply to each column.
        """
        if isinstance(columns, str):
            raise TypeError(f"lookup: columns must be a list of names: columns=[{columns!r}]")
        names = tuple(column_name("lookup: a column's name", name) for name in columns)
        if not names:
            raise ValueError("lookup: columns is empty; pass one or more columns of the table")
        return self._then(_ops.Lookup(column_name("lookup: table", table), column_name("lookup: key", key), names))

    def udf(self, function: str, *columns: str) -> Columns:
        """Replace the value by the result of a Python function of the server, of this column and further `columns`.

        The operator of the server has named it (``--udf``). It must be the first op; the following ones read its
        result.
        """
        if self.ops:
            raise ValueError(
                f"udf must be the first op: a function reads columns, not the result of {self.ops[-1].name}"
            )
        names = tuple(column_name("udf: a column's name", name) for name in columns)
        return self._then(_ops.Udf(column_name("udf: function", function), names))

    def tokenize(
        self,
        tokenizer: object,
        *,
        max_length: int | None = None,
        truncation: Truncation = "right",
        add_special_tokens: bool = True,
    ) -> Columns:
        """Convert text to the list of its tokens, as ``Tokenizer.encode(text).ids`` of the package tokenizers does.

        `tokenizer` is a name that the operator of the server has given (``--tokenizer``), the path or the content of a
        ``tokenizer.json``, or a tokenizer of the packages tokenizers and transformers. With `max_length`, longer texts
        lose their last tokens, with ``truncation="left"`` their first ones; with ``"error"`` the stream fails. It must
        be the first op, or follow ``fill_null(text="…")``.
        """
        is_filled = len(self.ops) == 1 and isinstance(self.ops[0], _ops.FillNull) and self.ops[0].text is not None
        if self.ops and not is_filled:
            last = self.ops[-1].name
            raise ValueError(
                f"tokenize must be the first op, or follow fill_null(text=…): it reads text, not the result of {last}"
            )
        cut = choice("tokenize: truncation", truncation, ENUMS["Truncation"])
        if max_length is None and truncation != "right":
            raise ValueError(
                "tokenize: truncation applies to texts of more than max_length tokens: pass max_length too"
            )
        name, json = name_or_json(tokenizer)
        most = 0 if max_length is None else whole_number("tokenize: max_length", max_length, least=1, most=UINT32_MAX)
        return self._then(_ops.Tokenize(name, json, "", most, cut, add_special_tokens))

    def decode_image(
        self,
        height: int,
        width: int,
        *,
        channels: int = 3,
        resize: Resize = "bilinear",
        crop: Crop = "none",
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] | None = None,
        flip: bool = False,
        seed: int = 0,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        on_error: OnError = "fail",
        encoded: bool = False,
        orientation: Orientation = "apply",
    ) -> Columns:
        """Convert the bytes of a JPEG, PNG, WebP or GIF image to a tensor [`height`, `width`, `channels`].

        The values are UINT8, or with `normalize`, the means and the deviations of the channels, FLOAT32. The image is
        turned upright, and its part `crop` resized: all of it, the centred box of the tensor's aspect ratio, or a
        random box with these bounds of its share of the area (`scale`) and of its aspect ratio, as torchvision's
        ``RandomResizedCrop`` draws it. `flip` mirrors every second image. What is random depends on the stream's seed,
        the epoch, the row and `seed` alone. `on_error` decides about images that cannot be decoded. With `encoded`,
        the batch has the bytes as stored, the box and the flip. It must be the first op.

        Images are turned upright as their EXIF metadata says, and images of other columns with the same `seed`, such as
        masks, are turned with them if they have no orientation of their own. ``orientation="ignore"`` leaves an image
        as it is stored.
        """
        if self.ops:
            raise ValueError(
                f"decode_image must be the first op: it reads encoded images, not the result of {self.ops[-1].name}"
            )
        if len(self.names) > 1:
            raise ValueError("decode_image requires a single column: give each image an output")
        op = decode_image(
            height,
            width,
            channels=channels,
            resize=resize,
            crop=crop,
            scale=scale,
            ratio=ratio,
            flip=flip,
            seed=seed,
            normalize=normalize,
            on_error=on_error,
            encoded=encoded,
            orientation=orientation,
        )
        return self._then(op)

    def one_hot(self, size: int | None = None) -> Columns:
        """Convert index i to columns with a 1 in column i: `size` columns, or one per index of the previous op."""
        return self._then(_ops.OneHot(self._size("one_hot", size)))

    def multi_hot(self, size: int | None = None) -> Columns:
        """Convert a list of indices to columns with a 1 in the column of each; `size` as in `one_hot`."""
        return self._then(_ops.MultiHot(self._size("multi_hot", size)))

    def as_stored(self) -> Columns:
        """Pass one column through unchanged, of any type, including nulls."""
        # The result of an op that reads earlier rows is a column by itself.
        ends = [place + 1 for place, op in enumerate(self.ops) if op.name in HISTORY_OPS]
        if len(self.names) != 1 or not all(map(_may_be_stored, self.ops[max(ends, default=0) :])):
            raise ValueError(
                "as_stored requires a single column and no op other than udf, tokenize or an encoded image, or those "
                "up to the last lag, diff or rolling"
            )
        return Columns(self.names, self.ops, stored=True)

    def to_dict(self) -> Json:
        """Return the part as JSON of the server."""
        if self.selector is not None:
            raise ValueError(f"{self.selector} has no columns yet: call plan.resolve(client.schema(dataset)) first")
        part: Json = {"columns": list(self.names)}
        if self.ops:
            part["ops"] = [{op.name: op.to_dict()} for op in self.ops]
        return part

    def _size(self, op: str, size: int | None) -> int:
        """Return the number of columns for indices; 0 means one per index."""
        if size is not None:
            return whole_number(f"{op}: size", size, least=1, most=UINT32_MAX)
        if not ending_in_indexes(self.ops):
            raise ValueError(f"{op}: pass size=…, or place it after vocab, hash_bucket or bucketize")
        return 0

    def _then(self, op: Op) -> Columns:
        if self.stored:
            raise ValueError(f"{op.name} after as_stored: a column passed through unchanged has no other ops")
        return replace(self, ops=(*self.ops, op))


def _may_be_stored(op: Op) -> bool:
    return isinstance(op, (_ops.Udf, _ops.Tokenize)) or (isinstance(op, _ops.DecodeImage) and op.encoded)


def _bound(side: str, bound: float | None) -> dict[str, Any]:
    """Return the field of a bound, which is an int if float64 does not represent it."""
    if isinstance(bound, int):
        return {f"{side}_unsigned" if bound > INT64_MAX else f"{side}_integer": bound}
    return {side: bound}


def _whole_edges(edges: tuple[float, ...]) -> tuple[int, ...]:
    """Return boundaries as integers, as one of them is not exact in float64."""
    if any(not isinstance(edge, int) and not edge.is_integer() for edge in edges):
        raise ValueError("bucketize: if an integer is not exact in float64, every boundary must be a whole number")
    whole_edges = tuple(int(edge) for edge in edges)
    if whole_edges[0] < 0 and whole_edges[-1] > INT64_MAX:
        raise ValueError("bucketize: no integer type has both boundaries below 0 and above 2^63 - 1")
    return whole_edges
