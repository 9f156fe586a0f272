"""Delete files and deletion vectors: deleted rows are at no address, in any order, at any world size."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable, Table

import forebay as fb
from harness.epoch_order import Epoch, passing_rows
from harness.iceberg import (
    catalog,
    commit,
    deletion_vectors,
    expected,
    opened,
    path_of,
    plain,
    position_deletes,
)
from harness.refusals import check, refusal
from harness.serving import Serve, info, plan_of, raw_table, read, stored

FILE_ROWS, GROUP_ROWS, FILES = 500, 100, 3


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Files of several row groups, with columns of every decoder."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("text", pa.string()), ("list", pa.list_(pa.int32()))])
    limit = {"write.parquet.row-group-limit": str(GROUP_ROWS)}
    made = catalog(tmp_path).create_table("lake.t", schema=schema, properties=limit)
    for start in range(0, FILES * FILE_ROWS, FILE_ROWS):
        ids = range(start, start + FILE_ROWS)
        columns = [[*ids], [n / 8 for n in ids], [f"text {n}" for n in ids], [[n] * (n % 3) for n in ids]]
        made.append(pa.table(columns, schema=schema))
    return made


def urls(table: Table | StaticTable) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def gone(index: int) -> list[int]:
    """Every kind of gap: long runs at both ends, a whole row group, and single rows."""
    random = np.random.default_rng(index)
    if index == 0:
        return [*range(40), *range(100, 200), *range(490, 500)]
    return sorted(random.choice(FILE_ROWS, FILE_ROWS // 3, replace=False).tolist())


def kept_groups(files: list[str], deleted: dict[str, set[int]]) -> list[int]:
    """The rows that are left of each row group, in the order of the files."""
    counts = list[int]()
    for url in files:
        metadata, start = pq.read_metadata(path_of(url)), 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            counts.append(sum(row not in deleted.get(url, ()) for row in range(start, start + rows)))
            start += rows
    return counts


@pytest.mark.parametrize("form", ["position-deletes", "deletion-vectors"])
def test_deleted_rows_are_at_no_address(table: Table, form: str, serve: Serve):
    files = urls(table)
    rows = {files[0]: gone(0), files[2]: gone(2)}
    if form == "position-deletes":
        early = commit(table, [position_deletes(table, "0.parquet", {files[0]: rows[files[0]][:60]})])
        rest = {files[0]: rows[files[0]][50:], files[2]: rows[files[2]]}
        metadata = commit(opened(early), [position_deletes(table, "1.parquet", rest)])
    else:
        metadata = commit(table, deletion_vectors(table, "vectors.puffin", rows), version=3)
    want = expected(opened(metadata))
    groups = kept_groups(files, {url: set(of_file) for url, of_file in rows.items()})
    assert sum(groups) == want.num_rows < FILES * FILE_ROWS
    assert len(groups) == FILES * FILE_ROWS // GROUP_ROWS
    ids = want["id"].to_numpy()
    server = serve({"t": f"iceberg+{metadata}"})
    with fl.connect(server.url) as client:
        assert plain(raw_table(client, "t")).equals(want)
        filtered = read(client, "t", plan_of(stored("id"), filter="id % 7 = 3"))["id"].to_pylist()
        assert filtered == [n for n in ids.tolist() if n % 7 == 3]
        fitted = fb.connect(server.url).fit("t", fb.Plan(outputs={"x": fb.cols("x").standardize()}), progress=False)
        [output] = fitted.plan.to_dict()["outputs"]
        assert output["parts"][0]["ops"][0]["standardize"]["mean"] == pytest.approx(np.mean(ids / 8))
        for order, world_size, where in itertools.product(
            ({}, {"shuffle": True, "seed": 3, "lanes": 6, "window_rows": 64}), (1, 3), ("", "id % 7 = 3")
        ):
            plan = plan_of(stored("id", "text", "list"), **({"filter": where} if where else {}))
            request: dict[str, Any] = {
                "dataset": "t",
                "plan": plan,
                "batch_size": 17,
                "world_size": world_size,
                **order,
            }
            passes = ids % 7 == 3 if where else ids >= 0
            fields = {name: value for name, value in request.items() if name not in ("dataset", "plan")}
            epoch = Epoch(passing_rows(groups, passes), **fields)
            found = info(client, {**request, "with_row_ids": True})
            for rank, endpoint in enumerate(found.endpoints):
                batches = [chunk.data for chunk in client.do_get(endpoint.ticket)]
                places = [batch["__row_id"].to_pylist() for batch in batches]
                assert places == epoch.ids(rank), (order, world_size, where, rank)
                for batch, place in zip(batches, places, strict=True):
                    of_place = want.take(place)
                    assert batch["id"].to_pylist() == of_place["id"].to_pylist()
                    assert batch["text"].to_pylist() == of_place["text"].to_pylist()
                    assert batch["list"].to_pylist() == of_place["list"].to_pylist()


def test_a_stream_resumes_where_it_stopped(table: Table, serve: Serve):
    files = urls(table)
    metadata = commit(table, [position_deletes(table, "d.parquet", {url: gone(1) for url in files})])
    request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 23, "shuffle": True, "seed": 8}
    url = f"iceberg+{metadata}"
    with fl.connect(serve({"t": url}).url) as client:
        ticket = info(client, request).endpoints[0].ticket
        ids = client.do_get(ticket).read_all()["id"].to_pylist()
    assert sorted(ids) == sorted(expected(opened(metadata))["id"].to_pylist())
    # Another server, from the fifth batch.
    with fl.connect(serve({"t": url}).url) as client:
        found = info(client, {**request, "start_position": 5 * 23})
        rest = client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist()
    assert rest == ids[5 * 23 :]


def test_deletes_do_not_apply_to_later_files(table: Table, serve: Serve):
    """Sequence numbers: a file that was added after the delete file keeps its rows."""
    files = urls(table)
    early = opened(commit(table, [position_deletes(table, "d.parquet", {files[0]: [0], files[1]: [1]})]))
    metadata = json.loads(path_of(early.metadata_location).read_text())
    assert metadata["last-sequence-number"] == FILES + 1
    with fl.connect(serve({"t": f"iceberg+{early.metadata_location}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(early))
        assert raw_table(client, "t").num_rows == FILES * FILE_ROWS - 2


def test_deletes_that_are_not_understood_are_refused(table: Table, serve: Serve):
    files = urls(table)
    beyond = position_deletes(table, "beyond.parquet", {files[0]: [FILE_ROWS]})
    damaged = deletion_vectors(table, "damaged.puffin", {files[0]: [1, 2]})
    path = path_of(damaged[0].file_path)
    body = bytearray(path.read_bytes())
    body[30] ^= 1
    path.write_bytes(body)
    missing = position_deletes(table, "missing.parquet", {files[0]: [1]})
    path_of(missing.file_path).unlink()
    cases = {
        "beyond": (commit(table, [beyond]), "DATA_LOSS", ["beyond.parquet", f"row {FILE_ROWS} of", "500 rows"]),
        "damaged": (commit(table, damaged, version=3), "DATA_LOSS", ["damaged.puffin", "checksum"]),
        "missing": (commit(table, [missing]), "ABORTED", ["missing.parquet", "there is no"]),
    }
    server = serve({name: f"iceberg+{metadata}" for name, (metadata, _, _) in cases.items()})
    with fl.connect(server.url) as client:
        for name, (_, code, words) in cases.items():
            check(refusal(lambda name=name: raw_table(client, name)), code, *words)
