"""Extension types are kept, whether the file declares them in Arrow's schema or in Parquet's own types."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.parquet.surgery import SchemaElement, dissect
from harness.parquet.thrift_compact import I32
from harness.serving import Serve, plan_of, raw_table, read, stored

ROWS = 50


def extended(kind: Any, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def table() -> pa.Table:
    ids = extended(pa.uuid(), [uuid.UUID(int=i).bytes for i in range(ROWS)])
    json = extended(pa.json_(), [None if i % 7 == 3 else f'{{"a": {i}}}' for i in range(ROWS)])
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int64()),
            "uuid": ids,
            "json": json,
            "bool8": extended(pa.bool8(), [i % 2 for i in range(ROWS)]),
            "tensor": extended(pa.fixed_shape_tensor(pa.float32(), [2, 2]), [[i, 1, 2, 3] for i in range(ROWS)]),
            "opaque": extended(pa.opaque(pa.int32(), "t", "vendor"), list(range(ROWS))),
            "list": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), ids),
            "struct": pa.StructArray.from_arrays([ids, json], names=["id", "json"]),
        }
    )


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("store_schema", [True, False])
def test_columns_have_the_types_that_pyarrow_reads(tmp_path: Path, serve: Serve, store_schema: bool, dictionary: bool):
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, store_schema=store_schema, use_dictionary=dictionary, row_group_size=20)
    want = pq.read_table(tmp_path / "a.parquet")
    assert want["uuid"].type == pa.uuid()
    with fl.connect(serve({"t": tmp_path}).url) as client:
        for got in (raw_table(client, "t"), read(client, "t", plan_of(stored(*want.column_names)))):
            assert got.schema.types == want.schema.types
            for name in want.column_names:
                assert got[name].combine_chunks().equals(want[name].combine_chunks()), name


def test_renamed_output_keeps_the_type_and_derived_column_has_none(tmp_path: Path, serve: Serve):
    pq.write_table(table(), tmp_path / "a.parquet", store_schema=False)
    renamed = {"name": "key", "dtype": "AS_STORED", "parts": [{"columns": ["uuid"]}]}
    plan = plan_of(
        [renamed, *stored("text")],
        derive=[{"name": "text", "expr": "upper(json)"}],
        filter="""json <> '{"a": 1}' AND uuid IS NOT NULL""",
    )
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = read(client, "t", plan)
    assert got.schema.types == [pa.uuid(), pa.string()]
    assert got["text"].to_pylist()[:2] == ['{"A": 0}', '{"A": 2}']


def test_duckdbs_uuids_and_json(tmp_path: Path, serve: Serve):
    duckdb.sql(
        f"""COPY (SELECT uuid() AS uuid, ('{{"a": ' || i || '}}')::JSON AS json, [uuid()] AS list,
            {{'id': uuid()}} AS struct FROM range(100) t(i)) TO '{tmp_path}/a.parquet'"""
    )
    want = pq.read_table(tmp_path / "a.parquet")
    assert want["uuid"].type == pa.uuid()
    with fl.connect(serve({"t": tmp_path}).url) as client:
        for got in (raw_table(client, "t"), read(client, "t", plan_of(stored(*want.column_names)))):
            assert got.schema.types == want.schema.types
            assert got.to_pylist() == want.to_pylist()


def test_json_of_writers_from_before_logical_types(tmp_path: Path, serve: Serve):
    file = dissect(pa.table({"json": ['{"a": 1}', None]}), store_schema=False)
    element = file.element("json")
    element.remove(SchemaElement.LOGICAL)
    element.add(SchemaElement.CONVERTED, I32, 19)
    (tmp_path / "a.parquet").write_bytes(file.build())
    want = pq.read_table(tmp_path / "a.parquet")
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = raw_table(client, "t")
    assert got.schema.types == want.schema.types == [pa.json_()]
    assert got.equals(want)


def test_files_with_and_without_an_arrow_schema_are_one_dataset(tmp_path: Path, serve: Serve):
    data = table().select(["n", "uuid", "json", "list", "struct"])
    pq.write_table(data, tmp_path / "a.parquet")
    pq.write_table(data, tmp_path / "b.parquet", store_schema=False)
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = raw_table(client, "t")
    assert got.schema.types == data.schema.types
    assert got.to_pylist() == data.to_pylist() * 2
