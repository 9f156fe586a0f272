"""Files of a folder under the names that other writers give them: all rows, and what is left out is said."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.object_store import Store, s3_server
from harness.serving import Serve, Server, raw_table, server_binary

# Names that Hive, Impala, Spark, Polars and pandas write.
NAMES = ["000000_0", "b.parquet", "c.parq", "d.pq", "e.parquet.gzip", "f/000001_0.snappy", "ab-12_data.0"]
OTHERS = {"README": b"text", "notes.txt": b"text", "old.parquet.bak": b"PAR1 PAR1 PAR1", "part-9": b"no data at all"}
HIDDEN = {"_SUCCESS": b"", "_tmp/x.parquet": b"x", ".c.parq.crc": b"x", ".d.parquet": b"x", "g/_y.parquet": b"x"}


def parquet(value: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": [value]}), sink)
    return sink.getvalue().to_pybytes()


def files() -> dict[str, bytes]:
    return {**{name: parquet(value) for value, name in enumerate(NAMES)}, **OTHERS, **HIDDEN}


def write(folder: Path, contents: dict[str, bytes]) -> None:
    for name, body in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)


def values(server: Server, dataset: str = "data", column: str = "v") -> list[int]:
    with fl.connect(server.url) as client:
        return sorted(raw_table(client, dataset)[column].to_pylist())


def left_out(server: Server) -> dict[str, list[str]]:
    with fb.connect(server.url) as client:
        described = client.describe("data")
    return {one.reason.split(" ")[0]: list(one.names) for one in described.left_out}


EXPECTED = {
    "neither": ["README", "part-9"],
    "not": ["notes.txt", "old.parquet.bak"],
    "hidden": [".d.parquet", "_tmp/", "g/_y.parquet"],
}


def test_content_decides_where_names_do_not(tmp_path: Path, serve: Serve):
    write(tmp_path, files())
    server = serve({"data": tmp_path})
    assert values(server) == list(range(len(NAMES)))
    assert left_out(server) == EXPECTED
    log = [line for line in server.log if "ignored" in line]
    assert len(log) == 3, server.log
    for name in ("README", "notes.txt", "_tmp/"):
        assert any(name in line for line in log), log
    # A listing with the same files says nothing again, one with other files does.
    (tmp_path / "more.txt").write_text("text")
    assert values(server) == list(range(len(NAMES)))
    assert left_out(server)["not"] == ["more.txt", "notes.txt", "old.parquet.bak"]


def test_check_says_what_is_left_out(tmp_path: Path):
    write(tmp_path, files())
    command = [server_binary(), "check", "--dataset", f"data={tmp_path}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "notes.txt, old.parquet.bak" in found.stdout + found.stderr


def test_a_bucket_has_the_same_files(serve: Serve):
    with s3_server() as endpoint:
        store = Store(endpoint, "names")
        for name, body in files().items():
            store.put(f"day/{name}", body)
        server = serve({"data": store.url("day/")})
        assert values(server) == list(range(len(NAMES)))
        assert left_out(server) == EXPECTED


def test_a_file_that_becomes_parquet_is_read(tmp_path: Path, serve: Serve):
    write(tmp_path, {"a.parquet": parquet(0), "000000_0": b"being written"})
    server = serve({"data": tmp_path})
    assert values(server) == [0]
    (tmp_path / "000000_0").write_bytes(parquet(1))
    assert values(server) == [0, 1]


def test_arrow_files_without_an_ending(tmp_path: Path, serve: Serve):
    table = pa.table({"v": [7]})
    with pa.ipc.new_file(tmp_path / "part-0", table.schema) as writer:
        writer.write_table(table)
    assert values(serve({"data": tmp_path})) == [7]


def test_partitions_may_start_with_an_underscore(tmp_path: Path, serve: Serve):
    write(tmp_path / "d", {"_k=1/p.parquet": parquet(1), "_k=2/p.parquet": parquet(2), "_k/p.parquet": parquet(3)})
    write(tmp_path / "e", {"a=1/p.parquet": parquet(5), "a=1/_b=2/p.parquet": parquet(6)})
    server = serve({"d": tmp_path / "d", "e": tmp_path / "e"})
    assert values(server, "d") == [1, 2]
    assert values(server, "d", "_k") == [1, 2]
    with fl.connect(server.url) as client:
        assert sorted(raw_table(client, "e").to_pylist(), key=lambda row: row["v"]) == [
            {"v": 5, "a": 1, "_b": None},
            {"v": 6, "a": 1, "_b": 2},
        ]


def test_names_that_are_not_utf8_are_refused(tmp_path: Path, serve: Serve):
    write(tmp_path, {"a.parquet": parquet(0)})
    try:
        (tmp_path / os.fsdecode(b"\xff.parquet")).write_bytes(parquet(1))
    except OSError:
        pytest.skip("the file system has UTF-8 names only")
    with fl.connect(serve({"data": tmp_path}).url) as client, pytest.raises(pa.ArrowException, match="UTF-8"):
        raw_table(client, "data")


def test_describe_in_json_has_the_names(tmp_path: Path, serve: Serve):
    write(tmp_path, {"a.parquet": parquet(0), "b.txt": b""})
    with fl.connect(serve({"data": tmp_path}).url) as client:
        results = list(client.do_action(fl.Action("describe", json.dumps({"dataset": "data"}).encode())))
    found = json.loads(results[-1].body.to_pybytes())["result"]["left_out"]
    assert found == [{"reason": "not named as Parquet or Arrow files", "count": 1, "names": ["b.txt"]}]


@pytest.mark.parametrize("key", ["a//y.parquet", "a/../y.parquet"])
def test_keys_that_are_no_paths_are_refused_for_good(serve: Serve, key: str):
    with s3_server() as endpoint:
        store = Store(endpoint, "odd")
        store.put("a/x.parquet", parquet(1))
        store.put("b/2022-11-26T13:51:14+00:00 %41?.parquet", parquet(2))
        store.put(key, parquet(3))
        server = serve({"data": store.url("a/" if key.startswith("a//") else ""), "other": store.url("b/")})
        assert values(server, "other") == [2]
        with fl.connect(server.url) as client, pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
            raw_table(client, "data")
        assert "STORE_REFUSED" in str(raised.value)
        assert key in str(raised.value)


@pytest.mark.parametrize("folder", ["[x]", "q?"])
def test_folders_with_the_letters_of_patterns(serve: Serve, folder: str):
    with s3_server() as endpoint:
        store = Store(endpoint, "brackets")
        store.put(f"{folder}/x.parquet", parquet(1))
        assert values(serve({"data": store.url(f"{folder}/")})) == [1]
