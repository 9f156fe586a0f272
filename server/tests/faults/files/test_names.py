"""Hostile names of files, datasets and requests: links out of the root, dots, escapes, NUL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.damaged_files import (
    Patient,
    as_stored,
    assert_readable,
    ended,
    fit,
    raw,
    stream,
    through,
)
from harness.parquet.surgery import written
from harness.serving import Serve

SECRET = pa.table({"word": ["secret"]})
OPEN = pa.table({"word": ["open"]})


@pytest.fixture
def outside(patient: Patient) -> Path:
    """A table that no dataset may read."""
    (patient.root / "outside").mkdir(exist_ok=True)
    pq.write_table(SECRET, patient.root / "outside/secret.parquet")
    return patient.root / "outside"


# === Links ===


def file_by_its_path(ill: Path, outside: Path) -> None:
    (ill / "b.parquet").symlink_to(outside / "secret.parquet")


def file_by_a_relative_path(ill: Path, outside: Path) -> None:
    (ill / "b.parquet").symlink_to("../outside/secret.parquet")


def folder_by_its_path(ill: Path, outside: Path) -> None:
    (ill / "more").symlink_to(outside)


def folder_by_a_relative_path(ill: Path, outside: Path) -> None:
    (ill / "more").symlink_to("../outside")


def chain_of_links(ill: Path, outside: Path) -> None:
    (ill / "deep").mkdir()
    (ill / "deep/first").symlink_to("../second")
    (ill / "second").symlink_to("deep/third")
    (ill / "deep/third").symlink_to(outside)


def chain_of_links_to_a_file(ill: Path, outside: Path) -> None:
    (ill / "b.parquet").symlink_to("c.link")
    (ill / "c.link").symlink_to(outside / "secret.parquet")


def chain_that_leaves_and_comes_back(ill: Path, outside: Path) -> None:
    """Where it ends is inside, but who may turn it is outside; its end is what counts."""
    if not (outside / "back").is_symlink():
        (outside / "back").symlink_to(ill / "a.parquet")
    (ill / "b.parquet").symlink_to(outside / "back")


def dots_through_a_folder(ill: Path, outside: Path) -> None:
    (ill / "deep").mkdir()
    (ill / "deep/b.parquet").symlink_to("../deep/../../outside/secret.parquet")


def root_of_the_disk(ill: Path, outside: Path) -> None:
    (ill / "more").symlink_to("/")


def proc(ill: Path, outside: Path) -> None:
    (ill / "b.parquet").symlink_to("/proc/self/environ")


LEADING_OUT: list[Callable[[Path, Path], None]] = [
    file_by_its_path,
    file_by_a_relative_path,
    folder_by_its_path,
    folder_by_a_relative_path,
    chain_of_links,
    chain_of_links_to_a_file,
    dots_through_a_folder,
    root_of_the_disk,
    proc,
]


@pytest.mark.parametrize("link", LEADING_OUT)
def test_rejects_a_symlink_out_of_the_root(patient: Patient, outside: Path, link: Callable[[Path, Path], None]):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    link(patient.root / "ill", outside)
    with patient.aftermath() as client:
        for way, (found, text) in patient.ends(client, "word").items():
            assert found == "PERMISSION_DENIED", f"{way}: {found}: {text}"
            assert "leads out of the dataset's directory" in text
            assert "secret" not in text.replace("secret.parquet", "")


def test_follows_a_link_inside_the_root(patient: Patient, outside: Path):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    chain_that_leaves_and_comes_back(patient.root / "ill", outside)
    with patient.aftermath() as client:
        assert raw(client, "ill")["word"].to_pylist() == ["open"] * 2


def loop(ill: Path) -> None:
    (ill / "b.parquet").symlink_to("c.parquet")
    (ill / "c.parquet").symlink_to("b.parquet")


def itself(ill: Path) -> None:
    (ill / "b.parquet").symlink_to("b.parquet")


def own_folder(ill: Path) -> None:
    (ill / "more").symlink_to(".")


def nowhere(ill: Path) -> None:
    (ill / "b.parquet").symlink_to("nowhere.parquet")


def pipe(ill: Path) -> None:
    """Who opens it waits for a writer."""
    os.mkfifo(ill / "b.parquet")


def link_to_a_pipe(ill: Path) -> None:
    os.mkfifo(ill / "pipe")
    (ill / "b.parquet").symlink_to("pipe")


def folder_of_a_files_name(ill: Path) -> None:
    (ill / "b.parquet").mkdir()


@pytest.mark.parametrize("make", [loop, itself, own_folder, nowhere, pipe, link_to_a_pipe, folder_of_a_files_name])
def test_ignores_entries_that_are_not_files(patient: Patient, make: Callable[[Path], None]):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    make(patient.root / "ill")
    with patient.aftermath() as client:
        assert raw(client, "ill")["word"].to_pylist() == ["open"]


# === Names of files ===

NAMES = (
    "..parquet",
    "...a.parquet",
    "a..parquet",
    "%2e%2e.parquet",
    "%2e%2e%2fsecret.parquet",
    "%00.parquet",
    "a%.parquet",
    "a%zz.parquet",
    "back\\slash.parquet",
    "..\\secret.parquet",
    "two\nlines.parquet",
    "\x1b[31mred.parquet",
    "tab\t.parquet",
    "del\x7f.parquet",
    " space .parquet",
    "?x=1#y.parquet",
    "*.parquet",
    "[a].parquet",
    "quote'\".parquet",
    "ü日🦀.parquet",
    "x" * 247 + ".parquet",
    "~.parquet",
    "$HOME.parquet",
    "-rf.parquet",
    "a=b.parquet",
)


def is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


@pytest.mark.parametrize("name", NAMES)
def test_unusual_file_names_are_read_or_rejected_by_name(patient: Patient, name: str):
    """Never another file, and never only the other files without an error."""
    pq.write_table(OPEN, patient.root / "ill/a a.parquet")
    pq.write_table(SECRET, patient.root / "ill" / name)
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
        if found == "OK":
            got = sorted(raw(client, "ill")["word"].to_pylist())
            assert got == (["open"] if is_hidden(name) else ["open", "secret"])
            got = stream(client, "ill", as_stored("word"), shuffle=True)["out"].to_pylist()
            assert sorted(got) == (["open"] if is_hidden(name) else ["open", "secret"])
        else:
            # A retry does not help: it is not an outage.
            assert found in ("FAILED_PRECONDITION", "INVALID_ARGUMENT"), f"{found}: {text}"
        assert_readable(text)


@pytest.mark.parametrize("name", NAMES)
def test_errors_about_unusual_file_names_are_one_printable_line(patient: Patient, name: str):
    (patient.root / "ill" / name).write_bytes(b"not a Parquet file")
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
    assert found in ("DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT"), f"{found}: {text}"
    assert_readable(text)


def test_ignores_file_names_that_are_not_utf8(patient: Patient):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    path = os.path.join(os.fsencode(patient.root / "ill"), b"b\xff.parquet")
    with open(path, "wb") as file:
        file.write(b"nothing")
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
        assert found in ("OK", "FAILED_PRECONDITION"), text
        assert_readable(text)


def test_folders_deeper_than_the_longest_path(patient: Patient):
    folder = os.open(patient.root / "ill", os.O_RDONLY)
    for _ in range(300):
        name = "a folder of some name"
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    with open(os.open("deep.parquet", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "wb") as file:
        file.write(written(OPEN))
    os.close(folder)
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
        assert found in ("FAILED_PRECONDITION", "UNAVAILABLE"), f"{found}: {text[:300]}"
        assert_readable(text)
    patient.clear()


# === Names in requests ===

REQUESTED_NAMES = (
    "../x",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "well/../ill",
    "well/a.parquet",
    "./well",
    "well/",
    "WELL",
    "a\0b",
    "well\0",
    "%2e%2e/x",
    "%2e%2e%2fx",
    "%77ell",
    "..\\x",
    "file:///etc/passwd",
    "http://127.0.0.1:1/a.parquet",
    "well\n",
    "two\nlines",
    "\x1b[31mred",
    "*",
    "",
    "x" * 100_000,
)


@pytest.mark.parametrize("name", REQUESTED_NAMES, ids=lambda name: repr(name[:30]))
def test_rejects_a_path_as_a_dataset_name(patient: Patient, name: str):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    vocab = through("word", {"vocab": {}})
    with patient.aftermath() as client:
        for call in (
            lambda: raw(client, name),
            lambda: client.get_schema(fl.FlightDescriptor.for_path(name)),
            lambda: stream(client, name, as_stored("word")),
            lambda: fit(client, name, vocab),
        ):
            found, text = ended(call)
            assert found in ("NOT_FOUND", "INVALID_ARGUMENT"), f"{found}: {text[:300]}"
            assert_readable(text)


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a\\b", "a b", "ü", "a/b", "two\nlines"])
def test_unusual_dataset_names_work_or_are_rejected_at_start(patient: Patient, serve: Serve, name: str):
    pq.write_table(OPEN, patient.root / "ill/a.parquet")
    with contextlib.suppress(RuntimeError):
        server = serve({name: patient.root / "ill"})
        with fl.connect(server.url) as client:
            assert raw(client, name)["word"].to_pylist() == ["open"]
