"""Deletion vectors: deleted rows are at no address, in any order, at any world size, after any resume."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from harness.delta import add, commit, field, inline_vector, remove, start, stored_vectors
from harness.epochs import FILES, FILTERS, REMAINDERS, Data, check, make_request, random_request, write
from harness.serving import Serve, Server, fit, info, plan_of, raw_table, read, stored

FIELDS = [
    field("id", "long"),
    field("x", "double"),
    field("gappy", "double"),
    field("kind", "string"),
    field("text", "string"),
    field("key", "string"),
    field("flag", "boolean"),
    field("number", "short"),
    field("day", "date"),
    field("blob", "binary"),
    field("list", {"type": "array", "elementType": "byte", "containsNull": True}),
    field("struct", {"type": "struct", "fields": [field("a", "integer")]}),
]
NAMES = ("uneven", "single", "plain", "ones")


def deleted_rows(name: str, rows: int, index: int) -> list[int]:
    """Every kind of gap: none, all rows, single ones, and long runs at both ends."""
    random = np.random.default_rng([len(name), rows, index])
    match index % 4 if name == "uneven" else 3 + index % 2:
        case 0:
            return list(range(min(rows, 40))) + list(range(50, rows))
        case 1:
            return []
        case 2:
            return list(range(rows))
        case 3:
            return sorted(random.choice(rows, rows // 3, replace=False).tolist())
        case _:
            return [row for row in range(rows) if row < rows // 4 or row % 97 == 0 or row >= rows - 5]


def made(root: Path, name: str) -> Data:
    """A Delta table with deletion vectors, and the rows that it has."""
    folder = root / name
    write(folder, FILES[name])
    files = sorted(folder.iterdir())
    groups, tables, deletions = list[int](), list[pa.Table](), list[list[int]]()
    for index, path in enumerate(files):
        file = pq.ParquetFile(path)
        gone = deleted_rows(name, file.metadata.num_rows, index)
        kept = np.setdiff1d(np.arange(file.metadata.num_rows), gone)
        ends = np.cumsum([file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)])
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        groups += [int(((kept >= a) & (kept < b)).sum()) for a, b in zip(starts, ends, strict=True)]
        tables.append(file.read().take(kept))
        deletions.append(gone)
    stored = iter(stored_vectors(folder, [gone for index, gone in enumerate(deletions) if gone and index % 2]))
    first, second = [], []
    for index, (path, gone) in enumerate(zip(files, deletions, strict=True)):
        first.append(add(folder, path.name))
        if gone:
            vector = next(stored) if index % 2 else inline_vector(gone)
            second += [remove(path.name), add(folder, path.name, vector=vector)]
    configuration = {"delta.enableDeletionVectors": "true"}
    commit(folder, 0, *start(FIELDS, features=["deletionVectors"], configuration=configuration), *first)
    commit(folder, 1, *second)
    return Data(name, tuple(groups), pa.concat_tables(tables))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deletions")


@pytest.fixture(scope="module")
def datasets(root: Path) -> dict[str, Data]:
    return {name: made(root, name) for name in NAMES}


@pytest.fixture(scope="module")
def server(root: Path, datasets: dict[str, Data], serve: Serve) -> Server:
    tables = {name: f"delta+{root / name}" for name in datasets}
    return serve({**tables, "before": f"delta+{root / 'plain'}@version=0"}, "--cache-bytes", "50000000")


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive, "".join(server.log)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_deltalake(client: fl.FlightClient, root: Path, datasets: dict[str, Data], name: str):
    got = raw_table(client, name)
    want = datasets[name].table
    assert got["id"].to_pylist() == want["id"].to_pylist()
    assert got.to_pylist() == want.to_pylist()
    query = QueryBuilder().register("t", DeltaTable(root / name)).execute("SELECT * FROM t ORDER BY id")
    assert got.sort_by("id").to_pylist() == pa.table(query).to_pylist()


def test_the_version_before_the_deletion_has_all_rows(client: fl.FlightClient):
    assert sorted(raw_table(client, "before")["id"].to_pylist()) == list(range(787))


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("name", NAMES)
def test_file_order_and_shuffles(client: fl.FlightClient, datasets: dict[str, Data], name: str, where: str):
    for shuffle, world in itertools.product((False, True), (1, 3)):
        for _ in range(2):
            # The second time, rows are in the cache.
            request = make_request(
                name, where=where, shuffle=shuffle, world_size=world, batch_size=16, lanes=6 * shuffle
            )
            check(client, datasets[name], request)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("name", NAMES)
def test_random_requests(client: fl.FlightClient, datasets: dict[str, Data], name: str, remainder: str):
    for number in range(6):
        check(client, datasets[name], random_request(datasets[name], remainder, number))


@pytest.mark.parametrize("shuffle", [False, True])
def test_resume_at_every_step(client: fl.FlightClient, datasets: dict[str, Data], shuffle: bool):
    for start_position in range(0, datasets["uneven"].table.num_rows, 20):
        check(
            client,
            datasets["uneven"],
            make_request("uneven", shuffle=shuffle, batch_size=20, start_position=start_position),
        )


def test_filters_that_decode_some_columns_first(client: fl.FlightClient, datasets: dict[str, Data]):
    """A rare row: the filter's column is decoded before the others, which then skip most rows."""
    table = datasets["single"].table
    wanted = table["id"].to_pylist()[5::400]
    plan = plan_of(stored("id", "text", "list", "struct"), filter=f"id IN ({', '.join(map(str, wanted))})")
    got = read(client, "single", plan)
    kept = table.filter(pc.is_in(table["id"], pa.array(wanted)))
    assert got.to_pylist() == kept.select(["id", "text", "list", "struct"]).to_pylist()


def test_fits_and_counts_see_kept_rows_only(client: fl.FlightClient, datasets: dict[str, Data]):
    table = datasets["plain"].table
    outputs = [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]
    fitted = fit(client, "plain", plan_of(outputs))
    assert f"{table['x'].to_numpy().mean():.9}"[:8] in json.dumps(fitted)
    request = {"dataset": "plain", "plan": plan_of(stored("id"), filter="text IS NULL"), "batch_size": 10}
    assert info(client, request).total_records == table["text"].null_count


def test_replay_names_the_row_of_the_file(client: fl.FlightClient, root: Path, datasets: dict[str, Data]):
    request: dict[str, Any] = {"dataset": "uneven", "plan": plan_of(stored("id")), "batch_size": 25, "shuffle": True}
    found = info(client, request)
    batches = [chunk.data for chunk in client.do_get(found.endpoints[0].ticket)]
    body = json.dumps({"stream": request, "rank": 0, "step": 2}).encode()
    parts = [json.loads(part.body.to_pybytes()) for part in client.do_action(fl.Action("replay", body))]
    rows = [row for part in parts for row in part.get("rows", [])]
    by_file = [
        pq.ParquetFile(row["file"])
        .read_row_group(int(row.get("row_group", row.get("row_group", 0))))["id"][int(row.get("row", 0))]
        .as_py()
        for row in rows
    ]
    assert by_file == batches[2]["id"].to_pylist()
