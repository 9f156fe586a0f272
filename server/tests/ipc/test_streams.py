"""Datasets of Arrow IPC files stream like Parquet files with the same rows: a record batch is a row group."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.epochs import (
    FILTERS,
    REMAINDERS,
    Data,
    check,
    made_table,
    make_request,
    random_request,
    read,
    read_ids,
)
from harness.serving import Serve, Server, fit, info, plan_of

# Per dataset, the files: the rows of each record batch, and the codec.
FILES: dict[str, list[tuple[list[int], str | None]]] = {
    "uneven": [([1, 0, 53, 7], None), ([0], "zstd"), ([101, 3, 0, 60], "lz4"), ([], None), ([97], "zstd")],
    "single": [([1999], None)],
    "small": [([400, 87], "lz4"), ([300], None)],
}


def write(folder: Path, files: list[tuple[list[int], str | None]]) -> Data:
    """Write both formats, and return what they have."""
    sizes = [sum(groups) for groups, _ in files]
    table, start = made_table(sum(sizes)).combine_chunks(), 0
    (whole,) = table.to_batches()
    for kind in ("arrow", "parquet"):
        (folder / kind).mkdir(parents=True)
    for index, (groups, codec) in enumerate(files):
        options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
        arrow = pa.ipc.new_file(folder / f"arrow/{index}.arrow", table.schema, options=options)
        parquet = pq.ParquetWriter(folder / f"parquet/{index}.parquet", table.schema)
        with arrow, parquet:
            for rows in groups:
                piece = table.slice(start, rows)
                # Every batch has the dictionaries of the whole table.
                arrow.write_batch(whole.slice(start, rows))
                parquet.write_table(piece, row_group_size=max(1, rows))
                start += rows
    groups = tuple(rows for sizes, _ in files for rows in sizes)
    return Data(f"{folder.name} arrow", groups, table)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Data]]:
    root = tmp_path_factory.mktemp("arrow")
    return {name: (root / name, write(root / name, files)) for name, files in FILES.items()}


@pytest.fixture(scope="module")
def server(datasets: dict[str, tuple[Path, Data]], serve: Serve) -> Server:
    named = {f"{name} {kind}": root / kind for name, (root, _) in datasets.items() for kind in ("arrow", "parquet")}
    return serve(named)


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_random_epochs_are_exact(client: fl.FlightClient, datasets: Any, name: str, remainder: str):
    data = datasets[name][1]
    for number in range(8):
        check(client, data, random_request(data, remainder, number))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", FILTERS)
def test_streams_have_the_batches_of_parquet(client: fl.FlightClient, name: str, where: str):
    for shuffle in (False, True):
        request = make_request("", where=where, world_size=2, batch_size=50, shuffle=shuffle, seed=3)
        streams = [
            [
                [batch.to_pylist() for _, batch in read(client, end.ticket)]
                for end in info(client, {**request, "dataset": f"{name} {kind}"}).endpoints
            ]
            for kind in ("arrow", "parquet")
        ]
        # Dictionaries may be in another order: values are compared.
        assert streams[0] == streams[1]


def test_fits_are_those_of_parquet(client: fl.FlightClient):
    ops = [{"fill_null": {"text": "none"}}, {"vocab": {}}]
    plan = plan_of(
        [
            {"name": "text", "dtype": "INT64", "parts": [{"columns": ["text"], "ops": ops}]},
            {"name": "key", "dtype": "INT64", "parts": [{"columns": ["key"], "ops": ops}]},
            {"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]},
        ]
    )
    plans = [fit(client, f"uneven {kind}", plan)[-1]["result"]["plan"] for kind in ("arrow", "parquet")]
    assert plans[0]["outputs"] == plans[1]["outputs"]


def test_replay_names_record_batches(client: fl.FlightClient, datasets: Any):
    data = datasets["small"][1]
    request = make_request("small arrow", batch_size=64, seed=5)
    body = json.dumps({"stream": request, "rank": 0, "step": 2}).encode()
    answers = [json.loads(answer.body.to_pybytes()) for answer in client.do_action(fl.Action("replay", body))]
    rows = [row for answer in answers for row in answer.get("rows", [])]
    ids = read_ids(client, request)[0][2]
    assert [row["row_id"] for row in rows] == ids
    starts = {("0.arrow", 0): 0, ("0.arrow", 1): 400, ("1.arrow", 0): 487}
    for row in rows:
        place = (Path(row["file"]).name, row["row_group"])
        assert data.table["id"][starts[place] + row["row"]].as_py() == row["row_id"]


def test_a_column_is_read_without_the_others(client: fl.FlightClient):
    plan = plan_of([{"name": "x", "parts": [{"columns": ["x"]}]}])
    body = json.dumps({"dataset": "single arrow", "plan": plan}).encode()
    explained = json.loads(next(iter(client.do_action(fl.Action("explain", body)))).body.to_pybytes())
    # Doubles, and nothing else.
    assert 1999 * 8 <= explained["stored_bytes"] <= 1999 * 8 + 64
