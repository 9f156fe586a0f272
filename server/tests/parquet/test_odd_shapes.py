"""Row groups of unusual sizes, including empty ones, and unusual column names."""

from __future__ import annotations

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

from harness.serving import Serve, Server, fit, info, raw_table

PRIME = 1_000_003
TINY_GROUPS = 2000
NAMES = (
    "two words",
    'quo"te',
    "apo'strophe",
    "ünï",
    "UPPER",
    "Mixed",
    "mixed",
    "a.b",
    "select",
    "1st",
    "per%cent",
    "back\\slash",
    "日本",
    " leading",
    "emoji 🦀",
    "tab\tbed",
    "x" * 300,
)


def numbers(rows: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + rows)
    return pa.table({"id": ids, "half": (ids / 2).astype(np.float32), "text": [f"{i % 10}" for i in ids]})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shapes")
    for name in ("prime", "tiny", "empty", "onlyempty", "names"):
        (root / name).mkdir()
    ids = pa.table({"id": np.arange(PRIME), "half": (np.arange(PRIME) / 2).astype(np.float32)})
    pq.write_table(ids, root / "prime/a.parquet", row_group_size=PRIME)
    table = numbers(TINY_GROUPS * 2)
    with pq.ParquetWriter(root / "tiny/a.parquet", table.schema) as writer:
        for group in range(TINY_GROUPS):
            writer.write_table(table.slice(group * 2, 2))
    empty = table.slice(0, 0)
    for file, sizes in {"a": [], "b": [0], "c": [0, 0, 3, 0, 1], "d": [], "e": [0, 5], "f": [0]}.items():
        with pq.ParquetWriter(root / f"empty/{file}.parquet", table.schema) as writer:
            start = {"c": 0, "e": 4}.get(file, 0)
            for size in sizes:
                writer.write_table(table.slice(start, size) if size else empty)
                start += size
    pq.write_table(empty, root / "onlyempty/a.parquet")
    named = pa.table({name: pa.array(np.arange(100) + 1000 * i) for i, name in enumerate(NAMES)})
    pq.write_table(named, root / "names/a.parquet", row_group_size=30)
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def plan(*columns: str, dtype: str = "INT64", **rest: Any) -> dict[str, Any]:
    return {"outputs": [{"name": "out", "dtype": dtype, "parts": [{"columns": list(columns)}]}], **rest}


def read(client: fl.FlightClient, dataset: str, requested: dict[str, Any], **changes: Any) -> list[pa.RecordBatch]:
    found = info(client, {"dataset": dataset, "plan": requested, **changes})
    return [chunk.data for endpoint in found.endpoints for chunk in client.do_get(endpoint.ticket)]


def column(batches: list[pa.RecordBatch], name: str = "out") -> np.ndarray:
    return np.concatenate([batch[name].to_numpy() for batch in batches])


def test_row_group_of_a_million_rows(client: fl.FlightClient):
    assert np.array_equal(raw_table(client, "prime")["id"].to_numpy(), np.arange(PRIME))
    batches = read(client, "prime", plan("id"), batch_size=65_537, world_size=3, with_row_ids=True)
    assert np.array_equal(column(batches), np.arange(PRIME))
    assert np.array_equal(column(batches, "__row_id"), np.arange(PRIME))
    # After the middle of the row group, with skipped rows before it.
    late = read(client, "prime", plan("id", filter="id % 3 = 1"), batch_size=1000, start_position=333_000)
    assert column(late).tolist() == list(range(333_000 * 3 + 1, PRIME, 3))


def test_thousands_of_row_groups_of_two_rows(client: fl.FlightClient):
    want = numbers(TINY_GROUPS * 2)
    assert raw_table(client, "tiny").equals(want)
    batches = read(client, "tiny", plan("id", filter="id >= 17 AND text <> '3'"), batch_size=97, world_size=2)
    ids = want["id"].to_numpy()
    assert column(batches).tolist() == ids[(ids >= 17) & (ids % 10 != 3)].tolist()
    assert [batch.num_rows for batch in batches].count(97) == len(batches) - 2


def test_files_and_row_groups_without_rows(client: fl.FlightClient):
    want = numbers(9)
    found = client.get_flight_info(fl.FlightDescriptor.for_path("empty"))
    assert found.total_records == 9
    assert json.loads(found.app_metadata)["files"] == 6
    assert raw_table(client, "empty").equals(want)
    for world in (1, 2, 4, 9, 11):
        batches = read(client, "empty", plan("id"), batch_size=2, world_size=world, with_row_ids=True)
        assert column(batches).tolist() == column(batches, "__row_id").tolist() == list(range(9))
    assert column(read(client, "empty", plan("id", filter="half > 1"))).tolist() == list(range(3, 9))


def test_table_without_rows_is_served(client: fl.FlightClient):
    got = raw_table(client, "onlyempty")
    assert got.num_rows == 0
    assert got.schema.equals(numbers(1).schema)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", NAMES)
def test_any_column_name_works_everywhere(client: fl.FlightClient, root: Path, name: str):
    want = pq.read_table(root / "names/a.parquet")[name].to_numpy()
    requested = plan(
        name,
        "double it",
        filter=f"{quoted(name)} % 2 = 1",
        derive=[{"name": "double it", "expr": f"{quoted(name)} * 2"}],
    )
    (batch,) = read(client, "names", requested)
    kept = want[want % 2 == 1]
    assert np.array_equal(batch["out"].to_numpy_ndarray(), np.stack([kept, kept * 2], axis=1))
    # As the name of an output and of a derived column, passed through, and fitted.
    as_stored = {"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]}
    (batch,) = read(client, "names", {"outputs": [as_stored]})
    assert np.array_equal(batch[name].to_numpy(), want)
    derived = {"derive": [{"name": f"new {name}", "expr": quoted(name)}], **plan(f"new {name}")}
    assert np.array_equal(column(read(client, "names", derived)), want)
    learned = {"outputs": [{"name": "out", "parts": [{"columns": [name], "ops": [{"standardize": {}}]}]}]}
    fitted = fit(client, "names", learned)[-1]["result"]["plan"]
    standardize = fitted["outputs"][0]["parts"][0]["ops"][0]["standardize"]
    assert standardize["mean"] == pytest.approx(want.mean())


def test_names_that_differ_in_case_alone_are_two_columns(client: fl.FlightClient, root: Path):
    table = pq.read_table(root / "names/a.parquet")
    for text, name in (('"Mixed" >= 0', "Mixed"), ('"mixed" >= 0', "mixed"), ("mixed >= 0", "mixed")):
        got = read(client, "names", plan("Mixed", "mixed", filter=text))
        assert len(got) == 1, name
        assert np.array_equal(got[0]["out"].to_numpy_ndarray()[:, 0], table["Mixed"].to_numpy())
    got = read(client, "names", plan("mixed", filter='"Mixed" = 5003'))
    assert column(got).tolist() == [6003]


def test_raw_table_keeps_the_files_column_names(client: fl.FlightClient, root: Path):
    got = raw_table(client, "names")
    assert tuple(got.column_names) == NAMES
    assert got.equals(pq.read_table(root / "names/a.parquet"))
    assert pc.sum(got["日本"]).as_py() == sum(range(100)) + 100_000 * NAMES.index("日本")
