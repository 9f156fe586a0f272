"""Buckets of rows of similar length, as the field `bucket_by_length` of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from forebay._plan.arguments import UINT64_MAX, column_name, whole_number
from forebay._plan.names import check_keywords
from forebay.errors import InvalidRequest

LengthBuckets = Mapping[str, Any]
"""``{"column": name, "boundaries": [lengths]}`` or ``{"column": name, "max_tokens": number}``."""


def normalized_buckets(buckets: LengthBuckets | None) -> dict[str, Any] | None:
    """Return the JSON of a request's buckets; None if batches have rows of any length."""
    if buckets is None:
        return None
    if not isinstance(cast(object, buckets), Mapping):
        raise TypeError(
            'bucket_by_length must be {"column": name, "boundaries": [lengths]} or {"column": name, "max_tokens": '
            f"number}}, not {buckets!r}"
        )
    check_keywords("bucket_by_length", buckets, ("column", "boundaries", "max_tokens"))
    column = column_name("bucket_by_length: column", buckets.get("column"))
    boundaries, tokens = buckets.get("boundaries"), buckets.get("max_tokens")
    if (boundaries is None) == (tokens is None):
        raise InvalidRequest("bucket_by_length: pass either boundaries, such as [64, 128, 256], or max_tokens")
    if boundaries is None:
        return {"column": column, "max_tokens": _length("max_tokens", tokens)}
    if not isinstance(boundaries, (list, tuple)):
        raise TypeError(f"bucket_by_length: boundaries must be a list of lengths, not {boundaries!r}")
    lengths = [_length("a boundary", length) for length in cast("list[object]", boundaries)]
    return {"column": column, "boundaries": lengths}


def _length(what: str, value: object) -> int:
    return whole_number(f"bucket_by_length: {what}", value, least=1, most=UINT64_MAX)
