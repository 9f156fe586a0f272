"""Evaluates an expression on the server, as a derived column and as a filter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from harness.filters.columns import DAY_SECONDS, UNIT_NS

# Derived columns of a request. One that fails fails its whole request.
AT_ONCE = 16
CALL_SECONDS = 60

# What a request ends in that is refused, by the text in it: before data is read, or because of it.
ON_DATA = "failed on the data"


@dataclass(frozen=True)
class Answer:
    """The values, or the error that was returned instead."""

    values: list[Any] | None
    error: str = ""

    @property
    def on_data(self) -> bool:
        return ON_DATA in self.error


def as_stored(name: str) -> dict[str, Any]:
    return {"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]}


def options() -> fl.FlightCallOptions:
    return fl.FlightCallOptions(timeout=CALL_SECONDS)


def served(client: fl.FlightClient, request: dict[str, Any]) -> pa.Table | None:
    """The rows of the only rank, or None if there are none. Their count must match `total_records`."""
    command = json.dumps({"batch_size": 1 << 16, **request}).encode()
    found = client.get_flight_info(fl.FlightDescriptor.for_command(command), options())
    if found.total_records == 0:
        return None
    got = client.do_get(found.endpoints[0].ticket, options()).read_all()
    if got.num_rows != found.total_records:
        raise AssertionError(f"total_records is {found.total_records}, but {got.num_rows} rows were served")
    return got


def derived(client: fl.FlightClient, dataset: str, texts: Sequence[str], within: str = "") -> list[Answer]:
    """Evaluates every expression over all rows, or over those that pass `within`. A failing request is bisected."""
    if len(texts) > AT_ONCE:
        return derived(client, dataset, texts[:AT_ONCE], within) + derived(client, dataset, texts[AT_ONCE:], within)
    plan: dict[str, Any] = {
        "filter": within,
        "derive": [{"name": f"value{index}", "expr": text} for index, text in enumerate(texts)],
        "outputs": [as_stored(f"value{index}") for index in range(len(texts))],
    }
    try:
        got = served(client, {"dataset": dataset, "plan": plan})
    except (pa.ArrowException, fl.FlightError) as error:
        if len(texts) == 1:
            return [Answer(None, reason(error))]
        half = len(texts) // 2
        return derived(client, dataset, texts[:half], within) + derived(client, dataset, texts[half:], within)
    return [Answer([] if got is None else plain(got.column(index))) for index in range(len(texts))]


def passed(client: fl.FlightClient, dataset: str, text: str) -> Answer:
    """The ids of the rows that a filter passes."""
    request = {"dataset": dataset, "plan": {"filter": text, "outputs": [as_stored("id")]}, "with_row_ids": True}
    try:
        got = served(client, request)
    except (pa.ArrowException, fl.FlightError) as error:
        return Answer(None, reason(error))
    return Answer([] if got is None else got["id"].to_pylist())


def reason(error: Exception) -> str:
    return str(error).split(". gRPC client debug context")[0].split(". Detail:")[0]


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values: timestamps as nanoseconds, dates as days, times in their stored unit."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32()).to_pylist()
    if not pa.types.is_temporal(kind):
        return column.to_pylist()
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    numbers = [value for chunk in column.chunks for value in chunk.view(width).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [None if value is None else value * UNIT_NS[kind.unit] for value in numbers]
    if pa.types.is_date64(kind):
        return [None if value is None else value // (DAY_SECONDS * 1000) for value in numbers]
    return numbers
