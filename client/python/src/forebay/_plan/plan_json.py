"""Parses the JSON of a plan.

The server writes every field, including null and empty ones, and proto3 JSON may represent 64-bit numbers and
infinities as strings; all of these are accepted. Fields not in plan.proto are errors, so that a misspelled field is not
silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, cast

from . import ops
from .chains import cols
from .columns import Columns
from .image_ops import CROPS, ON_ERRORS, ORIENTATIONS, RESIZES
from .joins import AsOf, Join
from .list_ops import SIDES
from .op import Op
from .outputs import Output, output
from .pack import Pack
from .text_ops import TRUNCATIONS

Fields = Mapping[str, object]


class PlanFields(TypedDict):
    """The arguments of a `Plan`."""

    filter: str | None
    derive: dict[str, str]
    outputs: dict[str, Output]
    units: dict[str, str]
    join: list[Join]
    types: dict[str, str]


def read_plan(plan: Fields) -> PlanFields:
    """Return the arguments of the plan that the JSON describes."""
    fields = _fields("plan", plan, "filter", "derive", "outputs", "units", "join", "types")
    derive = _derive(fields.get("derive"))
    outputs: dict[str, Output] = {}
    for i, item in enumerate(_list("plan.outputs", fields.get("outputs"))):
        entry = _fields(f"outputs[{i}]", item, "name", "dtype", "parts", "pack", "part")
        name = _text(f"outputs[{i}].name", entry.get("name"))
        if name in outputs:
            raise ValueError(f"outputs[{i}]: the name {name!r} is used twice")
        parts = [_part(f"outputs[{i}].parts[{j}]", part) for j, part in enumerate(_list("parts", entry.get("parts")))]
        outputs[name] = output(
            parts,
            dtype=_dtype(f"outputs[{i}].dtype", entry.get("dtype")),
            pack=_pack(f"outputs[{i}].pack", entry.get("pack")),
            part=_text(f"outputs[{i}].part", entry.get("part", "PAST")),
        )
    units, types = _facts(fields, "units", "unit"), _facts(fields, "types", "type")
    joins = [_join(f"join[{i}]", item) for i, item in enumerate(_list("plan.join", fields.get("join")))]
    text = fields.get("filter")
    written = None if text is None else _text("plan.filter", text)
    return PlanFields(filter=written, derive=derive, outputs=outputs, units=units, join=joins, types=types)


def _facts(plan: Fields, name: str, fact: str) -> dict[str, str]:
    """Return what a fit wrote about columns: their units or their types."""
    facts: dict[str, str] = {}
    for i, item in enumerate(_list(f"plan.{name}", plan.get(name))):
        entry = _fields(f"{name}[{i}]", item, "column", fact)
        facts[_text(f"{name}[{i}].column", entry.get("column"))] = _text(f"{name}[{i}].{fact}", entry.get(fact))
    return facts


def _derive(value: object) -> dict[str, str]:
    """Return the expressions by name, from a mapping or from the list that the server writes."""
    if isinstance(value, Mapping):
        entries = cast(Mapping[str, object], value).items()
        return {name: _text(f"derive[{name!r}]", expression) for name, expression in entries}
    derive: dict[str, str] = {}
    for i, item in enumerate(_list("plan.derive", value)):
        entry = _fields(f"derive[{i}]", item, "name", "expr")
        derive[_text(f"derive[{i}].name", entry.get("name"))] = _text(f"derive[{i}].expr", entry.get("expr"))
    return derive


def _join(where: str, item: object) -> Join:
    fields = _set(where, item, "table", "on", "key", "columns", "prefix", "snapshot", "as_of")
    table, on, key, prefix, snapshot = (
        _text(f"{where}.{name}", fields.get(name, "")) for name in ("table", "on", "key", "prefix", "snapshot")
    )
    columns = _texts(f"{where}.columns", fields.get("columns"))
    return Join(table, on, columns, key, prefix, snapshot, _as_of(f"{where}.as_of", fields.get("as_of")))


def _as_of(where: str, item: object) -> AsOf | None:
    if item is None:
        return None
    fields = _set(where, item, "left", "right", "allow_exact", "tolerance_seconds")
    left = _text(f"{where}.left", fields.get("left", ""))
    seconds = fields.get("tolerance_seconds")
    return AsOf(
        left,
        _text(f"{where}.right", fields.get("right", "")) or left,
        fields.get("allow_exact", True) is not False,
        None if seconds is None else _number(f"{where}.tolerance_seconds", seconds),
    )


def _part(where: str, item: object) -> Columns:
    entry = _fields(where, item, "columns", "ops")
    names = [_text(f"{where}.columns", name) for name in _list(f"{where}.columns", entry.get("columns"))]
    chain = [_op(f"{where}.ops[{i}]", op) for i, op in enumerate(_list(f"{where}.ops", entry.get("ops")))]
    # Unlike `cols`, a part of the server's JSON may repeat a column.
    return Columns(tuple(name for one in names for name in cols(one).names) or cols(*names).names, tuple(chain))


def _op(where: str, item: object) -> Op:
    entry = {name: body for name, body in _fields(where, item, *_READERS).items() if body is not None}
    if len(entry) != 1:
        raise ValueError(f"{where} must name one op of {', '.join(_READERS)}; it names {len(entry)}")
    ((name, body),) = entry.items()
    return _READERS[name](f"{where}.{name}", body)


def _fill_null(where: str, body: object) -> Op:
    fields = _set(where, body, "value", "text", "stat", "integer", "unsigned", "decimal")
    if len(fields) != 1:
        raise ValueError(f"{where} must set one of value, text, stat, integer, unsigned, decimal")
    ((name, value),) = fields.items()
    if name == "value":
        return ops.FillNull(value=_number(where, value))
    if name == "integer":
        return ops.FillNull(integer=_whole(where, value))
    if name == "unsigned":
        return ops.FillNull(unsigned=_whole(where, value))
    if name == "text":
        return ops.FillNull(text=_text(where, value))
    if name == "decimal":
        return ops.FillNull(decimal=_text(where, value))
    stat = _text(where, value)
    if stat not in ops.STATS:
        raise ValueError(f"{where}.stat is {stat!r}; it is one of {', '.join(ops.STATS)}")
    return ops.FillNull(stat=stat)


def _clip(where: str, body: object) -> Op:
    kinds = {"": _number, "_integer": _whole, "_unsigned": _whole}
    fields = _set(where, body, *(f"{side}{kind}" for kind in kinds for side in ("min", "max")))
    bounds: list[float | None] = []
    for side in ("min", "max"):
        given = [read(where, fields[side + kind]) for kind, read in kinds.items() if side + kind in fields]
        if len(given) > 1:
            raise ValueError(f"{where} must set one of {side}, {side}_integer and {side}_unsigned")
        bounds.append(given[0] if given else None)
    return ops.Clip(*bounds)


def _log1p(where: str, body: object) -> Op:
    _fields(where, body)
    return ops.Log1p()


def _standardize(where: str, body: object) -> Op:
    return ops.Standardize(*_numbers(where, body, "mean", "std"))


def _min_max(where: str, body: object) -> Op:
    return ops.MinMax(*_numbers(where, body, "min", "max"))


def _bucketize(where: str, body: object) -> Op:
    fields = _set(where, body, "boundaries", "quantiles", "integers", "unsigned")
    kinds = {"boundaries": _number, "integers": _whole, "unsigned": _whole}
    lists = [
        tuple(read(where, edge) for edge in _list(f"{where}.{kind}", fields.get(kind))) for kind, read in kinds.items()
    ]
    filled = [edges for edges in lists if edges]
    if len(filled) > 1:
        raise ValueError(f"{where} must fill one of boundaries, integers and unsigned")
    edges = filled[0] if filled else ()
    return ops.Bucketize(edges, _whole(where, fields.get("quantiles", 0)))


def _vocab(where: str, body: object) -> Op:
    fields = _set(where, body, "min_count", "max_size", "oov_buckets", "values")
    min_count, max_size, oov_buckets = (
        _whole(where, fields.get(name, 0)) for name in ("min_count", "max_size", "oov_buckets")
    )
    return ops.Vocab(min_count, max_size, oov_buckets, _values(where, fields))


def _hash_bucket(where: str, body: object) -> Op:
    fields = _set(where, body, "buckets", "seed")
    return ops.HashBucket(_whole(where, fields.get("buckets", 0)), _whole(where, fields.get("seed", 0)))


def _one_hot(where: str, body: object) -> Op:
    return ops.OneHot(_whole(where, _set(where, body, "size").get("size", 0)))


def _sqrt(where: str, body: object) -> Op:
    _fields(where, body)
    return ops.Sqrt()


def _abs(where: str, body: object) -> Op:
    _fields(where, body)
    return ops.Abs()


def _logit(where: str, body: object) -> Op:
    return ops.Logit(_numbers(where, body, "eps")[0])


def _box_cox(where: str, body: object) -> Op:
    return ops.BoxCox(_number(where, _set(where, body, "lambda").get("lambda", 0.0)))


def _max_abs(where: str, body: object) -> Op:
    return ops.MaxAbs(_numbers(where, body, "max_abs")[0])


def _robust(where: str, body: object) -> Op:
    return ops.Robust(*_numbers(where, body, "center", "scale"))


def _cross(where: str, body: object) -> Op:
    fields = _set(where, body, "columns", "buckets", "seed")
    return ops.Cross(_texts(f"{where}.columns", fields.get("columns")), *_wholes(where, fields, "buckets", "seed"))


def _multi_hot(where: str, body: object) -> Op:
    return ops.MultiHot(_wholes(where, _set(where, body, "size"), "size")[0])


def _cut(op: type[ops.FirstN]) -> Callable[[str, object], Op]:
    def read(where: str, body: object) -> Op:
        fields = _set(where, body, "n", "value")
        value = None if "value" not in fields else _number(where, fields["value"])
        return op(_wholes(where, fields, "n")[0], value)

    return read


def _pad(where: str, body: object) -> Op:
    fields = _set(where, body, "n", "value", "side")
    value, side = _number(where, fields.get("value", 0.0)), _side(where, fields)
    return ops.Pad(_wholes(where, fields, "n")[0], value, side)


def _side(where: str, fields: Fields) -> str:
    return _choice(f"{where}.side", fields.get("side", "RIGHT"), SIDES)


def _lookup(where: str, body: object) -> Op:
    fields = _set(where, body, "table", "key", "columns", "snapshot")
    texts = (_text(f"{where}.{name}", fields.get(name, "")) for name in ("table", "key", "snapshot"))
    table, key, snapshot = texts
    return ops.Lookup(table, key, _texts(f"{where}.columns", fields.get("columns")), snapshot)


def _bytes(where: str, body: object) -> Op:
    return ops.Bytes(_wholes(where, _set(where, body, "n"), "n")[0])


def _ngram(where: str, body: object) -> Op:
    return ops.Ngram(*_wholes(where, _set(where, body, "n", "buckets", "seed"), "n", "buckets", "seed"))


def _sigrid_hash(where: str, body: object) -> Op:
    return ops.SigridHash(*_wholes(where, _set(where, body, "salt", "max_value"), "salt", "max_value"))


def _map_id(where: str, body: object) -> Op:
    fields = _set(where, body, "ids", "values", "default", "unsigned")
    ids, values, unsigned = (
        tuple(_whole(f"{where}.{name}", item) for item in _list(f"{where}.{name}", fields.get(name)))
        for name in ("ids", "values", "unsigned")
    )
    if ids and unsigned:
        raise ValueError(f"{where} must fill one of ids and unsigned")
    return ops.MapId(ids or unsigned, values, None if "default" not in fields else _whole(where, fields["default"]))


def _udf(where: str, body: object) -> Op:
    fields = _set(where, body, "name", "columns", "digest")
    function, digest = (_text(f"{where}.{name}", fields.get(name, "")) for name in ("name", "digest"))
    return ops.Udf(function, _texts(f"{where}.columns", fields.get("columns")), digest)


def _tokenize(where: str, body: object) -> Op:
    names = ("tokenizer", "json", "digest", "max_length", "truncation", "add_special_tokens")
    fields = _set(where, body, *names)
    tokenizer, json, digest = (_text(f"{where}.{name}", fields.get(name, "")) for name in names[:3])
    truncation = _text(f"{where}.truncation", fields.get("truncation", "RIGHT"))
    if truncation.lower() not in TRUNCATIONS:
        raise ValueError(f"{where}.truncation is {truncation!r}; it is one of RIGHT, LEFT, ERROR")
    special = fields.get("add_special_tokens")
    if special is not None and not isinstance(special, bool):
        raise TypeError(f"{where}.add_special_tokens must be true or false, not {special!r}")
    most = _whole(f"{where}.max_length", fields.get("max_length", 0))
    return ops.Tokenize(tokenizer, json, digest, most, truncation, special)


def _decode_image(where: str, body: object) -> Op:
    names = ("height", "width", "channels", "resize", "crop", "flip", "seed", "normalize", "on_error", "encoded")
    bounds_of = ("scale_min", "scale_max", "ratio_min", "ratio_max")
    fields = _set(where, body, *names, *bounds_of, "orientation", "turned_like")
    bounds = {name: None if name not in fields else _number(where, fields[name]) for name in bounds_of}
    height, width, seed = _wholes(where, fields, "height", "width", "seed")
    return ops.DecodeImage(
        height,
        width,
        _whole(f"{where}.channels", fields.get("channels", 3)),
        _choice(f"{where}.resize", fields.get("resize", "BILINEAR"), RESIZES),
        _choice(f"{where}.crop", fields.get("crop", "NONE"), CROPS),
        (bounds["scale_min"], bounds["scale_max"]),
        (bounds["ratio_min"], bounds["ratio_max"]),
        _flag(f"{where}.flip", fields.get("flip", False)),
        seed,
        None if "normalize" not in fields else _normalize(f"{where}.normalize", fields["normalize"]),
        _choice(f"{where}.on_error", fields.get("on_error", "FAIL"), ON_ERRORS),
        _flag(f"{where}.encoded", fields.get("encoded", False)),
        _choice(f"{where}.orientation", fields.get("orientation", "APPLY"), ORIENTATIONS),
        _texts(f"{where}.turned_like", fields.get("turned_like")),
    )


def _normalize(where: str, body: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    fields = _set(where, body, "mean", "std")
    mean, std = (
        tuple(_number(f"{where}.{name}", value) for value in _list(f"{where}.{name}", fields.get(name)))
        for name in ("mean", "std")
    )
    return mean, std


def _choice(where: str, value: object, known: Sequence[str]) -> str:
    """Return the name of an enum's value in upper case."""
    chosen = _text(where, value)
    if chosen.lower() not in known:
        raise ValueError(f"{where} is {chosen!r}; it is one of {', '.join(known).upper()}")
    return chosen.upper()


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{where} must be true or false, not {value!r}")
    return value


def _attention_mask(where: str, body: object) -> Op:
    fields = _set(where, body, "n", "side")
    return ops.AttentionMask(_wholes(where, fields, "n")[0], _side(where, fields))


def _positive_mod(where: str, body: object) -> Op:
    return ops.PositiveMod(_wholes(where, _set(where, body, "modulus"), "modulus")[0])


def _count_encode(where: str, body: object) -> Op:
    fields = _set(where, body, "values", "counts")
    counts = tuple(_whole(f"{where}.counts", count) for count in _list(f"{where}.counts", fields.get("counts")))
    return ops.CountEncode(_values(where, fields), counts)


def _target_mean(where: str, body: object) -> Op:
    fields = _set(where, body, "label", "smoothing", "folds", "seed", "values", "means", "rows")
    means = tuple(_number(f"{where}.means", mean) for mean in _list(f"{where}.means", fields.get("means")))
    return ops.TargetMean(
        _text(f"{where}.label", fields.get("label", "")),
        None if "smoothing" not in fields else _number(where, fields["smoothing"]),
        None if "folds" not in fields else _whole(where, fields["folds"]),
        _whole(where, fields.get("seed", 0)),
        _values(where, fields),
        means,
        _fitted_rows(f"{where}.rows", fields["rows"]) if "rows" in fields else None,
    )


def _fitted_rows(where: str, body: object) -> ops.FittedRows:
    fields = _set(where, body, "snapshot", "filter", "sample_seed", "sample_end")
    return ops.FittedRows(
        _text(f"{where}.snapshot", fields.get("snapshot", "")),
        _text(f"{where}.filter", fields.get("filter", "")),
        _whole(f"{where}.sample_seed", fields.get("sample_seed", 0)),
        _whole(f"{where}.sample_end", fields.get("sample_end", 0)),
    )


def _values(where: str, fields: Fields) -> ops.Values | None:
    if "values" not in fields:
        return None
    return ops.Values.from_dict(_set(f"{where}.values", fields["values"], *ops.Values.KINDS))


_READERS: dict[str, Callable[[str, object], Op]] = {
    "fill_null": _fill_null,
    "clip": _clip,
    "log1p": _log1p,
    "standardize": _standardize,
    "min_max": _min_max,
    "bucketize": _bucketize,
    "vocab": _vocab,
    "hash_bucket": _hash_bucket,
    "one_hot": _one_hot,
    "sqrt": _sqrt,
    "abs": _abs,
    "logit": _logit,
    "box_cox": _box_cox,
    "max_abs": _max_abs,
    "robust": _robust,
    "cross": _cross,
    "multi_hot": _multi_hot,
    "first_n": _cut(ops.FirstN),
    "last_n": _cut(ops.LastN),
    "pad": _pad,
    "lookup": _lookup,
    "ngram": _ngram,
    "bytes": _bytes,
    "sigrid_hash": _sigrid_hash,
    "map_id": _map_id,
    "positive_mod": _positive_mod,
    "udf": _udf,
    "tokenize": _tokenize,
    "attention_mask": _attention_mask,
    "decode_image": _decode_image,
    "count_encode": _count_encode,
    "target_mean": _target_mean,
}


def _fields(where: str, item: object, *allowed: str) -> dict[str, object]:
    """Return an object's fields under their snake_case names, all of them allowed ones."""
    if not isinstance(item, Mapping):
        raise TypeError(f"{where} must be an object, not {item!r}")
    fields = {_snake(name): value for name, value in cast(Mapping[str, object], item).items()}
    for name in fields:
        if name not in allowed:
            listed = ", ".join(allowed) or "none"
            raise ValueError(f"{where} has no field {name!r}; its fields are: {listed}")
    return fields


def _set(where: str, item: object, *allowed: str) -> dict[str, object]:
    """Return the fields that are set: JSON writes an absent one as null."""
    return {name: value for name, value in _fields(where, item, *allowed).items() if value is not None}


def _snake(name: str) -> str:
    """Return a camelCase name, which proto3's JSON reads as well, in snake_case."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), name)


def _list(where: str, value: object) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{where} must be a list, not {value!r}")
    return cast(Sequence[object], value)


def _pack(where: str, value: object) -> Pack | None:
    if value is None:
        return None
    entry = _fields(where, value, "length", "separator", "padding")
    separator = entry.get("separator")
    return Pack(
        _whole(f"{where}.length", entry.get("length", 0)),
        separator=None if separator is None else _whole(f"{where}.separator", separator),
        padding=_whole(f"{where}.padding", entry.get("padding", 0)),
    )


def _dtype(where: str, value: object) -> str | None:
    return None if value is None else _text(where, value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} must be text, not {value!r}")
    return value


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"{where} must hold numbers, not {value!r}")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{where} must hold numbers, not {value!r}") from None


def _numbers(where: str, body: object, *names: str) -> tuple[float | None, ...]:
    fields = _set(where, body, *names)
    return tuple(None if name not in fields else _number(where, fields[name]) for name in names)


def _texts(where: str, value: object) -> tuple[str, ...]:
    return tuple(_text(where, item) for item in _list(where, value))


def _wholes(where: str, fields: Fields, *names: str) -> tuple[int, ...]:
    """Return whole numbers in the order of the names, 0 where one is not set, as proto3 has it."""
    return tuple(_whole(f"{where}.{name}", fields.get(name, 0)) for name in names)


def _whole(where: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where} must hold whole numbers, not {value!r}")
    return value
