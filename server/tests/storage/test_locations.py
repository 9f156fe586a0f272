"""The files that a dataset's URL names: folders, globs, single files, unusual names, links, later locations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, info, raw_table

FILES = [
    "a.parquet",
    "b.PARQUET",
    "day=1/a.parquet",
    "day=1/b.parquet",
    "day=2/hour=3/c.parquet",
    "x y%20z ü#?&+.parquet",
    "Zebra.parquet",
]
NOT_FILES = [
    "_SUCCESS",
    "_metadata",
    "_temporary/0/part.parquet",
    ".hidden.parquet",
    ".staging/a.parquet",
    "under/_begun.parquet",
    ".a.parquet.crc",
    "a.parquet.crc",
    "a.parquet.tmp",
    "notes.txt",
    "parquet",
]


def write(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"file": [name], "x": [1.0]}), path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree in which every file holds its own name, and those that are not part of it hold no Parquet."""
    root = tmp_path_factory.mktemp("locations") / "tree"
    for name in FILES:
        write(root / name, name)
    for name in NOT_FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("no Parquet")
    (root / "empty.parquet").mkdir()
    (root / "[1]").mkdir()
    write(root / "[1]/a.parquet", "[1]/a.parquet")
    return root


def names(server: Server, dataset: str) -> list[str]:
    with fl.connect(server.url) as client:
        table = raw_table(client, dataset)
        plan = {"outputs": [{"name": "file", "dtype": "AS_STORED", "parts": [{"columns": ["file"]}]}]}
        found = info(client, {"dataset": dataset, "plan": plan})
        assert client.do_get(found.endpoints[0].ticket).read_all()["file"].to_pylist() == table["file"].to_pylist()
        assert found.total_records == table.num_rows
    return table["file"].to_pylist()


def code(server: Server, dataset: str) -> tuple[str, str]:
    with fl.connect(server.url) as client:
        with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
            raw_table(client, dataset)
        error = translate(raised.value)
        # The list shows it too, with its reason.
        listed = {i.descriptor.path[0].decode(): json.loads(i.app_metadata) for i in client.list_flights()}
        assert listed[dataset]["error"]
    return error.code, str(error)


ALL = ["[1]/a.parquet", *FILES]
URLS: dict[str, tuple[str, list[str]]] = {
    "folder": ("", ALL),
    "folder with a slash": ("/", ALL),
    "folder below": ("/day=2", ["day=2/hour=3/c.parquet"]),
    "folder through dots": ("/day=1/../day=2", ["day=2/hour=3/c.parquet"]),
    "folder with brackets": ("/[1]", ["[1]/a.parquet"]),
    "star": ("/*.parquet", ["a.parquet", "Zebra.parquet", "x y%20z ü#?&+.parquet"]),
    "star stops at a slash": ("/day=1/*.parquet", ["day=1/a.parquet", "day=1/b.parquet"]),
    "star in a folder": ("/day=*/*.parquet", ["day=1/a.parquet", "day=1/b.parquet"]),
    "two stars": ("/**/a.parquet", ["a.parquet", "[1]/a.parquet", "day=1/a.parquet"]),
    "two stars below": ("/day=*/**/*.parquet", ["day=1/a.parquet", "day=1/b.parquet", "day=2/hour=3/c.parquet"]),
    "question mark": ("/day=?/a.parquet", ["day=1/a.parquet"]),
    "class": ("/[ab].parquet", ["a.parquet"]),
    "negated class": ("/day=[!2]/b.parquet", ["day=1/b.parquet"]),
    "file": ("/a.parquet", ["a.parquet"]),
    "file of another ending": ("/b.PARQUET", ["b.PARQUET"]),
    "file with an odd name": ("/x y%20z ü#?&+.parquet", ["x y%20z ü#?&+.parquet"]),
}


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({name: f"{root}{tail}" for name, (tail, _) in URLS.items()})


@pytest.mark.parametrize("name", URLS)
def test_each_url_lists_exactly_its_files_in_path_order(server: Server, name: str):
    got = names(server, name)
    assert sorted(got) == sorted(URLS[name][1])
    # Path order is the order of the path's parts as bytes; the same on every machine.
    assert got == sorted(got, key=lambda path: [part.encode() for part in path.split("/")])


def test_file_urls(root: Path, serve: Serve):
    odd = root / "x y%20z ü#?&+.parquet"
    server = serve(
        {
            "folder": root.as_uri(),
            "file": odd.as_uri(),
            "host": f"file://localhost{root}/a.parquet",
            "glob": f"file://{root}/day=*/a.parquet",
        }
    )
    assert sorted(names(server, "folder")) == sorted(ALL)
    assert names(server, "file") == [odd.name]
    assert names(server, "host") == ["a.parquet"]
    assert names(server, "glob") == ["day=1/a.parquet"]


def test_relative_paths_start_at_the_working_directory(root: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(root / "day=1")
    server = serve({"dot": ".", "file": "a.parquet", "up": "../day=2", "glob": "../day=*/a.parquet"})
    assert names(server, "dot") == ["day=1/a.parquet", "day=1/b.parquet"]
    assert names(server, "file") == ["day=1/a.parquet"]
    assert names(server, "up") == ["day=2/hour=3/c.parquet"]
    assert names(server, "glob") == ["day=1/a.parquet"]


def test_links_must_stay_inside_the_root(tmp_path: Path, serve: Serve):
    write(tmp_path / "outside/secret.parquet", "secret")
    for folder in ("inner", "out", "outfolder", "dangling", "sibling"):
        write(tmp_path / folder / "deep/a.parquet", "a")
    (tmp_path / "inner/b.parquet").symlink_to(tmp_path / "inner/deep/a.parquet")
    (tmp_path / "out/b.parquet").symlink_to(tmp_path / "outside/secret.parquet")
    (tmp_path / "outfolder/more").symlink_to(tmp_path / "outside")
    (tmp_path / "dangling/b.parquet").symlink_to(tmp_path / "nowhere.parquet")
    # The name of the outside begins with the name of the root.
    write(tmp_path / "sibling-secret/s.parquet", "secret")
    (tmp_path / "sibling/s.parquet").symlink_to(tmp_path / "sibling-secret/s.parquet")
    (tmp_path / "root").symlink_to(tmp_path / "inner")
    server = serve(
        {
            **{name: tmp_path / name for name in ("inner", "out", "outfolder", "dangling", "sibling", "root")},
            "outglob": f"{tmp_path}/out/**/*.parquet",
        }
    )
    assert names(server, "inner") == ["a", "a"]
    # The root itself may be a link: that is the operator's word.
    assert names(server, "root") == ["a", "a"]
    for name in ("out", "outglob", "sibling"):
        found, text = code(server, name)
        assert found == "PERMISSION_DENIED", text
        assert re.search(r"[bs]\.parquet", text)
    # A folder that leads outside is rejected or omitted; a missing file is an error.
    assert or_error(server, "outfolder") in (["a"], "PERMISSION_DENIED")
    assert or_error(server, "dangling") in (["a"], "PERMISSION_DENIED", "FAILED_PRECONDITION", "ABORTED")


def or_error(server: Server, dataset: str) -> list[str] | str:
    try:
        return names(server, dataset)
    except (fl.FlightError, pa.ArrowException) as raised:
        return translate(raised).code


def test_link_redirected_outside_later_is_not_followed(tmp_path: Path, serve: Serve):
    write(tmp_path / "outside/secret.parquet", "secret")
    write(tmp_path / "data/a.parquet", "a")
    server = serve({"data": tmp_path / "data"})
    with fl.connect(server.url) as client:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path("data")).endpoints[0].ticket
        (tmp_path / "data/a.parquet").unlink()
        (tmp_path / "data/a.parquet").symlink_to(tmp_path / "outside/secret.parquet")
        with pytest.raises(fl.FlightError, match="snapshot changed|leads out"):
            client.do_get(ticket).read_all()
    assert code(server, "data")[0] == "PERMISSION_DENIED"


def test_dataset_names_are_never_paths(server: Server, root: Path):
    for name in (str(root), "../tree", f"file://{root}", "", "folder/", "folder/day=1", "folder\0"):
        with fl.connect(server.url) as client, pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
            raw_table(client, name)
        assert translate(raised.value).code in ("NOT_FOUND", "INVALID_ARGUMENT")


def test_files_may_appear_and_disappear(tmp_path: Path, serve: Serve):
    places = {
        "folder": tmp_path / "folder",
        "glob": tmp_path / "globs/*.parquet",
        "deep": tmp_path / "globs/*/folder/*.parquet",
    }
    for folder in ("folder", "globs"):
        (tmp_path / folder).mkdir()
    server = serve(places)
    for name, place in places.items():
        found, text = code(server, name)
        assert found in ("FAILED_PRECONDITION", "NOT_FOUND"), text
        assert str(place).split("*")[0].rstrip("/") in text
    write(tmp_path / "folder/a.parquet", "folder")
    write(tmp_path / "globs/a.parquet", "glob")
    write(tmp_path / "globs/some/folder/a.parquet", "deep")
    for name in places:
        assert names(server, name) == [name]
    (tmp_path / "folder/a.parquet").unlink()
    assert code(server, "folder")[0] in ("FAILED_PRECONDITION", "NOT_FOUND")
    (tmp_path / "folder").rmdir()
    assert code(server, "folder")[0] in ("FAILED_PRECONDITION", "NOT_FOUND")
    assert server.alive


def test_location_behind_a_link_may_appear_later(tmp_path: Path, serve: Serve):
    (tmp_path / "disk/data").mkdir(parents=True)
    (tmp_path / "mount").symlink_to(tmp_path / "disk")
    server = serve({"data": tmp_path / "mount/data"})
    assert code(server, "data")[0] in ("FAILED_PRECONDITION", "NOT_FOUND")
    write(tmp_path / "disk/data/a.parquet", "a")
    assert names(server, "data") == ["a"]
