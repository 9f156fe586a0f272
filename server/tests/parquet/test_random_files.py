"""Random files of pyarrow, DuckDB and Polars are streamed as pyarrow reads them, bit for bit.

`SCAN_FUZZ_SEEDS` seeds from `SCAN_FUZZ_FIRST` on are searched; a failure reports its seed.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.parquet.random_files import RandomFiles, draw_files
from harness.serving import Server, info, raw_table, stored

SEEDS = int(os.environ.get("SCAN_FUZZ_SEEDS") or 24)
FIRST = int(os.environ.get("SCAN_FUZZ_FIRST") or 0)

# Seeds of one server.
GROUP = 8

HASH = [{"fill_null": {"text": "none"}}, {"hash_bucket": {"buckets": 1_000_000}}]


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, GROUP))
def test_random_files_stream_as_pyarrow_reads_them(tmp_path: Path, first: int):
    found = {f"seed{seed}": draw_files(seed) for seed in range(first, min(first + GROUP, FIRST + SEEDS))}
    for name, files in found.items():
        files.write(tmp_path / name)
        reference(tmp_path / name, tmp_path / f"{name}-reference")
    server = Server({folder.name: folder for folder in tmp_path.iterdir()})
    failures: list[str] = []
    try:
        with fl.connect(server.url) as client:
            for name, files in found.items():
                try:
                    check(client, name, files, pq.read_table(tmp_path / f"{name}-reference"))
                except (AssertionError, pytest.fail.Exception, pa.ArrowException) as error:
                    failures.append(f"{files!r}\n{files.table.schema}\n{type(error).__name__}: {error}")
    finally:
        server.stop()
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def reference(folder: Path, into: Path) -> None:
    """The rows as pyarrow reads them, without dictionaries or compression, in one file."""
    table = pa.concat_tables(pq.read_table(path) for path in sorted(folder.iterdir()))
    into.mkdir()
    pq.write_table(table, into / "a.parquet", use_dictionary=False, compression="none")


def check(client: fl.FlightClient, name: str, files: RandomFiles, want: pa.Table) -> None:
    random = Random(files.seed)
    same(raw_table(client, name), want, "raw table")
    request = {
        "dataset": name,
        "batch_size": random.choice([64, 1000, 8192]) if want.num_rows < 10_000 else 8192,
        "with_row_ids": True,
    }
    plan: dict[str, Any] = {"outputs": stored(*want.column_names)}
    if want.num_rows == 0:
        with pytest.raises(pa.ArrowException, match="EMPTY_DATASET"):
            read(client, {**request, "plan": plan})
        return
    same(read(client, {**request, "plan": plan}), want, "file order")
    same(read(client, {**request, "plan": plan, "shuffle": True, "seed": files.seed}), want, "shuffled")
    column = random.choice(want.column_names)
    plan["filter"] = f"id % 3 = 1 AND {column} IS NOT NULL"
    passing = want.filter(
        pc.and_(
            pc.equal(pc.subtract(want["id"], pc.multiply(pc.divide(want["id"], 3), 3)), 1), pc.is_valid(want[column])
        )
    )
    for order in ({}, {"shuffle": True, "seed": files.seed}):
        same(read(client, {**request, "plan": plan, **order}), passing, f"filter {plan['filter']} {order}")
    outputs = [features for field in want.schema if (features := feature(field))]
    of_reference = {"dataset": f"{name}-reference", "batch_size": 8192, "with_row_ids": True}
    computed = read(client, {**of_reference, "plan": {"outputs": outputs}})
    for order in ({}, {"shuffle": True, "seed": files.seed}):
        got = read(client, {**request, "plan": {"outputs": outputs}, **order})
        same(got, computed, f"features {order}")
        for output in outputs:
            exact(got[output["name"]], want[output["name"]], output)


def read(client: fl.FlightClient, request: dict[str, Any]) -> pa.Table:
    """The rows of a stream in the order of the files."""
    found = info(client, request)
    table = client.do_get(found.endpoints[0].ticket).read_all()
    return (
        table.sort_by("__row_id").drop_columns("__row_id") if request.get("shuffle") else table.drop_columns("__row_id")
    )


def feature(field: pa.Field) -> dict[str, Any] | None:
    """An output of a column: its numbers, or the hashes of its values."""
    kind, name = field.type, field.name
    if pa.types.is_floating(kind) and kind.bit_width > 16:
        dtype = "FLOAT32" if kind.bit_width == 32 else "FLOAT64"
        return {"name": name, "dtype": dtype, "parts": [{"columns": [name], "ops": [{"fill_null": {"value": 0.5}}]}]}
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return {"name": name, "dtype": "INT64", "parts": [{"columns": [name], "ops": [{"fill_null": {"integer": 7}}]}]}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {"name": name, "dtype": "INT64", "parts": [{"columns": [name], "ops": HASH}]}
    return None


def exact(got: pa.ChunkedArray, want: pa.ChunkedArray, output: dict[str, Any]) -> None:
    """Checks an output of numbers against the values that pyarrow reads."""
    if output["parts"][0]["ops"] == HASH:
        return
    [value] = output["parts"][0]["ops"][0]["fill_null"].values()
    filled = want.cast(pa.int64()) if pa.types.is_integer(want.type) else want
    filled = filled.fill_null(value)
    assert bits(got).equals(bits(filled)), f"output {output}"


def same(got: pa.Table, want: pa.Table, place: str) -> None:
    assert got.column_names == want.column_names, place
    assert got.num_rows == want.num_rows, place
    for name in want.column_names:
        column = got[name].cast(want[name].type) if got[name].type != want[name].type else got[name]
        column.validate(full=True)
        found, expected = bits(column), bits(want[name])
        if not found.equals(expected):
            pytest.fail(f"{place}: {name}: {difference(found, expected)}", pytrace=False)


def bits(column: pa.ChunkedArray) -> pa.Array:
    """The column, floats as their bits."""
    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        whole = whole.flatten()
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if pa.types.is_floating(whole.type):
        return whole.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[whole.type.bit_width])
    return whole


def difference(found: pa.Array, expected: pa.Array) -> str:
    rows = [row for row in range(len(expected)) if found[row] != expected[row]]
    shown = ", ".join(f"row {row}: {found[row]} instead of {expected[row]}" for row in rows[:3])
    return f"{len(rows)} of {len(expected)} rows differ: {shown}"
