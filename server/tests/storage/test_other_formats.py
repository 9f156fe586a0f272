"""Datasets of files that are not Parquet are refused with the command that converts them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.convert import client_binary
from harness.object_store import Store, s3_server
from harness.serving import Serve, Server, raw_table
from harness.tars import write_tar

FILES = {
    "a.csv": "x,y\n1,a\n2,b\n",
    "a.tsv": "x\ty\n1\ta\n2\tb\n",
    "a.jsonl": '{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n',
    "a.json": '{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n',
}


def refusal(server: Server, dataset: str) -> str:
    with fl.connect(server.url) as client:
        with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
            raw_table(client, dataset)
        listed = {i.descriptor.path[0].decode(): json.loads(i.app_metadata) for i in client.list_flights()}
        assert "forebay convert" in listed[dataset]["error"]
    return str(translate(raised.value))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("named", ["folder", "file", "glob"])
def test_the_command_of_the_error_converts_the_dataset(tmp_path: Path, serve: Serve, name: str, named: str):
    root = tmp_path / "my clicks"
    root.mkdir()
    (root / name).write_text(FILES[name])
    url = {"folder": root, "file": root / name, "glob": root / "a.*"}[named]
    error = refusal(serve({"clicks": url}), "clicks")
    assert name in error
    found = re.search(r"`forebay (convert .*?)`", error)
    assert found, error
    command = shlex.split(found[1])
    subprocess.run([client_binary(), *command], check=True, capture_output=True, timeout=60)
    with fl.connect(serve({"clicks": command[-1]}).url) as client:
        assert raw_table(client, "clicks").to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


@pytest.mark.parametrize("kind", ["tar", "images"])
def test_samples_and_images_are_converted_by_their_command(tmp_path: Path, serve: Serve, kind: str):
    root = tmp_path / "pets"
    root.mkdir()
    if kind == "tar":
        write_tar(root / "a.tar", [("1.jpg", b"x"), ("1.cls", b"7")])
    else:
        (root / "cats").mkdir()
        (root / "cats" / "1.jpg").write_bytes(b"x")
    error = refusal(serve({"pets": root}), "pets")
    assert ("WebDataset" if kind == "tar" else "a folder of images") + " is not served" in error
    found = re.search(r"`forebay (convert .*?)`", error)
    assert found, error
    command = shlex.split(found[1])
    subprocess.run([client_binary(), *command], check=True, capture_output=True, timeout=60)
    with fl.connect(serve({"pets": command[-1]}).url) as client:
        (row,) = raw_table(client, "pets").to_pylist()
    images = {"image": b"x", "label": "cats", "path": "cats/1.jpg"}
    assert row == ({"__key__": "1", "jpg": b"x", "cls": 7} if kind == "tar" else images)


def test_a_bucket_of_csv_says_what_to_do(serve: Serve):
    with s3_server() as endpoint:
        store = Store(endpoint, "clicks")
        store.put("day/a.csv", FILES["a.csv"].encode())
        error = refusal(serve({"clicks": store.url()}), "clicks")
    assert '"day/a.csv": CSV is not served; copy the files to a disk' in error


def test_files_beside_parquet_are_ignored(tmp_path: Path, serve: Serve):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(FILES["a.csv"])
    with fl.connect(serve({"clicks": tmp_path}).url) as client:
        assert raw_table(client, "clicks").to_pylist() == [{"x": 1}]
