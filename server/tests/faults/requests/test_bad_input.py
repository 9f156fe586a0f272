"""Common mistakes: each gets the right code and a helpful message, and the server keeps serving."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, info

GOOD_PLAN: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
GOOD = {"dataset": "tiny", "plan": GOOD_PLAN}

Call = Callable[[fl.FlightClient], Any]


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets that cannot be read, one a folder."""
    root = tmp_path_factory.mktemp("bad")
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3]})

    def place(name: str) -> Path:
        (root / name).mkdir()
        return root / name

    pq.write_table(table, place("truncated") / "a.parquet")
    whole = (root / "truncated/a.parquet").read_bytes()
    (root / "truncated/a.parquet").write_bytes(whole[: len(whole) // 2])
    (place("zeros") / "a.parquet").write_bytes(whole[:4] + bytes(len(whole) - 12) + whole[-8:])
    (place("empty") / "a.parquet").write_bytes(b"")
    (place("text") / "a.parquet").write_text("x,y\n1,2\n" * 10)
    pq.write_table(table, place("drift") / "a.parquet")
    pq.write_table(pa.table({"x": ["one"], "y": [1]}), root / "drift/b.parquet")
    pq.write_table(table.slice(0, 0), place("norows") / "a.parquet")
    place("nofiles")
    # A page that is damaged, under a footer that is not.
    pq.write_table(pa.table({"x": [float(i) for i in range(5000)]}), place("damaged") / "a.parquet", compression="zstd")
    damaged = bytearray((root / "damaged/a.parquet").read_bytes())
    damaged[60:600] = bytes(540)
    (root / "damaged/a.parquet").write_bytes(damaged)
    return root


@pytest.fixture(scope="module")
def bad(bad_folder: Path, tiny_folder: Path, serve: Serve) -> Server:
    return serve({"tiny": tiny_folder, **{place.name: place for place in bad_folder.iterdir()}})


def read(client: fl.FlightClient, request: dict[str, Any]) -> pa.Table:
    return client.do_get(info(client, request).endpoints[0].ticket).read_all()


def request(**changes: Any) -> Call:
    return lambda client: read(client, {**GOOD, **changes})


def plan(**changes: Any) -> Call:
    return request(plan={**GOOD_PLAN, **changes})


def part(columns: list[str], *ops: dict[str, Any], dtype: str = "FLOAT32") -> Call:
    return plan(outputs=[{"name": "o", "dtype": dtype, "parts": [{"columns": columns, "ops": list(ops)}]}])


def command(data: bytes) -> Call:
    return lambda client: client.get_flight_info(fl.FlightDescriptor.for_command(data))


def ticket(data: bytes) -> Call:
    return lambda client: client.do_get(fl.Ticket(data)).read_all()


def rank_ticket(rank: Any) -> Call:
    return ticket(json.dumps({"stream": {"request": GOOD, "rank": rank}}).encode())


def table(name: str) -> Call:
    return lambda client: client.do_get(
        client.get_flight_info(fl.FlightDescriptor.for_path(name)).endpoints[0].ticket
    ).read_all()


def fit(body: bytes) -> Call:
    return lambda client: list(client.do_action(fl.Action("fit", body)))


INVALID, MISSING = "INVALID_ARGUMENT", "NOT_FOUND"
UNREADY, LOST, LIMIT = "FAILED_PRECONDITION", "DATA_LOSS", "RESOURCE_EXHAUSTED"

CASES: dict[str, tuple[Call, str | tuple[str, ...], list[str]]] = {
    "unknown dataset": (request(dataset="tyny"), MISSING, ['"tyny"', '"tiny"']),
    "unknown dataset, raw": (table("tyny"), MISSING, ['"tyny"', '"tiny"']),
    "path of two": (
        lambda c: c.get_flight_info(fl.FlightDescriptor.for_path("tiny", "more")),
        (INVALID, MISSING),
        ["path"],
    ),
    "unknown column": (part(["unti"]), INVALID, ['"unti"', '"unit"']),
    "unknown op": (part(["x"], {"sqrtt": {}}), INVALID, ["sqrtt"]),
    "unknown field": (request(batchsize=5), INVALID, ["batchsize"]),
    "unknown field of an op": (part(["x"], {"clip": {"low": 1}}), INVALID, ["low"]),
    "empty op": (part(["x"], {}), INVALID, ["ops[0]", "clip"]),
    "unknown dtype": (part(["x"], dtype="FLOAT31"), INVALID, ["FLOAT31"]),
    "no plan": (request(plan=None), INVALID, ["plan"]),
    "plan and plan_id": (request(plan_id="0" * 32), INVALID, ["plan_id", "not both"]),
    "unknown plan_id": (request(plan=None, plan_id="0" * 32), MISSING, ["0" * 32]),
    "plan_id that is a path": (request(plan=None, plan_id="../../etc/passwd"), (MISSING, INVALID), ["plan"]),
    "plan is no object": (request(plan="x"), INVALID, ["plan"]),
    "no outputs": (plan(outputs=[]), INVALID, ["outputs"]),
    "no columns": (part([]), INVALID, ["outputs[0]", "column"]),
    "two outputs of one name": (plan(outputs=GOOD_PLAN["outputs"] * 2), INVALID, ["x"]),
    "reserved name": (plan(outputs=[{"name": "__row_id", "parts": [{"columns": ["x"]}]}]), INVALID, ["__row_id"]),
    "batch_size 0": (request(batch_size=0), INVALID, ["batch_size", "1"]),
    "batch_size 2**40": (request(batch_size=2**40), (INVALID, LIMIT), ["batch_size"]),
    "batch_size -1": (request(batch_size=-1), INVALID, ["batch_size"]),
    "batch_size text": (request(batch_size="many"), INVALID, ["batch_size"]),
    "world_size 0": (request(world_size=0), INVALID, ["world_size", "1"]),
    "world_size 2**60": (request(world_size=2**60), (INVALID, LIMIT), ["world_size"]),
    "remainder": (request(remainder="KEP"), INVALID, ["KEP"]),
    "start_position between steps": (request(start_position=1000), INVALID, ["start_position", "1024"]),
    "start_position past the end": (request(start_position=2**50), INVALID, ["start_position"]),
    "rank past the world": (rank_ticket(5), INVALID, ["rank", "5", "world_size"]),
    "rank text": (rank_ticket("one"), INVALID, ["rank"]),
    "random ticket": (ticket(bytes(range(255, 200, -1))), INVALID, ["ticket"]),
    "empty ticket": (ticket(b""), INVALID, ["ticket"]),
    "ticket of nothing": (ticket(b"{}"), INVALID, ["ticket"]),
    "random command": (command(bytes(range(255, 200, -1))), INVALID, ["[A-Za-z]"]),
    "empty command": (command(b""), INVALID, ["[A-Za-z]"]),
    "half a JSON command": (command(b'{"dataset": "tiny"'), INVALID, ["JSON"]),
    "JSON of the wrong kind": (command(b'{"dataset": 3}'), INVALID, ["dataset"]),
    "deep JSON": (command(b'{"plan": ' + b"[" * 100_000), INVALID, ["[A-Za-z]"]),
    "filter not boolean": (plan(filter="x + 1"), INVALID, ["filter", "true or false"]),
    "filter on an unknown column": (plan(filter="smal > 1"), INVALID, ["filter", "smal", '"small"']),
    "bad SQL": (plan(filter="x >"), INVALID, ["filter", "x >"]),
    "two statements": (plan(filter="x > 1; DROP TABLE tiny"), INVALID, ["filter"]),
    "aggregate": (plan(filter="x > avg(x)"), INVALID, ["filter"]),
    "subquery": (plan(filter="x > (SELECT 1)"), INVALID, ["filter"]),
    "unknown function": (plan(derive=[{"name": "d", "expr": "sqrrt(x)"}]), INVALID, ["derive", "sqrrt"]),
    "deep parentheses": (plan(filter="(" * 100_000 + "x > 1" + ")" * 100_000), INVALID, ["filter"]),
    "deep NOT": (plan(filter="NOT " * 10_000 + "x > 1"), INVALID, ["filter"]),
    "null at an output": (part(["gappy"]), INVALID, ["gappy", "fill_null"]),
    "text as float": (part(["word"]), INVALID, ["word"]),
    "text, standardized": (part(["word"], {"standardize": {"mean": 0, "std": 1}}), INVALID, ["word"]),
    "fraction to INT32": (part(["x"], dtype="INT32"), INVALID, ["x", "INT32"]),
    "out of range for UINT8": (part(["small"], dtype="UINT8"), INVALID, ["small", "UINT8"]),
    "AS_STORED of two columns": (part(["x", "unit"], dtype="AS_STORED"), INVALID, ["AS_STORED"]),
    "fill text into numbers": (part(["gappy"], {"fill_null": {"text": "a"}}), INVALID, ["gappy"]),
    "hash into no buckets": (part(["word"], {"hash_bucket": {}}), INVALID, ["buckets"]),
    "boundaries that fall": (
        part(["x"], {"bucketize": {"boundaries": [2, 1]}}, dtype="INT32"),
        INVALID,
        ["boundaries"],
    ),
    "half a standardize": (part(["x"], {"standardize": {"mean": 1}}), INVALID, ["mean", "std"]),
    "unfitted plan": (part(["x"], {"standardize": {}}), UNREADY, ["standardize", "fit"]),
    "fit without a body": (fit(b""), INVALID, ["[A-Za-z]"]),
    "fit of random bytes": (fit(bytes(range(255, 200, -1))), INVALID, ["[A-Za-z]"]),
    "fit of an unknown column": (
        fit(
            json.dumps(
                {
                    "dataset": "tiny",
                    "plan": {"outputs": [{"name": "o", "parts": [{"columns": ["no"], "ops": [{"vocab": {}}]}]}]},
                }
            ).encode()
        ),
        INVALID,
        ['"no"'],
    ),
    "fit of a text's mean": (
        fit(
            json.dumps(
                {
                    "dataset": "tiny",
                    "plan": {
                        "outputs": [{"name": "o", "parts": [{"columns": ["word"], "ops": [{"standardize": {}}]}]}]
                    },
                }
            ).encode()
        ),
        (INVALID, UNREADY),
        ["word"],
    ),
    "truncated file": (table("truncated"), LOST, ["a.parquet"]),
    "zeroed file": (table("zeros"), LOST, ["a.parquet"]),
    "empty file": (table("empty"), LOST, ["a.parquet"]),
    "not Parquet": (table("text"), LOST, ["a.parquet", "Parquet"]),
    "damaged page": (table("damaged"), LOST, ["a.parquet", "row group 0", "x"]),
    "damaged page, streamed": (request(dataset="damaged"), LOST, ["a.parquet", "row group 0", "x"]),
    "schemas that differ": (table("drift"), UNREADY, ["b.parquet", "x"]),
    "schemas that differ, streamed": (request(dataset="drift"), UNREADY, ["b.parquet", "x"]),
    "no files": (table("nofiles"), (UNREADY, MISSING), ["nofiles", "parquet"]),
    "no rows": (request(dataset="norows"), UNREADY, ["norows", "no rows"]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_mistake_is_explained_and_the_server_keeps_serving(bad: Server, name: str):
    call, codes, words = CASES[name]
    with fl.connect(bad.url) as client:
        with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
            call(client)
        error = translate(caught.value)
        text = str(error)
        assert error.code in (codes if isinstance(codes, tuple) else (codes,)), f"{error.code}: {text}"
        for word in words:
            assert word in text or (word.startswith("[A-Z") and text), f"{word!r} is not in: {text}"
        assert "panic" not in text
        assert len(text) < 2000
        assert read(client, GOOD).num_rows == 100
    assert bad.alive


def test_unreadable_datasets_are_listed_with_their_reason(bad: Server):
    with fl.connect(bad.url) as client:
        infos = {i.descriptor.path[0].decode(): json.loads(i.app_metadata) for i in client.list_flights()}
    assert infos["tiny"]["error"] == ""
    for name in ("truncated", "empty", "text", "drift", "nofiles"):
        assert name in infos
        assert infos[name]["error"], name
