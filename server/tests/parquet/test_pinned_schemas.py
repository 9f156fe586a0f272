"""`--dataset-schema`: the schema of a dataset, whatever its files have."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, poll, run_to_end
from harness.faults import outcome
from harness.metrics import scrape
from harness.serving import Serve, info, plan_of, raw_table, stored

PINNED = pa.schema(
    [
        pa.field("word", pa.large_string()),
        pa.field("count", pa.float64()),
        pa.field("id", pa.int64()),
        pa.field("later", pa.list_(pa.int32())),
    ]
)


def pin(path: Path, schema: pa.Schema) -> Path:
    """A Parquet file of a schema, without rows."""
    pq.write_table(schema.empty_table(), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(
        pa.table({"id": pa.array([1, 2], pa.int8()), "count": [10, 20], "more": ["x", "y"]}), folder / "a.parquet"
    )
    words = pa.array(["c", None]).dictionary_encode()
    pq.write_table(pa.table({"word": words, "count": [0.5, None], "id": [3, 4]}), folder / "b.parquet")
    return folder


def test_a_pinned_schema_decides_columns_order_and_types(folder: Path, tmp_path: Path, serve: Serve):
    server = serve({"t": folder}, "--dataset-schema", f"t={pin(tmp_path / 'schema', PINNED)}")
    with fl.connect(server.url) as client:
        got = raw_table(client, "t")
        assert got.schema.names == PINNED.names
        assert got.schema.types == PINNED.types
        assert got.to_pylist() == [
            {"word": None, "count": 10.0, "id": 1, "later": None},
            {"word": None, "count": 20.0, "id": 2, "later": None},
            {"word": "c", "count": 0.5, "id": 3, "later": None},
            {"word": None, "count": None, "id": 4, "later": None},
        ]
        assert client.get_schema(fl.FlightDescriptor.for_path("t")).schema.equals(got.schema)
        plan = plan_of(stored("id", "count"), filter="word IS NULL AND count > 5")
        found = info(client, {"dataset": "t", "plan": plan, "batch_size": 10})
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == [1, 2]
        request = {"dataset": "t", "plan": plan_of(stored("more")), "batch_size": 10}
        code, text = outcome(lambda: info(client, request))
        assert (code, '"more"' in text) == ("INVALID_ARGUMENT", True), text


def test_a_pinned_schema_makes_types_compatible_that_are_not(folder: Path, serve: Serve):
    """A double rounds integers beyond 2**53; pinned, it reads those that are exact."""
    with fl.connect(serve({"t": folder}).url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
        assert (code, "no type holds" in text) == ("FAILED_PRECONDITION", True), text
    pq.write_table(pa.table({"count": [2**53 + 1]}), folder / "c.parquet")
    server = serve({"t": folder}, "--dataset-schema", f"t={folder / 'b.parquet'}")
    with fl.connect(server.url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
        assert code == "FAILED_PRECONDITION", text
        for word in ("c.parquet", '"count"', "Float64"):
            assert word in text
        plan = plan_of(stored("id"))
        found = info(client, {"dataset": "t", "plan": plan, "batch_size": 10})
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == [1, 2, 3, 4, None]


def test_a_file_that_a_pinned_schema_cannot_hold_is_refused_by_name(folder: Path, tmp_path: Path, serve: Serve):
    schema = pin(tmp_path / "schema", pa.schema([("id", pa.int16())]))
    server = serve({"t": folder}, "--dataset-schema", f"t={schema}")
    with fl.connect(server.url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
    assert code == "FAILED_PRECONDITION", text
    for word in ('"id"', "Int64", "Int16", "b.parquet", str(schema)):
        assert word in text


def test_reload_reads_the_pinned_schema_again(folder: Path, tmp_path: Path):
    schema = pin(tmp_path / "schema", PINNED)
    config = tmp_path / "forebay.toml"
    config.write_text(f'dataset = ["t={folder}"]\ndataset_schema = ["t={schema}"]\n')
    daemon = Daemon(*LOOPBACK, "--config", str(config), "--state", str(tmp_path / "state"))
    with contextlib.ExitStack() as running:
        running.callback(daemon.stop)

        def reload(status: str) -> bool:
            before = scrape(daemon).value("forebay_config_reloads_total", status=status)
            daemon.process.send_signal(signal.SIGHUP)
            return poll(lambda: scrape(daemon).value("forebay_config_reloads_total", status=status) > before)

        with fl.connect(daemon.url) as client:
            assert raw_table(client, "t").schema.names == PINNED.names
            pin(schema, PINNED.remove(3))
            # Read at the start only.
            assert raw_table(client, "t").schema.names == PINNED.names
            assert reload("ok")
            assert raw_table(client, "t").schema.names == PINNED.names[:3]
            schema.write_text("no Parquet file, but long enough")
            assert reload("failed")
            assert raw_table(client, "t").schema.names == PINNED.names[:3]


def test_check_reads_pinned_schemas(folder: Path, tmp_path: Path):
    common = ["check", "--dataset", f"t={folder}", "--state", str(tmp_path / "state"), "--dataset-schema"]
    assert run_to_end(*common, f"t={pin(tmp_path / 'schema', PINNED)}").returncode == 0
    (tmp_path / "text").write_text("PAR1 this is no Parquet file PAR1")
    for value, words in (
        (f"t={tmp_path}/nowhere", "nowhere"),
        (f"t={tmp_path}/text", "text"),
        (f"u={tmp_path}/schema", 'no --dataset is named "u"'),
        ("t", "NAME=FILE"),
        (f"t={pin(tmp_path / 'narrow', pa.schema([('id', pa.int8())]))}", "narrow"),
    ):
        done = run_to_end(*common, value)
        assert done.returncode == 2, value
        assert "--dataset" in done.stderr
        assert words in done.stderr, done.stderr
    done = run_to_end(*common[:-1], env={"FOREBAY_DATASET_SCHEMA": f"t={tmp_path}/nowhere"})
    assert (done.returncode, "nowhere" in done.stderr) == (2, True), done.stderr
