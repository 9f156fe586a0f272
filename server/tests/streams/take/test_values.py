"""The rows of a take are, to the byte, those of the streams of the same plan, over every kind of dataset and plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.delta import add, commit, field, inline_vector, start
from harness.epochs import FILES, OUTPUTS, made_table, write
from harness.serving import Serve, Server, fit
from harness.takes import act, check_takes, every_row, one

HASHED = [{"hash_bucket": {"buckets": 97}}]
MORE_OUTPUTS: list[dict[str, Any]] = [
    {"name": "double", "dtype": "FLOAT64", "parts": [{"columns": ["x", "twice"]}]},
    {"name": "brain", "dtype": "BFLOAT16", "parts": [{"columns": ["x"]}]},
    {
        "name": "bucket",
        "parts": [
            {"columns": ["text", "key"], "ops": [{"hash_bucket": {"buckets": 97}}, {"fill_null": {"value": 97}}]}
        ],
    },
    {
        "name": "small",
        "parts": [{"columns": ["number"], "ops": [{"fill_null": {"value": 3}}, {"positive_mod": {"modulus": 9}}]}],
        "dtype": "UINT8",
    },
    {
        "name": "ragged",
        "dtype": "INT32",
        "parts": [{"columns": ["list"], "ops": [{"fill_null": {"value": -7}}]}],
    },
    {"name": "twice", "dtype": "AS_STORED", "parts": [{"columns": ["twice"]}]},
    {"name": "own", "dtype": "AS_STORED", "parts": [{"columns": ["own"]}]},
]
DERIVED = [{"name": "twice", "expr": "id * 2"}, {"name": "own", "expr": "__row_id + 1"}]
PLAN = {"outputs": OUTPUTS + MORE_OUTPUTS, "derive": DERIVED}
# The last one reads every column to decide.
FILTERS = ("", "id % 2 = 1", "id % 29 = 5", "text IS NOT NULL", "__row_id > 60 AND kind <> 'bus'")
ORDERS: tuple[dict[str, Any], ...] = (
    {"batch_size": 190},
    {"shuffle": True, "seed": 3, "world_size": 2, "batch_size": 100, "lanes": 4, "remainder": "PAD"},
)
DATASETS = ("uneven", "single", "ones", "arrow", "deleted", "partitions", "adapted")


def write_arrow(folder: Path) -> None:
    folder.mkdir()
    table = made_table(700).combine_chunks()
    for index, codec in enumerate((None, "lz4", "zstd")):
        options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
        with pa.ipc.new_file(folder / f"{index}.arrow", table.schema, options=options) as file:
            for batch in table.slice(index * 200, 200 + 100 * (index == 2)).to_batches(max_chunksize=90):
                file.write_batch(batch)


def write_deleted(folder: Path) -> None:
    """A lake table of which half of the rows are deleted, in runs and one by one."""
    write(folder, FILES["plain"])
    kinds = {"id": "long", "x": "double", "gappy": "double", "number": "short", "flag": "boolean", "day": "date"}
    fields = [field(name, kinds.get(name, "string")) for name in made_table(1).column_names if name not in NESTED]
    fields += [field(name, kind) for name, kind in NESTED.items()]
    files = sorted(folder.iterdir())
    adds = []
    for path in files:
        rows = pq.ParquetFile(path).metadata.num_rows
        gone = [row for row in range(rows) if row < rows // 5 or row % 3 == 0]
        adds.append(add(folder, path.name, vector=inline_vector(gone)))
    configuration = {"delta.enableDeletionVectors": "true"}
    commit(folder, 0, *start(fields, features=["deletionVectors"], configuration=configuration), *adds)


NESTED = {
    "blob": "binary",
    "list": {"type": "array", "elementType": "byte", "containsNull": True},
    "struct": {"type": "struct", "fields": [field("a", "integer")]},
}


def write_partitions(folder: Path) -> None:
    """The column `kind` is only in the names of the folders."""
    table = made_table(400)
    for kind in ("bus", "car", "train", "zeppelin"):
        rows = table.filter(pc.equal(table["kind"], kind)).drop_columns("kind")
        (folder / f"kind={kind}").mkdir(parents=True)
        pq.write_table(rows, folder / f"kind={kind}/a.parquet", row_group_size=37)


def write_adapted(folder: Path) -> None:
    """Files of narrower types and fewer columns, in another order."""
    folder.mkdir()
    table = made_table(300)
    narrow = table.slice(0, 150)
    narrow = narrow.set_column(0, "id", narrow["id"].cast(pa.int16())).drop_columns(["text", "struct"])
    pq.write_table(narrow.select(narrow.column_names[::-1]), folder / "a.parquet", row_group_size=40)
    pq.write_table(table.slice(150), folder / "b.parquet", row_group_size=70, data_page_size=100)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("takes")
    for name in ("uneven", "single", "ones"):
        write(root / name, FILES[name])
    write_arrow(root / "arrow")
    write_deleted(root / "deleted")
    write_partitions(root / "partitions")
    write_adapted(root / "adapted")
    datasets: dict[str, Path | str] = {name: root / name for name in DATASETS}
    return serve({**datasets, "deleted": f"delta+{root / 'deleted'}"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive, "".join(server.log)


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("name", DATASETS)
def test_takes_are_the_batches_of_streams(client: fl.FlightClient, name: str, where: str) -> None:
    plan = {**PLAN, "filter": where} if where else PLAN
    counts = {check_takes(client, {"dataset": name, "plan": plan, **order}) for order in ORDERS}
    assert max(counts) > 0 or where


@pytest.mark.parametrize("name", DATASETS)
def test_random_rows_are_those_of_the_whole_stream(client: fl.FlightClient, name: str) -> None:
    ((_, whole),) = every_row(client, {"dataset": name, "plan": PLAN, "batch_size": 1 << 20})
    random = np.random.default_rng(len(name))
    for count in (1, 2, 40, 900):
        ids = random.integers(0, whole.num_rows, count).tolist()
        request = {"dataset": name, "plan": PLAN, "row_ids": ids, "with_row_ids": True}
        rows = one(client, request)
        assert rows.to_pylist() == whole.take(pa.array(ids)).to_pylist()
        assert [batch.to_pylist() for batch in act(client, request)] == [rows.to_pylist()]
        parts = act(client, {**request, "batch_size": 17})
        assert [batch.num_rows for batch in parts] == [17] * (count // 17) + [count % 17] * (count % 17 > 0)
        assert pa.Table.from_batches(parts).to_pylist() == rows.to_pylist()


def test_a_filter_that_reads_every_column(client: fl.FlightClient) -> None:
    plan = {"outputs": [{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}], "filter": "id % 3 = 1"}
    for order in ORDERS:
        assert check_takes(client, {"dataset": "uneven", "plan": plan, **order}) > 100


def test_dictionaries_have_the_values_of_the_rows_alone(client: fl.FlightClient) -> None:
    plan = {"outputs": [{"name": "key", "dtype": "AS_STORED", "parts": [{"columns": ["key"]}]}]}
    ids = [1900, 4, 15, 4, 1901]
    rows = one(client, {"dataset": "single", "plan": plan, "row_ids": ids})
    assert rows["key"].to_pylist() == [f"key {id_ % 11}" for id_ in ids]
    assert rows["key"].dictionary.to_pylist() == ["key 8", "key 4", "key 9"]


def test_folds_of_target_means_and_joins(tmp_path: Path, serve: Serve) -> None:
    """Fitted parameters, folds by row id, joined columns, and lookups."""
    for name in ("rows", "kinds"):
        (tmp_path / name).mkdir()
    pq.write_table(made_table(900), tmp_path / "rows/a.parquet", row_group_size=111)
    kinds = pa.table({"kind": ["bus", "car", "train"], "wheels": pa.array([6, 4, None], pa.int64())})
    pq.write_table(kinds, tmp_path / "kinds/a.parquet")
    lookup = {"lookup": {"table": "kinds", "key": "kind", "columns": ["wheels"]}}
    mean = {"target_mean": {"label": "flag", "folds": 5}}
    plan = {
        "join": [{"table": "kinds", "on": "kind", "columns": ["wheels"]}],
        "derive": [{"name": "axles", "expr": "wheels / 2"}],
        "filter": "wheels IS NOT NULL OR id % 2 = 0",
        "outputs": [
            {"name": "mean", "dtype": "FLOAT64", "parts": [{"columns": ["kind", "key"], "ops": [mean]}]},
            {"name": "looked", "parts": [{"columns": ["kind"], "ops": [lookup, {"fill_null": {"value": -1}}]}]},
            {"name": "wheels", "dtype": "AS_STORED", "parts": [{"columns": ["wheels"]}]},
            {"name": "axles", "dtype": "AS_STORED", "parts": [{"columns": ["axles"]}]},
            {"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]},
        ],
    }
    with fl.connect(serve({name: tmp_path / name for name in ("rows", "kinds")}).url) as client:
        plan_id = fit(client, "rows", plan)[-1]["result"]["plan_id"]
        for order in ORDERS:
            assert check_takes(client, {"dataset": "rows", "plan_id": plan_id, **order}) > 600
