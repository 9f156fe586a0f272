"""Inputs and results in a bucket: a result exists when its manifest does."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.object_store import SECRET, Store, s3_server
from harness.prepare import MANIFEST, prepare
from harness.serving import Serve, raw_table

ROWS = 10_000
SQL = "SELECT id, x FROM t ORDER BY id"
BUCKETS = iter(f"prepared-{n}" for n in range(1_000_000))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def store(endpoint: str) -> Store:
    bucket = Store(endpoint, next(BUCKETS))
    body = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": np.random.default_rng(0).random(ROWS)}), body)
    bucket.put("in/a.parquet", body.getvalue())
    return bucket


def keys(store: Store, prefix: str) -> list[str]:
    listed = store.client.list_objects_v2(Bucket=store.bucket, Prefix=prefix)
    return [entry["Key"] for entry in listed.get("Contents", [])]


def manifest(store: Store) -> dict[str, object]:
    return json.loads(store.client.get_object(Bucket=store.bucket, Key=f"out/{MANIFEST}")["Body"].read())


def test_a_result_in_a_bucket_is_a_dataset(serve: Serve, store: Store):
    inputs, out = {"t": store.url("in/")}, store.url("out")
    result = prepare(SQL, inputs, out).result
    assert (result["status"], result["rows"]) == ("written", ROWS)
    files = keys(store, "out/")
    assert len(files) == 2
    assert f"out/{MANIFEST}" in files
    assert prepare(SQL, inputs, out).result["status"] == "up_to_date"
    with fl.connect(serve({"out": out, "slash": out + "/"}).url) as client:
        assert raw_table(client, "out")["id"].to_pylist() == list(range(ROWS))
        assert raw_table(client, "slash").num_rows == ROWS
        # A file of a run that was killed, and a stray one.
        store.put("out/_forebay_run-0-0/part-00000.parquet", b"half a file")
        store.put("out/stray.parquet", b"not Parquet")
        assert raw_table(client, "out").num_rows == ROWS
        # Replaced by another manifest.
        assert prepare("SELECT id FROM t LIMIT 7", inputs, out, "--replace").result["status"] == "replaced"
        assert raw_table(client, "out").num_rows == 7
    # The files of the replaced dataset are removed, those of a run that may be running are not.
    left = keys(store, "out/")
    assert not set(left) & (set(files) - {f"out/{MANIFEST}"})
    assert "out/_forebay_run-0-0/part-00000.parquet" in left


def test_files_without_a_manifest_are_no_dataset(serve: Serve, store: Store):
    store.put("out/_forebay_run-0-0/part-00000.parquet", b"half a file")
    with (
        fl.connect(serve({"out": store.url("out")}).url) as client,
        pytest.raises(pa.ArrowInvalid, match=r"no \*\.parquet or \*\.arrow object under"),
    ):
        raw_table(client, "out")
    assert prepare(SQL, {"t": store.url("in/a.parquet")}, store.url("out")).result["rows"] == ROWS


def test_other_objects_are_never_replaced(store: Store):
    store.put("out/notes.txt", b"mine")
    run = prepare(SQL, {"t": store.url("in/")}, store.url("out"), "--replace")
    assert run.code == 1
    assert "not a prepared dataset" in run.error
    run = prepare(SQL, {"t": store.url("in/")}, store.url("in"), "--replace")
    assert run.code == 2
    assert keys(store, "out/") == ["out/notes.txt"]


def test_a_failed_run_removes_its_objects(store: Store):
    run = prepare("SELECT 1 / (id - 9999) AS x FROM t", {"t": store.url("in/")}, store.url("out"))
    assert run.code == 1
    assert keys(store, "out/") == []


def test_a_missing_bucket_is_an_error_without_secrets(store: Store):
    run = prepare(SQL, {"t": store.url("in/")}, "s3://no-such-bucket/out")
    assert run.code == 1
    assert "no-such-bucket" in run.error
    assert SECRET not in run.error
    run = prepare(SQL, {"t": "s3://no-such-bucket/in"}, store.url("out"))
    assert run.code == 1
    assert "no-such-bucket" in run.error
