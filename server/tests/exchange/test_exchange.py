"""DoExchange over bare pyarrow: outputs for rows that a client sends equal a stream's, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.exchange import exchange, refused
from harness.serving import Serve, Server, fit, info

ROWS = 20_011
PLAN: dict[str, Any] = {
    "derive": [{"name": "big", "expr": "x > 3"}, {"name": "shout", "expr": "upper(word)"}],
    "outputs": [
        {
            "name": "dense",
            "parts": [
                {"columns": ["x", "gappy", "small"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]},
                {"columns": ["unit"], "ops": [{"log1p": {}}]},
            ],
        },
        {"name": "half", "dtype": "FLOAT16", "parts": [{"columns": ["unit"]}]},
        {"name": "brain", "dtype": "BFLOAT16", "parts": [{"columns": ["x", "unit"]}]},
        {
            "name": "cats",
            "dtype": "INT32",
            "parts": [
                {"columns": ["word", "plain"], "ops": [{"vocab": {}}]},
                {"columns": ["id", "plain"], "ops": [{"fill_null": {}}, {"hash_bucket": {"buckets": 1000}}]},
            ],
        },
        {"name": "hot", "dtype": "UINT8", "parts": [{"columns": ["word"], "ops": [{"vocab": {}}, {"one_hot": {}}]}]},
        {"name": "label", "dtype": "INT64", "parts": [{"columns": ["big"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["plain"]}]},
        {"name": "key", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]},
        {"name": "loud", "dtype": "AS_STORED", "parts": [{"columns": ["shout"]}]},
        {"name": "gaps", "dtype": "AS_STORED", "parts": [{"columns": ["gappy"]}]},
    ],
}
PLAN["outputs"][3]["parts"][1] = {
    "columns": ["id"],
    "ops": [{"fill_null": {"integer": 0}}, {"hash_bucket": {"buckets": 1000}}],
}


def table(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(5)
    x = random.normal(3, 2, rows)
    gaps = random.random(rows)
    words = np.array(["ab", "c", "déf", "", "a longer word than fits into a view"])[random.integers(0, 5, rows)]
    return pa.table(
        {
            "id": pa.array(np.arange(rows), pa.int64()),
            "x": pa.array(x, pa.float64()),
            "gappy": pa.array(x * 10, pa.float64(), mask=gaps < 0.2),
            "small": pa.array(random.integers(-5, 5, rows), pa.int32()),
            "unit": pa.array(random.random(rows), pa.float32()),
            "word": pa.array(words, mask=gaps > 0.9).dictionary_encode(),
            "plain": pa.array(words, pa.string(), mask=gaps > 0.8),
            "unused": pa.array([[1, 2]] * rows),
        }
    )


# Rows of a row group, and all rows: one, a few, more than are decoded at a time, all of them.
SHAPES = {"one": (1, 3), "few": (7, 100), "many": (9000, ROWS), "whole": (ROWS, ROWS)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exchange")
    for name, (group, rows) in SHAPES.items():
        (root / name).mkdir()
        pq.write_table(table(rows), root / name / "a.parquet", row_group_size=group)
    return root


@pytest.fixture(scope="module")
def server(serve: Serve, root: Path) -> Server:
    return serve({name: root / name for name in SHAPES})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive
    assert not any("panic" in line for line in server.log)


@pytest.fixture(scope="module")
def plan_id(server: Server) -> str:
    with fl.connect(server.url) as connected:
        return fit(connected, "whole", PLAN)[-1]["result"]["plan_id"]


def groups(root: Path, name: str) -> list[pa.RecordBatch]:
    """A dataset's row groups as pyarrow reads them."""
    file = pq.ParquetFile(root / name / "a.parquet")
    found = [file.read_row_group(index).combine_chunks().to_batches() for index in range(file.num_row_groups)]
    assert all(len(batches) == 1 for batches in found)
    return [batches[0] for batches in found]


def insides(array: pa.Array) -> list[Any]:
    """Everything that an array is made of, to the byte."""
    if isinstance(array, pa.ExtensionArray):
        return insides(array.storage)
    buffers = [None if buffer is None else buffer.to_pybytes() for buffer in array.buffers()]
    own: list[Any] = [str(array.type), len(array), array.offset, array.null_count, buffers]
    return [*own, insides(array.dictionary)] if pa.types.is_dictionary(array.type) else own


def assert_same(batch: pa.RecordBatch, other: pa.RecordBatch) -> None:
    assert batch.schema.equals(other.schema, check_metadata=True)
    assert batch.num_rows == other.num_rows
    for name in batch.schema.names:
        assert insides(batch[name]) == insides(other[name]), name


def stream(client: fl.FlightClient, dataset: str, batch_size: int, **plan: Any) -> list[pa.RecordBatch]:
    found = info(client, {"dataset": dataset, "batch_size": batch_size, **plan})
    return [chunk.data for chunk in client.do_get(found.endpoints[0].ticket)]


@pytest.mark.parametrize("shape", SHAPES)
def test_exchange_of_raw_rows_equals_the_training_stream_bytes(
    client: fl.FlightClient, root: Path, plan_id: str, shape: str
):
    sent = groups(root, shape)
    streamed = stream(client, shape, SHAPES[shape][0], plan_id=plan_id)
    answers = exchange(client, {"plan_id": plan_id}, sent)
    assert len(answers) == len(streamed) == len(sent)
    for answer, batch in zip(answers, streamed, strict=True):
        assert_same(answer, batch)


def test_filtered_rows_are_omitted_and_a_response_can_be_empty(client: fl.FlightClient, root: Path):
    plan = {**PLAN, "filter": "gappy > 30 AND word IS NOT NULL"}
    fitted = fit(client, "whole", plan)[-1]["result"]
    (streamed,) = stream(client, "whole", ROWS, plan_id=fitted["plan_id"])
    (whole,) = groups(root, "whole")
    assert 0 < streamed.num_rows < whole.num_rows
    none = whole.filter(pa.compute.less(whole["gappy"], 0))
    # An inline plan, too: what a fit returns says everything.
    answers = exchange(client, {"plan": fitted["plan"]}, [whole, none, whole.slice(0, 0), whole])
    assert [answer.num_rows for answer in answers] == [streamed.num_rows, 0, 0, streamed.num_rows]
    assert_same(answers[0], streamed)
    assert_same(answers[3], streamed)


def test_other_encodings_of_the_same_values_give_the_same_numbers(client: fl.FlightClient, root: Path, plan_id: str):
    (batch,) = groups(root, "whole")
    (expected,) = exchange(client, {"plan_id": plan_id}, [batch])
    matrices = [name for name in expected.schema.names if name not in {"text", "key", "loud", "gaps"}]
    plain = {"word": batch["word"].dictionary_decode(), "plain": batch["plain"].dictionary_encode()}
    large = {"word": plain["word"].cast(pa.large_string()), "plain": batch["plain"].cast(pa.large_string())}
    views = {"word": plain["word"].cast(pa.string_view()), "plain": batch["plain"].cast(pa.string_view())}
    narrow = {"id": batch["id"].cast(pa.int32()), "small": batch["small"].cast(pa.int8())}
    for changed in (plain, large, views, narrow):
        arrays = {name: changed.get(name, batch[name]) for name in reversed(batch.schema.names)}
        (answer,) = exchange(client, {"plan_id": plan_id}, [pa.RecordBatch.from_pydict(arrays)])
        for name in matrices:
            assert insides(answer[name]) == insides(expected[name]), name
        assert answer["text"].cast(pa.string()).equals(expected["text"])
        assert answer["loud"].cast(pa.string()).equals(expected["loud"].cast(pa.string()))


def test_dictionaries_may_change_and_grow_between_batches(client: fl.FlightClient, server: Server):
    plan = {
        "outputs": [
            {"name": "index", "dtype": "INT32", "parts": [{"columns": ["word"], "ops": [{"vocab": {}}]}]},
            {"name": "word", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]},
        ]
    }
    fitted = fit(client, "whole", plan)[-1]["result"]
    values = ["ab", "c", "déf", "new", ""]
    grown = [values[:2], values[:3], values]
    for options, dictionaries in (
        (None, [["ab"], ["c", "ab"], ["new", "c", "déf"]]),
        (pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True), grown),
    ):
        batches = [
            pa.RecordBatch.from_pydict({"word": pa.DictionaryArray.from_arrays(np.arange(len(words)), words)})
            for words in dictionaries
        ]
        answers = exchange(client, {"plan_id": fitted["plan_id"]}, batches, options)
        assert [answer["word"].to_pylist() for answer in answers] == dictionaries
        plain = [pa.RecordBatch.from_pydict({"word": words}) for words in dictionaries]
        for answer, other in zip(answers, exchange(client, {"plan_id": fitted["plan_id"]}, plain), strict=True):
            assert answer["index"].equals(other["index"])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_read(client: fl.FlightClient, root: Path, plan_id: str, codec: str):
    sent = groups(root, "many")
    options = pa.ipc.IpcWriteOptions(compression=codec)
    for answer, plain in zip(
        exchange(client, {"plan_id": plan_id}, sent, options),
        exchange(client, {"plan_id": plan_id}, sent),
        strict=True,
    ):
        assert_same(answer, plain)


def test_command_can_be_protobuf(client: fl.FlightClient, root: Path, plan_id: str):
    sent = groups(root, "few")[:1]
    command = b"\x0a" + bytes([len(plan_id)]) + plan_id.encode()
    assert_same(*exchange(client, command, sent), *exchange(client, {"plan_id": plan_id}, sent))


def test_missing_columns_are_reported_with_similar_names(client: fl.FlightClient, root: Path, plan_id: str):
    batch = groups(root, "few")[0]
    lacking = batch.rename_columns(["Id" if name == "id" else name for name in batch.schema.names])
    code, text = refused(client, {"plan_id": plan_id}, lacking.drop_columns(["x"]))
    assert code == "INVALID_ARGUMENT"
    assert '"id"' in text
    assert '"x"' in text
    assert 'did you mean "Id"' in text
    # A plan that this server has not fitted has only its own names.
    plan = {"outputs": [{"name": "a", "parts": [{"columns": ["smal"]}]}]}
    code, text = refused(client, {"plan": plan}, batch)
    assert (code, 'did you mean "small"' in text) == ("INVALID_ARGUMENT", True), text


@pytest.mark.parametrize(
    ("column", "kind", "before"),
    [("x", pa.float32(), "Float64"), ("id", pa.float64(), "Int64"), ("small", pa.uint64(), "Int32"),
     ("word", pa.binary(), "Dictionary"), ("unit", pa.float64(), "Float32"), ("x", pa.null(), "Float64")],
)  # fmt: skip
def test_values_of_another_type_are_schema_drift(
    client: fl.FlightClient, root: Path, plan_id: str, column: str, kind: pa.DataType, before: str
):
    batch = groups(root, "few")[0]
    place = batch.schema.get_field_index(column)
    values = pa.nulls(batch.num_rows) if kind == pa.null() else None
    if values is None:
        values = pa.array([None] * batch.num_rows, kind)
    code, text = refused(client, {"plan_id": plan_id}, batch.set_column(place, column, values))
    assert code == "FAILED_PRECONDITION"
    assert "schema drift" in text
    assert f'"{column}"' in text
    assert before in text


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ({}, "INVALID_ARGUMENT", "plan_id: missing"),
        (b"\xff\xff\xff", "INVALID_ARGUMENT", "ExchangeRequest"),
        ({"plan_id": "0123456789abcdef"}, "NOT_FOUND", "no fitted plan"),
        ({"plan_id": "../../etc/passwd"}, "NOT_FOUND", "no fitted plan"),
        ({"plan_id": "ab", "plan": {}}, "INVALID_ARGUMENT", "not both"),
        ({"plan": {}}, "INVALID_ARGUMENT", "at least one output"),
        ({"plan": PLAN}, "FAILED_PRECONDITION", "fit"),
        ({"plan_ID": "x"}, "INVALID_ARGUMENT", "plan_ID"),
        ({"plan": {"filter": "nope > 3", "outputs": PLAN["outputs"][1:2]}}, "INVALID_ARGUMENT", "nope"),
    ],
)
def test_invalid_requests_are_rejected_with_a_reason(
    client: fl.FlightClient, root: Path, request_: dict[str, Any] | bytes, code: str, words: str
):
    found = refused(client, request_, groups(root, "few")[0])
    assert found[0] == code, found
    assert words in found[1]


def test_rejects_a_path_descriptor(client: fl.FlightClient, root: Path):
    batch = groups(root, "few")[0]
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_path("few"))
    with pytest.raises(pa.ArrowInvalid, match="command"):  # noqa: PT012
        writer.begin(batch.schema)
        reader.read_chunk()


def test_failing_row_is_reported_by_batch_and_column(client: fl.FlightClient, root: Path):
    plan = {"outputs": [{"name": "a", "parts": [{"columns": ["gappy"]}]}]}
    whole = pa.RecordBatch.from_pydict({"gappy": [1.0, 2.0]})
    code, text = refused(client, {"plan": plan}, whole, pa.RecordBatch.from_pydict({"gappy": [1.0, None]}))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("batch 1: ")
    assert '"gappy"' in text
    assert "fill_null" in text


def test_batches_without_rows_or_columns_are_accepted(client: fl.FlightClient):
    plan = {"derive": [{"name": "one", "expr": "1"}], "outputs": [{"name": "a", "parts": [{"columns": ["one"]}]}]}
    batch = pa.RecordBatch.from_pydict({"other": pa.nulls(3)})
    (answer,) = exchange(client, {"plan": plan}, [batch])
    assert answer["a"].to_pylist() == [1.0, 1.0, 1.0]
