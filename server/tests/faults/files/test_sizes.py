"""One row group of ten million rows, and a hundred thousand of two: served within the memory limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.damaged_files import MEMORY_LIMIT_BYTES, Patient, as_stored, ended, options, through

ROWS = 10_000_000
GROUPS = 100_000
# What a file's row groups are counted with has 16 bits, sign included: a file of more is refused, several are not.
GROUPS_A_FILE_MAX = 2**15 - 1

Ids = npt.NDArray[np.int64]


def write(path: Path, start: int, rows: int, group_rows: int) -> None:
    ids = np.arange(start, start + rows, dtype=np.int32)
    pq.write_table(pa.table({"id": ids}), path, row_group_size=group_rows, use_dictionary=False, compression="none")


@pytest.fixture
def wide(patient: Patient) -> Patient:
    """One row group of 40 MB."""
    write(patient.root / "ill/a.parquet", 0, ROWS, ROWS)
    return patient


def ids(client: fl.FlightClient, plan: dict[str, Any], **request: Any) -> Iterator[Ids]:
    """A batch after the other, so that this side holds one at a time."""
    command = json.dumps({"dataset": "ill", "plan": plan, "batch_size": 65_536, **request}).encode()
    found = client.get_flight_info(fl.FlightDescriptor.for_command(command), options())
    for endpoint in found.endpoints:
        for chunk in client.do_get(endpoint.ticket, options()):
            yield chunk.data["out"].to_numpy().astype(np.int64)


def check(batches: Iterator[Ids], rows: int, *, in_order: bool) -> None:
    """Every id below `rows` once; in order if `in_order`, otherwise well shuffled."""
    seen = np.zeros(rows, np.uint8)
    next_id, neighbours = 0, 0
    for batch in batches:
        if in_order:
            assert np.array_equal(batch, np.arange(next_id, next_id + len(batch)))
            next_id += len(batch)
        neighbours += int((np.diff(batch) == 1).sum())
        np.add.at(seen, batch, 1)
    assert seen.min() == seen.max() == 1
    assert in_order or neighbours < rows // 10


def test_one_row_group_of_ten_million_rows_in_file_order(wide: Patient):
    with wide.aftermath() as client:
        check(ids(client, through("id", dtype="INT32")), ROWS, in_order=True)


def test_one_row_group_of_ten_million_rows_shuffled(wide: Patient):
    with wide.aftermath() as client:
        check(ids(client, through("id", dtype="INT32"), shuffle=True, seed=5), ROWS, in_order=False)


def test_one_row_group_of_ten_million_rows_as_stored(wide: Patient):
    with wide.aftermath() as client:
        found = client.get_flight_info(fl.FlightDescriptor.for_path("ill"), options())
        assert found.total_records == ROWS
        batches = (chunk.data["id"].to_numpy() for chunk in client.do_get(found.endpoints[0].ticket, options()))
        check(batches, ROWS, in_order=True)


# An unoptimized server takes most of a millisecond a row group: these tests read some of them, of a table of all.
RANKS = 32


@pytest.fixture(scope="module")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two rows a row group, as many of them a file as Parquet's own numbering of them allows."""
    folder = tmp_path_factory.mktemp("tiny")
    files = -(-GROUPS // GROUPS_A_FILE_MAX)
    rows = 2 * GROUPS // files
    for file in range(files):
        write(folder / f"{file}.parquet", file * rows, rows, 2)
    return sorted(folder.iterdir())


@pytest.fixture
def tiny(patient: Patient, tiny_files: list[Path]) -> Patient:
    for file in tiny_files:
        (patient.root / "ill" / file.name).hardlink_to(file)
    return patient


def of_rank(client: fl.FlightClient, rank: int, **request: Any) -> Ids:
    command = {"dataset": "ill", "plan": through("id", dtype="INT32"), "world_size": RANKS, **request}
    found = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(command).encode()), options())
    assert found.total_records == 2 * GROUPS
    chunks = client.do_get(found.endpoints[rank].ticket, options())
    return np.concatenate([chunk.data["out"].to_numpy() for chunk in chunks]).astype(np.int64)


@pytest.mark.parametrize("rank", [0, RANKS // 2, RANKS - 1])
def test_a_hundred_thousand_row_groups_in_file_order(tiny: Patient, rank: int):
    with tiny.aftermath() as client:
        start, end = (2 * GROUPS * r // RANKS for r in (rank, rank + 1))
        assert np.array_equal(of_rank(client, rank), np.arange(start, end))


def test_a_hundred_thousand_row_groups_shuffled(tiny: Patient):
    with tiny.aftermath() as client:
        first, second = (of_rank(client, rank, shuffle=True, seed=5, lanes=RANKS) for rank in (0, 1))
        both = np.concatenate([first, second])
        assert len(first) == len(second) == 2 * GROUPS // RANKS
        assert len(np.unique(both)) == len(both)
        assert both.min() >= 0
        assert both.max() < 2 * GROUPS
        # Row groups are spread over the whole file, and so is their mean.
        assert abs(float(both.mean()) / GROUPS - 1) < 0.1
        assert (np.diff(first) == 1).mean() < 0.1


def test_a_hundred_thousand_row_groups_with_a_selective_filter(tiny: Patient):
    with tiny.aftermath() as client:
        kept = list(ids(client, {**as_stored("id"), "filter": "id >= 123456 AND id < 124000 AND id % 10 = 7"}))
        assert np.concatenate(kept).tolist() == list(range(123457, 124000, 10))


def in_one_file(patient: Patient) -> None:
    write(patient.root / "ill/a.parquet", 0, 2 * GROUPS, 2)


def test_a_hundred_thousand_row_groups_in_one_file_are_served_or_rejected_by_name(patient: Patient):
    in_one_file(patient)
    with patient.aftermath() as client:
        found, text = ended(lambda: of_rank(client, 1))
        assert found in ("OK", "DATA_LOSS", "FAILED_PRECONDITION"), f"{found}: {text}"
        assert found == "OK" or "a.parquet" in text


def test_a_row_larger_than_the_budget(patient: Patient):
    text = pa.array(["x" * (MEMORY_LIMIT_BYTES + 1)], pa.large_string())
    pq.write_table(pa.table({"text": text}), patient.root / "ill/a.parquet", compression="zstd", use_dictionary=False)
    with patient.aftermath() as client:
        found, text = ended(lambda: list(ids(client, as_stored("text"))))
        assert found == "RESOURCE_EXHAUSTED", f"{found}: {text[:300]}"
        assert "--" in text
