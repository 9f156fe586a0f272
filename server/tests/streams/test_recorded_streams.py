"""Streams of varied requests have the bytes that earlier builds gave them.

A digest in recorded_streams.json covers the schema and the headers of all batches, and those have checksums of the
bodies. Where bytes change on purpose, FOREBAY_REGENERATE=1 writes the file again, and the commit says why.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import xxhash
from PIL import Image

from harness.exchange import exchange
from harness.serving import Serve, Server, fit, info, stored

Json = dict[str, Any]

RECORDED = Path(__file__).with_name("recorded_streams.json")
ROWS, USERS = 5_003, 211
WORDS = ["ab", "c", "déf", "", "日本", "the quick brown fox"]


def drawn(column: str, row: int, end: int) -> int:
    """A number below `end` that no library's version changes."""
    return xxhash.xxh3_64_intdigest(f"{column}/{row}".encode()) % end


def values(column: str, end: int, *, gaps: int = 0, rows: int = ROWS) -> list[int | None]:
    """One of `gaps` values is null."""
    drawings = [drawn(column, row, end) for row in range(rows)]
    return [None if gaps and drawn(f"{column} gap", row, gaps) == 0 else value for row, value in enumerate(drawings)]


def scaled(numbers: Iterable[int | None], unit: float, start: float = 0.0) -> list[float | None]:
    return [None if number is None else number * unit + start for number in numbers]


def png(row: int) -> bytes:
    image = Image.new("RGB", (5 + row % 7, 4 + row % 5))
    image.putdata(
        [(drawn("red", pixel * row, 256), pixel % 256, row % 256) for pixel in range(image.width * image.height)]
    )
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def events() -> pa.Table:
    hours = values("at", 24 * 365, gaps=23)
    words = [None if place is None else WORDS[place] for place in values("word", len(WORDS), gaps=9)]
    lengths = [drawn("length", row, 9) for row in range(ROWS)]
    tags = [[drawn("tag", row * 9 + place, 40) for place in range(length)] for row, length in enumerate(lengths)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "x": pa.array(scaled(values("x", 1 << 20, gaps=7), 2.0**-18, -2.0), pa.float64()),
            "y": pa.array([float(value or 0) for value in values("y", 1 << 12)], pa.float32()),
            "unit": pa.array(scaled(values("unit", 1 << 16), 2.0**-16), pa.float64()),
            "n": pa.array([(value or 0) - 500 for value in values("n", 1000)], pa.int32()),
            "flag": pa.array([value == 0 for value in values("flag", 3)]),
            "word": pa.array(words, pa.string()),
            "kind": pa.array([f"kind {value}" for value in values("kind", 12)]).dictionary_encode(),
            "at": pa.array(
                [None if hour is None else hour * 3_600_000_000 for hour in hours], pa.timestamp("us", "UTC")
            ),
            "day": pa.array(values("day", 20_000), pa.int32()).cast(pa.date32()),
            "price": pa.array(values("price", 1_000_000), pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(21, 2)),
            "tags": pa.array(tags, pa.list_(pa.int64())),
            "raw": pa.array([bytes(drawn("raw", row * 3 + place, 256) for place in range(3)) for row in range(ROWS)]),
            "user": pa.array(values("user", USERS + 30, gaps=31), pa.int32()),
        }
    )


def write(folder: Path, table: pa.Table, files: int, row_group_size: int) -> None:
    folder.mkdir(parents=True)
    rows = -(-table.num_rows // files)
    for file in range(files):
        pq.write_table(table.slice(file * rows, rows), folder / f"{file}.parquet", row_group_size=row_group_size)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("recorded")
    table = events()
    write(root / "events", table, 3, 400)
    write(root / "other", table.slice(0, 701), 1, 100)
    write(root / "small", table.slice(0, 97).select(["id", "x", "tags"]), 2, 20)
    for region, start in (("north", 0), ("south", 1_000), ("west", 2_000)):
        write(root / "regions" / f"region={region}", table.slice(start, 501).drop_columns(["at"]), 1, 128)
    users = {
        "key": pa.array(range(USERS), pa.int64()),
        "segment": [f"s{row % 7}" for row in range(USERS)],
        "score": pa.array(scaled(values("score", 1 << 10, gaps=5, rows=USERS), 2.0**-6), pa.float64()),
    }
    write(root / "users", pa.table(users), 1, USERS)
    prices = {
        "user": pa.array(values("user", USERS, rows=3_001), pa.int32()),
        "since": pa.array(
            [(hour or 0) * 3_600 for hour in values("since", 24 * 365, rows=3_001)], pa.timestamp("s", "UTC")
        ),
        "paid": pa.array(range(3_001), pa.int64()),
    }
    write(root / "prices", pa.table(prices), 2, 500)
    images = {
        "id": pa.array(range(41)),
        "image": pa.array([b"no image" if row == 11 else png(row) for row in range(41)]),
    }
    write(root / "images", pa.table(images), 1, 10)
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def output(name: str, columns: list[str], *ops: Json, dtype: str | None = None) -> Json:
    part = {"columns": columns, "ops": list(ops)}
    return {"name": name, "parts": [part]} | ({} if dtype is None else {"dtype": dtype})


FILLED: Json = {"fill_null": {"value": 0.5}}
PLAIN: Json = {"outputs": stored("id", "x")}
JOINED: Json = {
    "join": [{"table": "users", "on": "user", "key": "key", "columns": ["segment", "score"], "prefix": "u_"}]
}
AS_OF: Json = {"table": "prices", "on": "user", "columns": ["paid", "since"], "as_of": {"left": "at", "right": "since"}}
SHUFFLED: Json = {"shuffle": True, "seed": 7, "epoch": 2}
TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {"[UNK]": 0, "the": 1, "fox": 2, "ab": 3, "日本": 4},
            "unk_token": "[UNK]",
        },
    }
)

PLANS: dict[str, Json] = {
    "stored": {"outputs": stored(*events().column_names)},
    "scaled": {
        "outputs": [
            output(
                "standardize",
                ["x", "y"],
                {"fill_null": {"stat": "MEAN"}},
                {"standardize": {}},
                {"clip": {"min": -1, "max": 2}},
            ),
            output("min_max", ["n"], {"min_max": {}}),
            output("max_abs", ["n", "y"], {"max_abs": {}}),
            output("robust", ["x"], {"fill_null": {"stat": "MEDIAN"}}, {"robust": {}}),
        ]
    },
    "elementwise": {
        "outputs": [
            output("log1p", ["y"], {"log1p": {}}),
            output("root", ["n"], {"abs": {}}, {"sqrt": {}}),
            output("logit", ["unit"], {"logit": {"eps": 0.01}}),
            output("box_cox", ["y"], {"clip": {"min": 1}}, {"box_cox": {"lambda": 0.5}}),
        ]
    },
    "bucketized": {
        "outputs": [
            output("given", ["x"], FILLED, {"bucketize": {"boundaries": [-1, 0, 0.25, 1]}}),
            output("learned", ["y", "n"], {"bucketize": {"quantiles": 8}}),
        ]
    },
    "vocab": {
        "outputs": [
            output("all", ["word", "kind"], {"vocab": {}}),
            output("cut", ["user"], {"vocab": {"min_count": 20, "max_size": 100, "oov_buckets": 8}}),
            output("one_hot", ["kind"], {"vocab": {}}, {"one_hot": {}}),
        ]
    },
    "hashed": {
        "outputs": [
            output(
                "hash", ["id", "word", "x"], {"hash_bucket": {"buckets": 1000, "seed": 3}}, {"fill_null": {"value": 0}}
            ),
            output("sigrid", ["id"], {"sigrid_hash": {"salt": 5, "max_value": 999}}),
            output("mod", ["n"], {"positive_mod": {"modulus": 37}}),
            output("map", ["n"], {"map_id": {"ids": [1, 2, 3], "values": [10, 20, 30], "default": -1}}),
            output("cross", ["word"], {"cross": {"columns": ["kind", "n"], "buckets": 512}}),
        ]
    },
    "lists": {
        "outputs": [
            output("ragged", ["tags"]),
            output("first", ["tags"], {"first_n": {"n": 3, "value": -1}}),
            output("last", ["tags"], {"last_n": {"n": 3}}),
            output("left", ["tags"], {"pad": {"n": 6, "value": -1, "side": "LEFT"}}),
            output("mask", ["tags"], {"attention_mask": {"n": 6}}),
            output("hot", ["tags"], {"multi_hot": {"size": 40}}),
            output("ngram", ["tags"], {"ngram": {"n": 2, "buckets": 100}}),
        ]
    },
    "joined": {
        **JOINED,
        "derive": [{"name": "more", "expr": "coalesce(u_score, 0) * 2 + n"}],
        "outputs": [*stored("u_segment", "u_score"), output("more", ["more"], dtype="FLOAT64")],
    },
    "as of": {"join": [AS_OF], "outputs": stored("id", "paid", "since")},
    "as of, before": {
        "join": [{**AS_OF, "as_of": {**AS_OF["as_of"], "allow_exact": False, "tolerance_seconds": 900_000}}],
        "filter": "paid IS NOT NULL",
        "outputs": stored("id", "paid"),
    },
    "lookup": {
        "outputs": [
            output("score", ["user"], {"lookup": {"table": "users", "key": "key", "columns": ["score"]}}, FILLED)
        ]
    },
    "encoded": {
        "outputs": [
            output("count", ["word"], {"count_encode": {}}),
            output("target", ["kind"], {"target_mean": {"label": "flag", "folds": 0}}),
        ]
    },
    "dtypes": {
        "outputs": [
            output(dtype.lower(), ["n"], {"clip": {"min": 0, "max": 100}}, dtype=dtype)
            for dtype in ("FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64", "INT32", "INT64", "UINT8")
        ]
        + [output("bytes", ["raw"], {"bytes": {"n": 3}})]
    },
    "derived": {
        "derive": [
            {"name": "hour", "expr": "date_part('hour', at)"},
            {"name": "week", "expr": "date_trunc('week', at)"},
            {"name": "tax", "expr": "price * 1.19"},
            {"name": "ratio", "expr": "n / 7"},
            {"name": "long", "expr": "character_length(word) > 2"},
            {"name": "upper", "expr": "upper(word)"},
            {"name": "age", "expr": "DATE '2026-01-01' - day"},
            {"name": "many", "expr": "array_length(tags)"},
        ],
        "outputs": stored("hour", "week", "tax", "ratio", "long", "upper", "many"),
    },
    "filtered": {"filter": "x > 0 AND (word LIKE '%f%' OR word IS NULL)", "outputs": stored("id", "x", "word")},
    "filtered by sets and times": {
        "filter": "kind IN ('kind 3', 'kind 11') AND at >= TIMESTAMP '1970-03-01T00:00:00Z' AND NOT flag",
        "outputs": stored("id", "kind", "at"),
    },
    "filtered by numbers": {
        "filter": "price BETWEEN 1000 AND 900000.5 AND id % 7 <> 3",
        "outputs": stored("id", "price"),
    },
    "filtered by a join": {
        **JOINED,
        "filter": "u_segment = 's3' OR u_score IS NULL",
        "outputs": stored("id", "u_score"),
    },
    "tokenized": {
        "outputs": [
            output(
                "tokens",
                ["word"],
                {"fill_null": {"text": "fox"}},
                {"tokenize": {"json": TOKENIZER, "max_length": 4}},
                {"pad": {"n": 4, "value": 0}},
            )
        ]
    },
}

CROPPED = {"height": 3, "width": 4, "crop": "RANDOM", "flip": True}
WHOLE = {"height": 3, "width": 4, "on_error": "SKIP", "normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}

REQUESTS: dict[str, Json] = {
    **{f"plan: {name}": {"plan": plan} for name, plan in PLANS.items()},
    **{
        f"shuffled: {name}": {"plan": PLANS[name], **SHUFFLED}
        for name in ("stored", "joined", "as of", "filtered", "lists")
    },
    "ranks": {"plan": PLAIN, "world_size": 3},
    "ranks, drop": {"plan": PLAIN, "world_size": 4, "remainder": "DROP"},
    "ranks, pad": {"plan": PLAIN, "world_size": 4, "remainder": "PAD"},
    "row ids": {"plan": PLAIN, "with_row_ids": True},
    "epoch 5": {"plan": PLAIN, "shuffle": True, "epoch": 5},
    "small windows": {"plan": PLAIN, **SHUFFLED, "window_rows": 64, "lanes": 4},
    "one lane": {"plan": PLAIN, **SHUFFLED, "lanes": 1},
    "shuffled ranks, pad": {"plan": PLAIN, **SHUFFLED, "world_size": 3, "remainder": "PAD"},
    "shuffled ranks, drop": {"plan": PLAIN, **SHUFFLED, "world_size": 3, "remainder": "DROP", "with_row_ids": True},
    "order version 1": {"plan": PLAIN, **SHUFFLED, "order_version": 1},
    "order version 2": {"plan": PLAIN, **SHUFFLED, "order_version": 2, "world_size": 2},
    "resumed": {"plan": PLAIN, "world_size": 2, "start_position": 1200},
    "resumed by others": {"plan": PLAIN, "world_size": 3, "start_position": 1500, "resumed_from": 600},
    "resumed, shuffled": {"plan": PLANS["filtered"], **SHUFFLED, "lanes": 8, "start_position": 96},
    "sampled": {"plan": PLAIN, "sample": 0.3, "sample_seed": 4},
    "sampled, shuffled": {"plan": PLANS["filtered by numbers"], **SHUFFLED, "sample": 0.5},
    "groups": {"plan": PLAIN, "group_by": "kind"},
    "balanced": {"plan": PLAIN, "balance": {"by": "word"}, "epoch": 3},
    "balanced, shuffled": {
        "plan": PLANS["filtered"],
        "balance": {"by": "flag", "weights": [{"key": {"boolean": True}, "weight": 3}]},
        "world_size": 2,
        **SHUFFLED,
    },
    "group buckets": {"plan": PLAIN, "group_by": "word", "group_buckets": 3, **SHUFFLED},
    "partitions": {"dataset": "regions", "plan": {"filter": "region <> 'west'", "outputs": stored("id", "region")}},
    "partitions, shuffled": {"dataset": "regions", "plan": {"outputs": stored("id", "region")}, **SHUFFLED},
    "mixture": {"sources": [{"dataset": "events", "weight": 0.8}, {"dataset": "other", "weight": 0.2, "repeat": True}]},
    "mixture, shuffled": {
        "sources": [{"dataset": "events", "weight": 3}, {"dataset": "small", "weight": 1}],
        "world_size": 2,
        **SHUFFLED,
    },
    "mixture of counts": {
        "sources": [
            {"dataset": "events", "rows_per_batch": 100},
            {"dataset": "other", "rows_per_batch": 50, "repeat": True, "plan": {**PLAIN, "filter": "flag"}},
        ]
    },
    "packed": {
        "plan": {"outputs": [{**output("tokens", ["tags"], dtype="INT32"), "pack": {"length": 32, "separator": 99}}]},
        "with_row_ids": True,
    },
    "packed, shuffled": {
        "plan": {
            "filter": "id % 3 > 0",
            "outputs": [{**output("tokens", ["tags"], dtype="INT32"), "pack": {"length": 16, "padding": -1}}],
        },
        "world_size": 2,
        **SHUFFLED,
    },
    "images": {
        "dataset": "images",
        "plan": {"filter": "id <> 11", "outputs": [output("image", ["image"], {"decode_image": CROPPED})]},
        **SHUFFLED,
    },
    "images, skipped": {
        "dataset": "images",
        "plan": {"outputs": [output("image", ["image"], {"decode_image": WHOLE})]},
    },
    "take": {
        "take": {"dataset": "events", "plan": PLANS["lists"], "row_ids": [5002, 0, 17, 17, 4100], "with_row_ids": True}
    },
    "take by position": {
        "take": {"dataset": "events", "plan": PLANS["filtered"], "positions": [3, 0, 200], "batch_size": 2}
    },
    "table": {"table": {"dataset": "events"}},
    "rows of a table": {"table": {"dataset": "regions", "columns": ["region", "n"], "limit": 700}},
}


def fitted(client: fl.FlightClient, request: Json) -> Json:
    """The request, under the id of its plan if that learns."""
    learns = ("stat", "standardize", "min_max", "max_abs", "robust", "quantiles", "vocab", "_encode", "target_mean")
    if "plan" not in request or not any(f'"{word}' in json.dumps(request["plan"]) for word in learns):
        return request
    result = fit(client, request["dataset"], request["plan"])[-1]["result"]
    return {name: value for name, value in request.items() if name != "plan"} | {"plan_id": result["plan_id"]}


def stream_digest(client: fl.FlightClient, request: Json) -> str:
    """Of all ranks or groups."""
    if not {"sources", "take", "table"} & request.keys():
        request = {"dataset": "events", "batch_size": 150, **request}
    elif "sources" in request:
        request = {"plan": PLAIN, "batch_size": 150, **request}
    digest = hashlib.sha256()
    for endpoint in info(client, fitted(client, request)).endpoints:
        reader = client.do_get(endpoint.ticket)
        digest.update(reader.schema.to_string(show_schema_metadata=True, show_field_metadata=True).encode())
        for chunk in reader:
            digest.update(b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes())
            digest.update(b"" if chunk.app_metadata is not None else batch_bytes(chunk.data))
    return digest.hexdigest()[:32]


def batch_bytes(batch: pa.RecordBatch) -> bytes:
    return json.dumps(batch.to_pylist(), default=str, ensure_ascii=False).encode()


def exchange_digest(client: fl.FlightClient, plan: Json) -> str:
    rows = events().slice(0, 300).combine_chunks().to_batches(max_chunksize=128)
    answers = exchange(client, {key: plan[key] for key in ("plan", "plan_id") if key in plan}, rows)
    return hashlib.sha256(b"".join(batch_bytes(answer) for answer in answers)).hexdigest()[:32]


def test_streams_have_the_recorded_bytes(client: fl.FlightClient) -> None:
    digests = {name: stream_digest(client, request) for name, request in REQUESTS.items()}
    for name in ("scaled", "vocab", "lists", "joined", "as of"):
        request = fitted(client, {"dataset": "events", "plan": PLANS[name]})
        digests[f"exchange: {name}"] = exchange_digest(client, request)
    if os.environ.get("FOREBAY_REGENERATE"):
        RECORDED.write_text(json.dumps(digests, indent=1) + "\n")
    recorded = json.loads(RECORDED.read_text())
    assert {name for name in digests | recorded if digests.get(name) != recorded.get(name)} == set()
    assert len(set(digests.values())) == len(digests)
