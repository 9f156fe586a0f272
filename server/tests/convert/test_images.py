"""`forebay convert` of folders of images: labels, captions, and files that cannot be read."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from harness.convert import convert, peak_bytes


def image_bytes(seed: int, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (9, 7), Random(seed).randbytes(9 * 7 * 3)).save(out, kind)
    return out.getvalue()


def write(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return root


def test_classes_are_labels(tmp_path: Path):
    names = [f"{label}/{number:04}.jpg" for label in ("cat", "dog", "漢字") for number in range(337)]
    names += ["cat/deep/x.PNG", "cat.d/y.webp", "z.gif"]
    files: dict[str, bytes | str] = {name: image_bytes(number) for number, name in enumerate(names)}
    source = write(tmp_path / "in", files)
    write(
        source, {"README.md": "text", "cat/.hidden.jpg": "hidden", ".git/a.jpg": "hidden", "__MACOSX/a.jpg": "hidden"}
    )
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["sources"], done.result["rows"]) == ("images", 1, len(files))
    table = done.table()
    assert table.schema.names == ["image", "label", "path"]
    assert table.schema.field("image").type == pa.binary()
    expected = sorted(files, key=str.encode)
    assert table["path"].to_pylist() == expected
    assert table["image"].to_pylist() == [files[name] for name in expected]
    labels = [name.split("/")[-2] if "/" in name else None for name in expected]
    assert table["label"].to_pylist() == labels


def test_captions_are_next_to_images(tmp_path: Path):
    files: dict[str, bytes | str] = {
        "1.jpg": image_bytes(1),
        "1.txt": "a dog\n",
        "2.v2.png": image_bytes(2, "PNG"),
        "2.v2.txt": "漢字",
        "3.jpg": image_bytes(3),
    }
    table = convert(write(tmp_path / "in", files), tmp_path / "out").table()
    assert table.schema.names == ["image", "path", "caption"]
    assert table["caption"].to_pylist() == ["a dog\n", "漢字", None]


def test_folders_have_one_schema(tmp_path: Path):
    one = write(tmp_path / "one", {"cat/1.jpg": image_bytes(1)})
    two = write(tmp_path / "two", {"2.jpg": image_bytes(2), "2.txt": "two"})
    table = convert([two, one], tmp_path / "out").table()
    assert table.select(["label", "path", "caption"]).to_pylist() == [
        {"label": None, "path": "2.jpg", "caption": "two"},
        {"label": "cat", "path": "cat/1.jpg", "caption": None},
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_tables_name_their_images(tmp_path: Path, kind: str):
    random = Random(1)
    images = {f"{number % 3}/{number:05}.jpg": random.randbytes(random.randint(0, 3000)) for number in range(9973)}
    rows = [{"caption": f"a {name}", "file_name": name, "width": number} for number, name in enumerate(images)]
    random.shuffle(rows)
    # Several rows may have the same image.
    rows += [{**rows[0], "caption": "again"}]
    if kind == "csv":
        table = "".join(f"{row['caption']},{row['file_name']},{row['width']}\n" for row in rows)
        table = "caption,file_name,width\n" + table
    else:
        table = "".join(json.dumps(row) + "\n" for row in rows)
    source = write(tmp_path / "in", {**images, f"metadata.{kind}": table})
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["rows"]) == ("images", len(rows))
    got = done.table()
    assert got.schema.names == ["image", "caption", "file_name", "width"]
    assert got.drop_columns(["image"]).to_pylist() == rows
    assert got["image"].to_pylist() == [images[row["file_name"]] for row in rows]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"metadata.csv": "file_name,x\na.jpg,1\ngone.jpg,2\n"},
            'record 2, column "file_name": the folder has no file',
        ),
        ({"metadata.csv": "file_name,x\na.jpg,1\n../b.jpg,2\n"}, "the image is outside the folder"),
        ({"metadata.csv": "file_name,x\na.jpg,1\n/b.jpg,2\n"}, "the image is outside the folder"),
        ({"metadata.csv": "file_name,x\na.jpg,1\n,2\n"}, "the row has no image"),
        ({"metadata.csv": "file_name,x\n./a.jpg,1\n", "b.jpg": b"x"}, 'b.jpg": metadata.csv has no row for it'),
        ({"metadata.csv": "name\na.jpg\n"}, "it has no column file_name"),
        ({"metadata.csv": "file_name,image\na.jpg,x\n"}, "it has a column image"),
        ({"metadata.csv": "file_name\n1\n"}, "its column file_name is not text"),
        ({"cat/metadata.csv": "file_name\nb.jpg\n", "cat/b.jpg": b"x"}, "a table of images is read in the folder of"),
        ({"metadata.csv": "file_name\na.jpg\n", "metadata.jsonl": '{"file_name": "a.jpg"}\n'}, "remove one"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, files: dict[str, bytes | str], message: str):
    source = write(tmp_path / "in", {"a.jpg": image_bytes(1), **files})
    done = convert(source, tmp_path / "out", "--from", "images")
    assert (done.code, message in done.error) == (1, True), done.error
    assert not (tmp_path / "out").exists()


def test_folders_with_and_without_a_table_are_refused(tmp_path: Path):
    one = write(tmp_path / "one", {"a.jpg": image_bytes(1), "metadata.csv": "file_name\na.jpg\n"})
    two = write(tmp_path / "two", {"b.jpg": image_bytes(2)})
    done = convert([one, two], tmp_path / "out")
    assert (done.code, "as another folder has" in done.error) == (1, True), done.error


def test_other_files_decide_unless_the_format_is_set(tmp_path: Path):
    source = write(tmp_path / "in", {"a.jpg": image_bytes(1), "b.csv": "x\n1\n"})
    assert convert(source, tmp_path / "csv").result["format"] == "csv"
    assert convert(source, tmp_path / "images", "--from", "images").table()["path"].to_pylist() == ["a.jpg"]


def unreadable(root: Path) -> None:
    write(root, {"a.jpg": image_bytes(1)})
    (root / "b.jpg").symlink_to(root / "gone")


def endless(root: Path) -> None:
    write(root, {"a.jpg": image_bytes(1)})
    (root / "b").symlink_to(root)


def not_utf8(root: Path) -> None:
    write(root, {"a.jpg": image_bytes(1)})
    (root / os.fsdecode(b"\xff.jpg")).write_bytes(image_bytes(1))


def large(root: Path) -> None:
    root.mkdir()
    with (root / "a.jpg").open("wb") as file:
        file.truncate((64 << 20) + 1)


@pytest.mark.parametrize(
    ("prepare", "flags", "message"),
    [
        (lambda root: write(root, {"a.jpg": image_bytes(1), "a.txt": b"\xff"}), [], 'a.txt": the caption is not UTF-8'),
        (unreadable, [], "cannot read"),
        (endless, [], "folders are nested deeper than 32"),
        (not_utf8, [], "its name is not UTF-8"),
        (large, [], "a value has at most 64 MiB"),
        (lambda root: write(root, {"a.doc": "x"}), [], "it has no images, no index.json"),
        (lambda root: write(root, {"a.csv": "x"}), ["--from", "images"], "it has no images: their names end in"),
        (lambda root: write(root, {"a.jpg": image_bytes(1)}), ["--type", "label=int8"], "have fixed types"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, prepare: Any, flags: list[str], message: str):
    prepare(tmp_path / "in")
    done = convert(tmp_path / "in", tmp_path / "out", *flags)
    assert done.code in (1, 2)
    assert message in done.error, done.error
    assert not (tmp_path / "out").exists()


def test_a_file_alone_is_no_folder(tmp_path: Path):
    source = write(tmp_path / "in", {"a.jpg": image_bytes(1)})
    done = convert(source / "a.jpg", tmp_path / "out", "--from", "images")
    assert (done.code, "images are folders: name the folder" in done.error) == (1, True), done.error


def test_memory_is_bounded(tmp_path: Path):
    image = Random(1).randbytes(1 << 20)
    write(tmp_path / "in", {f"class/{number:03}.jpg": number.to_bytes(8, "big") + image for number in range(400)})
    peak = peak_bytes(tmp_path / "in", tmp_path / "out")
    assert peak < 200 << 20, f"{peak} bytes of memory for 400 MiB of images"
