"""Replay, explain and start positions over bare pyarrow: large, unusual and unaligned requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.serving import Server, info

PLAN = {"outputs": [{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]}


@pytest.fixture
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as client:
        yield client


def act(client: fl.FlightClient, action: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action(action, json.dumps(body).encode()))]


def read(client: fl.FlightClient, ticket: fl.Ticket) -> list[tuple[dict[str, Any], list[int]]]:
    chunks = list(client.do_get(ticket))
    return [(json.loads(chunk.app_metadata.to_pybytes()), chunk.data["id"].to_pylist()) for chunk in chunks]


def request(**options: Any) -> dict[str, Any]:
    return {"dataset": "tiny", "plan": PLAN, "shuffle": True, "seed": 5, **options}


def test_large_batch_is_described_in_parts(flight: fl.FlightClient) -> None:
    stream = request(batch_size=150_000, remainder="PAD")
    parts = act(flight, "replay", {"stream": stream, "rank": 0, "step": 0})
    assert [len(part["rows"]) for part in parts] == [65_536, 65_536, 18_928]
    rows = [row for part in parts for row in part["rows"]]
    ((header, ids),) = read(flight, fl.Ticket(base64.b64decode(parts[0]["ticket"])))
    assert [row["row_id"] for row in rows] == ids
    assert [row["padding"] for row in rows] == [False] * 100 + [True] * 149_900
    assert (header["rows"], header["padding_rows"], header["last"]) == (150_000, 149_900, True)


def test_stream_from_a_multiple_of_the_lanes_resumes_and_replays_at_each_step(
    flight: fl.FlightClient,
) -> None:
    # 12 lanes, steps of 4 ranks of 5 rows: position 12 is not on a step, like those after it.
    begun = request(world_size=4, batch_size=5, lanes=12, start_position=12)
    whole = read(flight, info(flight, begun).endpoints[2].ticket)
    assert [header["position"] for header, _ in whole] == [12, 32, 52, 72, 92]
    for place, (header, ids) in enumerate(whole):
        resumed = {**begun, "start_position": header["position"], "resumed_from": 12}
        assert read(flight, info(flight, resumed).endpoints[2].ticket) == whole[place:]
        (replayed,) = act(flight, "replay", {"stream": begun, "rank": 2, "step": header["step"]})
        assert [row["row_id"] for row in replayed["rows"]] == ids
        assert read(flight, fl.Ticket(base64.b64decode(replayed["ticket"]))) == [(header, ids)]


@pytest.mark.parametrize(("start", "origin"), [(52, 0), (52, 13), (52, 60), (53, 12)])
def test_rejects_an_unreachable_position(flight: fl.FlightClient, start: int, origin: int) -> None:
    with pytest.raises(pa.ArrowInvalid, match="start_position|resumed_from"):
        info(flight, request(world_size=4, batch_size=5, lanes=12, start_position=start, resumed_from=origin))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"stream": request(), "rank": 0, "step": 1}, "step: 1"),
        ({"stream": request(), "rank": 0, "step": 2**64 - 1}, "step"),
        ({"stream": request(), "rank": 1, "step": 0}, "rank"),
        ({"rank": 0, "step": 0}, "stream"),
        ({"stream": {**request(), "assume": {"rows": 1}}, "rank": 0, "step": 0}, "assume"),
    ],
)
def test_invalid_replay_names_the_field(flight: fl.FlightClient, body: dict[str, Any], words: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=words):
        act(flight, "replay", body)


@pytest.mark.parametrize("speed", [1e-300, -1, 0.5])
def test_rejects_an_invalid_rate(flight: fl.FlightClient, speed: float) -> None:
    with pytest.raises(pa.ArrowInvalid, match="wire_bytes_per_second"):
        act(flight, "explain", request(assume={"wire_bytes_per_second": speed}))


def test_explain_reads_no_data(flight: fl.FlightClient) -> None:
    assume = {"rows": 2_000_000_000, "row_bytes": 1024, "wire_bytes_per_second": 2e9}
    (answer,) = act(flight, "explain", {"world_size": 16, "assume": assume})
    assert answer["bytes"] == 2_048_000_000_000
    assert {rank["bytes"] for rank in answer["ranks"]} == {128_000_000_000}
    assert (answer["epoch_seconds"], answer["bound_by"]) == (64.0, "wire")


def test_explain_counts_what_a_stream_sends(flight: fl.FlightClient) -> None:
    for remainder in ("KEEP", "DROP", "PAD"):
        stream = request(world_size=3, batch_size=7, remainder=remainder)
        (answer,) = act(flight, "explain", stream)
        found = info(flight, stream)
        assert (answer["rows"], answer["bytes"]) == (found.total_records, found.total_bytes)
        for rank, endpoint in zip(answer["ranks"], found.endpoints, strict=True):
            batches = read(flight, endpoint.ticket)
            assert rank["rows"] == sum(len(ids) for _, ids in batches)
            assert rank["steps"] == len([ids for _, ids in batches if ids])


def test_endpoints_name_the_replicas_that_are_advertised(tiny_folder: Path) -> None:
    urls = ["grpc://a.example:1", "grpc+unix:///tmp/b"]
    server = Server({"tiny": tiny_folder}, *(word for url in urls for word in ("--advertise", url)))
    try:
        with fl.connect(server.url) as client:
            for endpoint in info(client, request(world_size=2)).endpoints:
                assert [location.uri.decode() for location in endpoint.locations] == urls
    finally:
        server.stop()
