"""Shuffled epochs over bare pyarrow Flight, compared row by row with an order computed in NumPy (`epoch_order`)."""

from __future__ import annotations

import collections
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import ForebayError, translate
from harness.daemon import LOOPBACK, Daemon
from harness.epoch_order import Array, Epoch, passing_rows, permutation, permuted
from harness.epoch_order import key as order_key
from harness.serving import Serve, Server, info

SEED_MAX = 2**64 - 1
REMAINDERS = ("KEEP", "DROP", "PAD")
# Random cases of each dataset and remainder; more of them with the environment variable.
CASES = int(os.environ.get("FOREBAY_EPOCH_CASES", "12"))

# === The data ===

Options = dict[str, Any]
PLAIN_V1: Options = {"use_dictionary": False, "data_page_version": "1.0", "compression": "none"}
DICTIONARY_V1: Options = {"use_dictionary": True, "data_page_version": "1.0", "data_page_size": 64}
PLAIN_V2: Options = {"use_dictionary": False, "data_page_version": "2.0", "data_page_size": 128}
DICTIONARY_V2: Options = {"use_dictionary": True, "data_page_version": "2.0", "compression": "zstd"}

# Per dataset, the files: the rows of each row group, and how they are written.
FILES: dict[str, list[tuple[list[int], Options]]] = {
    "uneven": [
        ([1, 0, 53, 7], PLAIN_V1),
        ([0], DICTIONARY_V2),
        ([101, 3, 0, 0, 60], DICTIONARY_V2),
        ([], PLAIN_V1),
        ([97], PLAIN_V2),
        ([11, 11, 11, 11, 31], DICTIONARY_V1),
    ],
    "single": [([1999], DICTIONARY_V1)],
    "plain": [([400, 87], PLAIN_V2), ([300], PLAIN_V1)],
    "ones": [([1] * 37, DICTIONARY_V1), ([1] * 24, PLAIN_V1)],
    "dozen": [([12], PLAIN_V1)],
    "twelve": [([1] * 12, PLAIN_V1)],
    "one": [([0, 1], DICTIONARY_V1)],
}
KINDS = ("bus", "car", "train", "zeppelin")
# What passes, in SQL and in NumPy.
FILTERS: dict[str, Callable[[Array], Array]] = {
    "": lambda ids: ids >= 0,
    "id % 2 = 1": lambda ids: ids % 2 == 1,
    "id % 29 = 5": lambda ids: ids % 29 == 5,
    "text IS NOT NULL": lambda ids: ids % 5 != 0,
    "id >= 60": lambda ids: ids >= 60,
    "id < 0": lambda ids: ids < 0,
}
STORED = ("text", "key", "flag", "number", "day", "blob", "list", "struct")
OUTPUTS: list[dict[str, Any]] = [
    {
        "name": "wide",
        "parts": [{"columns": ["x", "id"]}, {"columns": ["gappy"], "ops": [{"fill_null": {"value": -1}}]}],
    },
    {"name": "half", "dtype": "FLOAT16", "parts": [{"columns": ["x"]}]},
    {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
    {
        "name": "kinds",
        "dtype": "UINT8",
        "parts": [{"columns": ["kind"], "ops": [{"vocab": {"values": {"strings": KINDS}}}, {"one_hot": {}}]}],
    },
    *({"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]} for name in STORED),
]


def made_table(rows: int) -> pa.Table:
    ids = np.arange(rows)
    return pa.table(
        {
            "id": ids,
            "x": ids / 8 - 4,
            "gappy": pa.array(ids * 0.5, mask=ids % 4 == 1),
            "kind": [KINDS[i * 7 % 4] for i in ids],
            "text": pa.array([None if i % 5 == 0 else f"{i} " + "é" * (i % 9) for i in ids], pa.string()),
            "key": pa.array([None if i % 8 == 3 else f"key {i % 11}" for i in ids], pa.string()).dictionary_encode(),
            "flag": pa.array([None if i % 6 == 0 else i % 7 < 3 for i in ids], pa.bool_()),
            "number": pa.array([None if i % 4 == 2 else i for i in ids], pa.int16()),
            "day": pa.array(ids.astype(np.int32), pa.date32()),
            "blob": pa.array([bytes([i % 256]) * (i % 4) for i in ids], pa.binary()),
            "list": pa.array([None if i % 9 == 0 else [i % 100, None] * (i % 3) for i in ids], pa.list_(pa.int8())),
            "struct": pa.array(
                [None if i % 7 == 0 else {"a": None if i % 3 else i} for i in ids], pa.struct([("a", pa.int32())])
            ),
        }
    )


def write(folder: Path, files: list[tuple[list[int], Options]]) -> None:
    folder.mkdir()
    sizes = [sum(groups) for groups, _ in files]
    table, start = made_table(sum(sizes)), 0
    for index, (groups, options) in enumerate(files):
        with pq.ParquetWriter(folder / f"{index}.parquet", table.schema, **options) as writer:
            for rows in groups:
                writer.write_table(table.slice(start, rows), row_group_size=max(1, rows))
                start += rows


@dataclass(frozen=True)
class Data:
    """A dataset read from its files: the expected data."""

    name: str
    groups: tuple[int, ...]
    table: pa.Table

    @classmethod
    def read(cls, folder: Path) -> Data:
        files = [pq.ParquetFile(path) for path in sorted(folder.iterdir())]
        groups = [f.metadata.row_group(i).num_rows for f in files for i in range(f.metadata.num_row_groups)]
        return cls(folder.name, tuple(groups), pa.concat_tables([f.read() for f in files]))

    def epoch(self, request: Mapping[str, Any]) -> Epoch:
        """The expected order of a request."""
        ids = np.arange(self.table.num_rows)
        passing = passing_rows(self.groups, FILTERS[request["plan"].get("filter", "")](ids))
        fields = ("batch_size", "world_size", "shuffle", "lanes", "window_rows", "seed", "epoch", "remainder")
        return Epoch(passing, **{field: request[field] for field in fields if field in request})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("epochs")
    for name, files in FILES.items():
        write(root / name, files)
    return root


@pytest.fixture(scope="module")
def datasets(root: Path) -> dict[str, Data]:
    return {name: Data.read(root / name) for name in FILES}


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({name: root / name for name in FILES})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive, "".join(server.log)


# === Reading and comparing ===


def make_request(dataset: str, *, where: str = "", **changes: Any) -> dict[str, Any]:
    plan = {"outputs": OUTPUTS, **({"filter": where} if where else {})}
    return {"dataset": dataset, "plan": plan, "shuffle": True, "with_row_ids": True, **changes}


def describe(request: Mapping[str, Any]) -> str:
    """The request without its plan's outputs, for a message."""
    fields = {name: value for name, value in request.items() if name != "plan"}
    return json.dumps({**fields, "filter": request["plan"].get("filter", "")})


Message = tuple[dict[str, Any], pa.RecordBatch]


def read(client: fl.FlightClient, ticket: fl.Ticket) -> list[Message]:
    return [(json.loads(chunk.app_metadata.to_pybytes()), chunk.data) for chunk in client.do_get(ticket)]


def row_ids(batch: pa.RecordBatch) -> list[int]:
    return batch["__row_id"].to_numpy().tolist()


def read_ids(client: fl.FlightClient, request: Mapping[str, Any]) -> list[list[list[int]]]:
    """Row ids of every batch of every rank."""
    return [[row_ids(b) for _, b in read(client, e.ticket) if b.num_rows] for e in info(client, request).endpoints]


def every_byte(client: fl.FlightClient, request: Mapping[str, Any]) -> list[list[tuple[bytes, bytes]]]:
    """Header (with its checksum) and columns of every batch of every rank."""
    return [
        [(chunk.app_metadata.to_pybytes(), chunk.data.serialize().to_pybytes()) for chunk in client.do_get(e.ticket)]
        for e in info(client, request).endpoints
    ]


def failure(client: fl.FlightClient, request: Mapping[str, Any]) -> ForebayError:
    """The error of a request, at GetFlightInfo or in the stream."""
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        read_ids(client, request)
    return translate(caught.value)


def check_values(batch: pa.RecordBatch, table: pa.Table) -> None:
    """Every column of a batch holds the values of the rows that `__row_id` names."""
    rows = table.take(batch["__row_id"])
    ids = rows["id"].to_numpy()
    x = ids / 8 - 4
    gappy = np.where(ids % 4 == 1, -1, ids * 0.5)
    assert np.array_equal(batch["wide"].to_numpy_ndarray(), np.stack([x, ids, gappy], axis=1).astype(np.float32))
    assert np.array_equal(batch["half"].to_numpy(), x.astype(np.float16))
    assert np.array_equal(batch["id"].to_numpy(), ids)
    # Index 0 of a vocabulary is what is not in it.
    kinds = np.eye(len(KINDS) + 1, dtype=np.uint8)[1 + ids * 7 % 4]
    assert np.array_equal(batch["kinds"].to_numpy_ndarray(), kinds)
    for name in STORED:
        assert batch[name].to_pylist() == rows[name].to_pylist(), name


def check_rank(messages: list[Message], order: Epoch, rank: int, data: Data, start_position: int, place: str) -> None:
    """A rank's stream is what the order says, header by header, row by row, value by value."""
    want = order.batches(rank, start_position)
    place = f"rank {rank} of {place}"
    assert [header["last"] for header, _ in messages] == [False] * (len(messages) - 1) + [True], place
    if not want:
        assert [header["rows"] for header, _ in messages] == [0], place
        return
    for (header, batch), batch_wanted in zip(messages, want, strict=False):
        at = f"step {batch_wanted.step}, {place}"
        assert row_ids(batch) == batch_wanted.rows.tolist(), at
        assert header["rows"] == batch.num_rows, at
        assert (header["step"], header["position"]) == (batch_wanted.step, batch_wanted.position), at
        assert (header["epoch"], header["last"]) == (order.epoch, batch_wanted.last), at
        assert header["padding_rows"] == batch_wanted.padding_rows, at
        check_values(batch, data.table)
    assert len(messages) == len(want), place


def check(client: fl.FlightClient, data: Data, request: Mapping[str, Any]) -> None:
    """Check one request: its metadata, and the batches of every rank."""
    order, place = data.epoch(request), describe(request)
    found = info(client, request)
    about, shares = json.loads(found.app_metadata), [json.loads(e.app_metadata) for e in found.endpoints]
    assert found.total_records == about["rows"] == order.total_rows, place
    assert about["steps"] == order.steps, place
    if order.shuffle:
        figures = (about["lanes"], about["window_rows"], about["order_version"])
        assert figures == (order.lane_count, order.window_rows, 1), place
    wanted = [
        {"rank": rank, "rows": order.sent_rows(rank), "steps": order.step_count(rank)}
        for rank in range(order.world_size)
    ]
    assert shares == wanted, place
    start, sent = request.get("start_position", 0), collections.Counter[int]()
    for rank, endpoint in enumerate(found.endpoints):
        messages = read(client, endpoint.ticket)
        check_rank(messages, order, rank, data, start, place)
        for header, batch in messages:
            sent.update(row_ids(batch)[: header["rows"] - header["padding_rows"]])
    passing = {row for group in order.passing for row in group}
    assert set(sent) <= passing, place
    assert max(sent.values(), default=1) == 1, place
    if order.remainder != "DROP" and start == 0:
        assert set(sent) == passing, place


# === Every row where the order says it is ===


def random_request(data: Data, remainder: str, number: int) -> dict[str, Any]:
    """A random request with values near the limits."""
    random = np.random.default_rng([number, REMAINDERS.index(remainder), len(data.groups), data.table.num_rows])

    def one(*choices: Any) -> Any:
        return choices[random.integers(len(choices))]

    rows = data.table.num_rows
    world = one(1, 2, 3, 4, 5)
    # Small batches of many rows are many steps, which only take time.
    sizes = [size for size in (1, 2, 3, 7, 16, 31, 64, rows + 1) if rows / (size * world) <= 40]
    request = make_request(
        data.name,
        where=one("", "", *FILTERS),
        world_size=world,
        batch_size=one(*sizes),
        seed=one(0, 1, SEED_MAX, int(random.integers(2**63))),
        epoch=one(0, 1, 2, 2**32, SEED_MAX),
        remainder=remainder,
        shuffle=one(True, True, True, True, False),
    )
    if one(True, True, False):
        request["lanes"] = world * one(1, 2, 3, 4, 8, 8, 16, -(-(rows + 1) // world))
    if one(True, True, False):
        request["window_rows"] = one(1, 2, 7, 64, 1000, 10**6)
    if one(True, False):
        order = data.epoch(request)
        # Where a run of this shape may have stopped, or one of any other.
        unit = one(order.step_rows, order.lane_count) if order.shuffle else order.step_rows
        request["start_position"] = unit * int(random.integers(order.steps * order.step_rows // unit + 1))
    return request


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("dataset", FILES)
def test_every_row_follows_the_order(client: fl.FlightClient, datasets: dict[str, Data], dataset: str, remainder: str):
    for number in range(CASES):
        check(client, datasets[dataset], random_request(datasets[dataset], remainder, number))


CORNERS: dict[str, dict[str, Any]] = {
    "all defaults": {"dataset": "uneven"},
    "windows of one row keep T's order within a lane": {"dataset": "uneven", "window_rows": 1, "batch_size": 64},
    "one lane, one window": {"dataset": "single", "lanes": 1, "window_rows": 10**6, "batch_size": 997},
    "a window one row shorter than the lane": {"dataset": "dozen", "lanes": 1, "window_rows": 11},
    "cuts within a row group": {"dataset": "single", "lanes": 8, "window_rows": 100, "batch_size": 211},
    "lanes of many row groups": {"dataset": "ones", "lanes": 2, "window_rows": 7, "batch_size": 5},
    "more lanes than rows": {"dataset": "dozen", "lanes": 64, "batch_size": 5, "world_size": 4},
    "as many lanes as there may be": {"dataset": "dozen", "lanes": 65536, "batch_size": 5, "world_size": 32},
    "more ranks than rows": {"dataset": "twelve", "world_size": 40, "batch_size": 2},
    "more ranks than rows, padded": {"dataset": "twelve", "world_size": 40, "batch_size": 2, "remainder": "PAD"},
    "more ranks than rows, dropped": {"dataset": "twelve", "world_size": 40, "batch_size": 2, "remainder": "DROP"},
    "one row, many ranks, padded": {"dataset": "one", "world_size": 5, "batch_size": 3, "remainder": "PAD"},
    "batches larger than the data, padded": {"dataset": "dozen", "world_size": 2, "batch_size": 50, "remainder": "PAD"},
    "nothing passes": {"dataset": "uneven", "where": "id < 0", "world_size": 3},
    "nothing passes, padded": {"dataset": "uneven", "where": "id < 0", "world_size": 3, "remainder": "PAD"},
    "nothing passes, dropped": {"dataset": "uneven", "where": "id < 0", "world_size": 3, "remainder": "DROP"},
    "the largest numbers": {"dataset": "uneven", "seed": SEED_MAX, "epoch": SEED_MAX, "window_rows": 2**26},
    "a world that does not divide 16": {"dataset": "uneven", "world_size": 5, "batch_size": 9},
    "from the end": {"dataset": "dozen", "world_size": 2, "batch_size": 3, "start_position": 12},
}


@pytest.mark.parametrize("corner", CORNERS)
def test_edge_cases_follow_the_order(client: fl.FlightClient, datasets: dict[str, Data], corner: str):
    request = make_request(**CORNERS[corner])
    check(client, datasets[request["dataset"]], request)


def test_real_data_in_the_default_order(flights: pa.Table, flights_folder: Path, serve: Serve):
    """336,776 flights in row groups larger than a window, of which a filter leaves some out."""
    plan = {
        "filter": "arr_delay IS NOT NULL",
        "outputs": [
            {"name": "distance", "parts": [{"columns": ["distance"]}]},
            {"name": "tail", "dtype": "AS_STORED", "parts": [{"columns": ["tailnum"]}]},
        ],
    }
    request = {"dataset": "flights", "plan": plan, "shuffle": True, "with_row_ids": True, "seed": 7, "epoch": 1}
    files = [pq.ParquetFile(path).metadata for path in sorted(flights_folder.iterdir())]
    sizes = [file.row_group(i).num_rows for file in files for i in range(file.num_row_groups)]
    passes = flights["arr_delay"].is_valid().to_numpy()
    order = Epoch(passing_rows(sizes, passes), shuffle=True, batch_size=4096, world_size=2, seed=7, epoch=1)
    with fl.connect(serve({"flights": flights_folder}).url) as connected:
        found = info(connected, {**request, "batch_size": 4096, "world_size": 2})
        assert found.total_records == order.rows == 327_346
        for rank, endpoint in enumerate(found.endpoints):
            got = connected.do_get(endpoint.ticket).read_all()
            assert np.array_equal(got["__row_id"].to_numpy(), np.concatenate(order.ids(rank)))
            rows = flights.take(got["__row_id"])
            assert np.array_equal(got["distance"].to_numpy(), rows["distance"].to_numpy().astype(np.float32))
            assert got["tail"].to_pylist() == rows["tailnum"].to_pylist()


def test_server_counts_match_the_files(client: fl.FlightClient, datasets: dict[str, Data]):
    """The row groups are permuted, the empty ones among them: their number is part of the order."""
    for found in client.list_flights():
        about = json.loads(found.app_metadata)
        assert about["row_groups"] == len(datasets[about["name"]].groups), about["name"]


def test_row_ids_only_add_a_column(client: fl.FlightClient):
    request = make_request("uneven", batch_size=50, world_size=2, window_rows=30)
    for with_ids, without in zip(
        info(client, request).endpoints, info(client, {**request, "with_row_ids": False}).endpoints, strict=True
    ):
        left = [batch.drop_columns("__row_id") for _, batch in read(client, with_ids.ticket)]
        right = [batch for _, batch in read(client, without.ticket)]
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert one.equals(other)


# === One order for any number of ranks and any start ===


@pytest.mark.parametrize(("dataset", "lanes", "step_rows"), [("uneven", 8, 40), ("single", 12, 240), ("ones", 16, 16)])
def test_global_step_has_the_same_rows_at_every_world_size(
    client: fl.FlightClient, dataset: str, lanes: int, step_rows: int
):
    """Where lanes divides batch_size x world_size."""
    steps: dict[int, list[list[int]]] = {}
    for world in (world for world in range(1, lanes + 1) if lanes % world == 0):
        request = make_request(
            dataset, lanes=lanes, batch_size=step_rows // world, world_size=world, window_rows=17, seed=3
        )
        ranks = read_ids(client, request)
        steps[world] = [sorted(itertools.chain(*step)) for step in itertools.zip_longest(*ranks, fillvalue=[])]
    for world, rows in steps.items():
        assert rows == steps[1], f"world size {world}"


@pytest.mark.parametrize(
    ("remainder", "changes"),
    [
        ("KEEP", {"dataset": "uneven", "world_size": 1, "batch_size": 41}),
        ("KEEP", {"dataset": "uneven", "world_size": 3, "batch_size": 19, "lanes": 6, "window_rows": 7}),
        ("KEEP", {"dataset": "single", "world_size": 2, "batch_size": 97, "lanes": 4, "window_rows": 50}),
        ("KEEP", {"dataset": "ones", "world_size": 4, "batch_size": 3, "where": "id % 2 = 1"}),
        ("DROP", {"dataset": "uneven", "world_size": 3, "batch_size": 13, "lanes": 3}),
        ("PAD", {"dataset": "uneven", "world_size": 4, "batch_size": 13, "window_rows": 10}),
        ("PAD", {"dataset": "dozen", "world_size": 5, "batch_size": 2}),
    ],
)
def test_resuming_at_every_step_gives_the_same_remaining_bytes(
    client: fl.FlightClient, datasets: dict[str, Data], remainder: str, changes: dict[str, Any]
):
    request = make_request(**changes, remainder=remainder, seed=5, epoch=2)
    order, whole = datasets[request["dataset"]].epoch(request), every_byte(client, request)
    for step in range(order.steps):
        rest = every_byte(client, {**request, "start_position": step * order.step_rows})
        for rank, got in enumerate(rest):
            place = f"rank {rank} from step {step} of {describe(request)}"
            if whole[rank][step:]:
                assert got == whole[rank][step:], place
            else:
                ((header, _),) = got
                assert (json.loads(header)["rows"], json.loads(header)["last"]) == (0, True), place


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("dataset", ["uneven", "single"])
def test_resuming_at_another_world_size_and_batch_size(
    client: fl.FlightClient, datasets: dict[str, Data], dataset: str, remainder: str
):
    """From a position that lanes divides, with any ranks and batches afterwards: each row exactly once."""
    data = datasets[dataset]
    saved = make_request(dataset, lanes=12, world_size=4, batch_size=21, window_rows=19, seed=8)
    order = data.epoch(saved)
    ranks = [order.ids(rank) for rank in range(4)]
    for step, world in itertools.product((1, 2), (1, 2, 3, 6, 12)):
        # lanes divides the position; 17 x world and most of these do not.
        resumed = {**saved, "world_size": world, "batch_size": 17, "start_position": step * order.step_rows}
        resumed["remainder"] = remainder
        check(client, data, resumed)
        if remainder == "KEEP":
            before = [row for rank in ranks for batch in rank[:step] for row in batch]
            after = [row for rank in read_ids(client, resumed) for batch in rank for row in batch]
            assert sorted(before + after) == list(range(data.table.num_rows)), describe(resumed)


def test_cursor_moves_from_4_ranks_to_2_to_8(client: fl.FlightClient, datasets: dict[str, Data]):
    """Ten steps at each world size: every prefix is the order's, in rows and in number."""
    data, seen, position = datasets["single"], list[int](), 0
    for world, steps in ((4, 10), (2, 10), (8, 10), (4, 100)):
        request = make_request(
            "single", lanes=8, world_size=world, batch_size=48 // world, start_position=position, seed=21
        )
        ranks = read_ids(client, request)
        seen += [row for rank in ranks for batch in rank[:steps] for row in batch]
        position = min(position + steps * 48, data.table.num_rows)
        assert sorted(seen) == sorted(data.epoch(request).prefix(position)), f"{world} ranks, up to {position}"
    assert sorted(seen) == list(range(data.table.num_rows))


# === The same bytes everywhere ===


def test_epochs_and_seeds_differ_and_hold_the_same_rows(client: fl.FlightClient):
    orders = {
        (seed, epoch): read_ids(client, make_request("uneven", seed=seed, epoch=epoch))[0][0]
        for seed, epoch in itertools.product((0, 1, SEED_MAX), (0, 1, SEED_MAX))
    }
    assert len(set(map(tuple, orders.values()))) == len(orders)
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1


def test_epoch_is_byte_identical_across_servers_and_runs(
    client: fl.FlightClient, server: Server, root: Path, serve: Serve
):
    """Read twice, by all ranks at once, from another process with another state, and from that after a restart."""
    request = make_request(
        "uneven", world_size=4, batch_size=9, window_rows=20, where="text IS NOT NULL", seed=4, epoch=1
    )
    first = every_byte(client, request)
    tickets = [endpoint.ticket for endpoint in info(client, request).endpoints]
    assert every_byte(client, request) == first

    def read_alone(ticket: fl.Ticket) -> list[tuple[bytes, bytes]]:
        with fl.connect(server.url) as own:
            return [(c.app_metadata.to_pybytes(), c.data.serialize().to_pybytes()) for c in own.do_get(ticket)]

    with ThreadPoolExecutor(len(tickets)) as pool:
        assert list(pool.map(read_alone, tickets)) == first
    for replica in (Server({"uneven": root / "uneven"}), Server({"uneven": root / "uneven", "one": root / "one"})):
        try:
            with fl.connect(replica.url) as other:
                assert [endpoint.ticket for endpoint in info(other, request).endpoints] == tickets
                assert every_byte(other, request) == first
        finally:
            replica.stop()


def test_epoch_survives_a_restart_with_the_same_state(root: Path, tmp_path: Path):
    """The counts that a filter's pass left in --state are those that are used again."""
    request = make_request("uneven", world_size=3, batch_size=9, where="id % 2 = 1", remainder="PAD", seed=9)
    seen: list[Any] = []
    for _ in range(2):
        dataset = f"uneven={root / 'uneven'}"
        daemon = Daemon(*LOOPBACK, "--state", os.fspath(tmp_path), "--dataset", dataset)
        try:
            with fl.connect(daemon.url) as connected:
                seen.append(every_byte(connected, request))
        finally:
            daemon.stop()
    assert seen[0] == seen[1]


def test_abandoned_stream_does_not_disturb_others(client: fl.FlightClient, datasets: dict[str, Data]):
    request = make_request("single", batch_size=10, world_size=2, window_rows=64)
    for _ in range(5):
        reader = client.do_get(info(client, request).endpoints[1].ticket)
        reader.read_chunk()
        reader.cancel()
    check(client, datasets["single"], request)


# === Requests that are wrong ===


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start_position": 12, "lanes": 8, "batch_size": 5, "world_size": 4}, ["start_position", "12", "20", "8"]),
        ({"start_position": 1}, ["start_position", "1024", "16"]),
        ({"start_position": 8, "lanes": 16, "batch_size": 3, "world_size": 2}, ["start_position", "6", "16"]),
        ({"start_position": 2**63}, ["start_position"]),
        ({"start_position": 320_000, "batch_size": 16}, ["start_position"]),
        ({"lanes": 16, "world_size": 3}, ["lanes", "world_size", "3"]),
        ({"lanes": 2, "world_size": 4}, ["lanes", "world_size", "4"]),
        ({"window_rows": 0}, ["window_rows"]),
        ({"window_rows": -1}, ["window_rows"]),
        ({"window_rows": 2**63}, ["window_rows"]),
        ({"lanes": -16}, ["lanes"]),
        ({"batch_size": 0}, ["batch_size"]),
        ({"world_size": 0}, ["world_size"]),
        ({"seed": 2**65}, ["seed"]),
    ],
)
def test_invalid_request_names_the_field_and_allowed_values(
    client: fl.FlightClient, server: Server, changes: dict[str, Any], words: list[str]
):
    error = failure(client, make_request("uneven", **changes))
    assert error.code == "INVALID_ARGUMENT", str(error)
    for word in words:
        assert word in str(error), f"{word!r} is not in {error}"
    assert server.alive


@pytest.mark.parametrize("lanes", [2**63, 2**64 - 16, 2**48, 2**32])
def test_rejects_excessive_lanes_naming_the_limit(client: fl.FlightClient, server: Server, lanes: int):
    error = failure(client, make_request("uneven", lanes=lanes))
    assert error.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"), str(error)
    assert "lanes" in str(error)
    assert server.alive


def test_rejects_another_order_version_by_name(client: fl.FlightClient, datasets: dict[str, Data]):
    error = failure(client, make_request("uneven", order_version=2))
    assert error.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"), str(error)
    assert "order_version" in str(error)
    assert "1" in str(error)
    check(client, datasets["uneven"], make_request("uneven", order_version=1, batch_size=100))


# === Files that change, memory that is short ===

LONG_FILES, LONG_GROUPS, LONG_ROWS = 2, 30, 500
LONG_PLAN: dict[str, Any] = {
    "outputs": [
        {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
        {"name": "version", "dtype": "INT32", "parts": [{"columns": ["version"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
    ]
}


def write_long(path: Path, start: int, version: int) -> None:
    """Rows of 2 KB with the version that wrote them: 30 MB on the wire, more than a server reads ahead."""
    rows = LONG_GROUPS * LONG_ROWS
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["shuffled " * 220])
    table = pa.table({"id": np.arange(start, start + rows), "version": pa.array([version] * rows, pa.int32())})
    pq.write_table(table.append_column("text", texts), path, store_schema=False, row_group_size=LONG_ROWS)


def replaced(path: Path, start: int) -> None:
    write_long(path.with_name("_new"), start, 1)
    path.with_name("_new").rename(path)


def deleted(path: Path, start: int) -> None:
    path.unlink()


@pytest.fixture
def long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "long"
    folder.mkdir()
    for file in range(LONG_FILES):
        write_long(folder / f"{file}.parquet", file * LONG_GROUPS * LONG_ROWS, 0)
    return folder


def long_request(**changes: Any) -> dict[str, Any]:
    # Two lanes of row groups from both files, read one after another.
    request = {"dataset": "long", "plan": LONG_PLAN, "shuffle": True, "with_row_ids": True, "lanes": 2}
    return {**request, "window_rows": 64, "batch_size": 100, **changes}


@pytest.mark.parametrize("change", [replaced, deleted])
def test_changed_file_ends_a_shuffled_stream(long_folder: Path, serve: Serve, change: Callable[[Path, int], None]):
    running = serve({"long": long_folder})
    request = long_request(seed=6)
    sizes = [LONG_ROWS] * (LONG_FILES * LONG_GROUPS)
    want = Epoch(passing_rows(sizes), batch_size=100, shuffle=True, lanes=2, window_rows=64, seed=6).ids(0)
    with fl.connect(running.url) as connected:
        found = info(connected, request)
        reader = connected.do_get(found.endpoints[0].ticket)
        seen = [reader.read_chunk().data]
        change(long_folder / "1.parquet", LONG_GROUPS * LONG_ROWS)
        with pytest.raises(fl.FlightError) as caught:
            seen.extend(chunk.data for chunk in reader)
        error = translate(caught.value)
        assert error.code == "ABORTED", str(error)
        assert "snapshot changed" in str(error)
        assert "1.parquet" in str(error)
        for step, batch in enumerate(seen):
            assert row_ids(batch) == batch["id"].to_pylist() == want[step], f"step {step}"
            assert set(batch["version"].to_pylist()) == {0}, f"step {step}"
        # The ticket stays an address of what is no more.
        with pytest.raises(fl.FlightError, match="snapshot changed"):
            connected.do_get(found.endpoints[0].ticket).read_all()
    assert running.alive


def test_rejects_windows_beyond_the_memory_limit_with_both_numbers(long_folder: Path, serve: Serve):
    limit = 8_000_000
    running = serve({"long": long_folder}, "--memory-limit-bytes", str(limit))
    wide = {"outputs": [{"name": "x", "parts": [{"columns": ["id"] * 500}]}, *LONG_PLAN["outputs"]]}
    with fl.connect(running.url) as connected:
        error = failure(connected, long_request(plan=wide, window_rows=16_384, batch_size=1))
        assert error.code == "RESOURCE_EXHAUSTED", str(error)
        assert f"{limit}" in str(error).replace(",", "").replace("_", "")
        assert "--memory-limit-bytes" in str(error) or "window_rows" in str(error)
        reader = connected.do_get(info(connected, long_request(window_rows=16, batch_size=16)).endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows == 16
        reader.cancel()
    assert running.alive


# === The permutations themselves ===


def chi_square(counts: Array) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def is_even(statistic: float, freedom: int) -> bool:
    """Whether a chi-square statistic is at most 5 of its deviations from its mean."""
    return abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def places_are_even(orders: Array) -> bool:
    """Whether each row is at each position equally often; each array row is a permutation."""
    size = orders.shape[1]
    counts = np.stack([np.bincount(orders[:, position], minlength=size) for position in range(size)])
    # Sums of permutation matrices: rows and columns both add up, which shrinks the statistic.
    return is_even(chi_square(counts) * (size - 1) / size, (size - 1) ** 2)


def pairs_are_even(orders: Array, one: int, other: int) -> bool:
    """Whether two positions hold each of the pairs of different rows equally often."""
    size = orders.shape[1]
    pairs = np.bincount(orders[:, one] * size + orders[:, other], minlength=size * size).reshape(size, size)
    return is_even(chi_square(pairs[~np.eye(size, dtype=bool)]), size * (size - 1) - 1)


@pytest.mark.parametrize("size", range(2, 13))
def test_every_row_reaches_every_position_equally_often(size: int):
    trials = 20_000
    keys = np.array([order_key("w", seed, 0, 0, 0) for seed in range(trials)], np.uint64)[:, None]
    orders = permuted(np.arange(size)[None, :], np.uint64(size), keys).astype(np.int64)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(size), (trials, 1)))
    assert places_are_even(orders)
    if size > 2:
        for one, other in ((0, 1), (0, size - 1), (size // 2, size // 2 - 1)):
            assert pairs_are_even(orders, one, other), (one, other)


@pytest.mark.parametrize("varied", ["seed", "epoch"])
@pytest.mark.parametrize("groups", [[12], [1] * 12])
def test_neighbouring_seeds_and_epochs_are_independent(groups: list[int], varied: str):
    epoch = Epoch(passing_rows(groups), shuffle=True, lanes=1, batch_size=12)
    trials = 800
    orders = np.array([epoch.with_(**{varied: value}).prefix(12) for value in range(trials)])
    assert places_are_even(orders)
    # Two random permutations of 12 agree in one place on average, with a variance of one.
    agreements = (orders[1:] == orders[:-1]).sum(axis=1)
    assert abs(agreements.mean() - 1) < 5 / np.sqrt(trials)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 63, 64, 65, 1000, 4097])
def test_permutation_is_a_bijection(size: int):
    for seed in (0, 1, SEED_MAX):
        order = permutation(size, order_key("g", seed, SEED_MAX, 0, 0))
        assert np.array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("dataset", ["dozen", "twelve"])
def test_server_permutation_matches_the_oracle(client: fl.FlightClient, datasets: dict[str, Data], dataset: str):
    for seed, lanes in itertools.product(range(8), (1, 3)):
        request = make_request(dataset, lanes=lanes, seed=seed, epoch=seed // 3, batch_size=12)
        assert read_ids(client, request)[0][0] == datasets[dataset].epoch(request).prefix(12), describe(request)


def test_order_version_1_is_stable():
    """The order is a format: these numbers change only with order_version."""
    epoch = Epoch(passing_rows([5, 0, 7]), shuffle=True, lanes=2, window_rows=4, seed=7, epoch=1)
    assert (order_key("g", 0, 0, 0, 0), order_key("w", 7, 1, 1, 0)) == (13797753934698153160, 8521847197681994343)
    assert permutation(10, order_key("w", 7, 1, 0, 0)).tolist() == [9, 7, 3, 0, 8, 2, 6, 5, 1, 4]
    assert permutation(1000, order_key("w", 7, 1, 0, 0))[:8].tolist() == [938, 503, 253, 413, 627, 518, 33, 533]
    assert epoch.prefix(12) == [8, 1, 6, 2, 5, 0, 7, 11, 10, 3, 9, 4]
