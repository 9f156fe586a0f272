"""`forebay convert` of WebDataset: samples of tar archives, and archives that are damaged or hostile."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import forebay as fb
from harness.convert import command, convert, parts, peak_bytes
from harness.repository import ROOT
from harness.serving import Serve
from harness.tars import Entry, special, tar_bytes, write_tar


def entries_of(row: dict[str, Any]) -> list[Entry]:
    """The files of a sample; nulls have none."""
    found: list[Entry] = []
    for name, value in row.items():
        if name != "__key__" and value is not None:
            text = json.dumps(value) if name == "json" else str(value)
            found.append((f"{row['__key__']}.{name}", value if isinstance(value, bytes) else text.encode()))
    return found


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    random = Random(seed)
    return [
        {
            "__key__": f"train/{seed}_{row:06}",
            "jpg": random.randbytes(random.randint(0, 2000)),
            "cls": random.choice([None, random.randint(-5, 2**40)]),
            "json": {"size": [row, 2], "caption": random.choice([None, "a dog", "漢字"])},
            "caption.txt": "two\nlines\n" if row % 3 else "",
            "seg.png": None if row % 5 == 0 else random.randbytes(10),
        }
        for row in range(count)
    ]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_samples_survive(tmp_path: Path, form: int):
    source = tmp_path / "in"
    source.mkdir()
    rows: list[dict[str, Any]] = []
    for shard, count in enumerate([1, 997, 8193]):
        shard_rows = rows_of(count, shard)
        data = tar_bytes([entry for row in shard_rows for entry in entries_of(row)], form)
        name, packed = [
            ("0.tar", data),
            ("1.tar.gz", gzip.compress(data)),
            ("2.tar.zst", pa.Codec("zstd").compress(data, asbytes=True)),
        ][shard]
        (source / name).write_bytes(packed)
        rows += shard_rows
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["sources"], done.result["rows"]) == ("webdataset", 3, len(rows))
    table = done.table()
    assert table.schema.names[0] == "__key__"
    assert sorted(table.schema.names) == sorted(rows[0])
    types = {"jpg": pa.binary(), "cls": pa.int64(), "caption.txt": pa.string(), "seg.png": pa.binary()}
    assert {name: table.schema.field(name).type for name in types} == types
    assert [{name: row[name] for name in rows[0]} for row in table.to_pylist()] == rows


def test_images_of_an_archive_become_tensors(tmp_path: Path, serve: Serve):
    image = io.BytesIO()
    Image.frombytes("RGB", (90, 70), Random(1).randbytes(90 * 70 * 3)).save(image, "JPEG")
    entries = [entry for row in range(5) for entry in ((f"{row}.jpg", image.getvalue()), (f"{row}.cls", b"3"))]
    assert convert(write_tar(tmp_path / "a.tar", entries), tmp_path / "photos").code == 0
    code = (ROOT / "docs/src/guides/convert.md").read_text().split("```python\n")[1].split("```")[0]
    server = serve({"photos": str(tmp_path / "photos")})
    names: dict[str, Any] = {"fb": fb}
    exec(code.replace("grpc://127.0.0.1:8815", server.url), names)
    assert names["batch"]["image"].shape == (5, 224, 224, 3)
    assert names["batch"]["label"].ravel().tolist() == [3] * 5


def test_columns_are_in_their_order_of_appearance(tmp_path: Path):
    entries = [("a.txt", b"x"), ("a.JPG", b"1"), ("b.jpg", b"2"), ("b.cls", b" 7\n")]
    table = convert(write_tar(tmp_path / "a.tar", entries), tmp_path / "out").table()
    assert table.to_pylist() == [
        {"__key__": "a", "txt": "x", "jpg": b"1", "cls": None},
        {"__key__": "b", "txt": None, "jpg": b"2", "cls": 7},
    ]
    assert table.schema.names == ["__key__", "txt", "jpg", "cls"]


def test_columns_are_shown_before_the_start(tmp_path: Path):
    source = write_tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("a.json", b'{"b": [1], "a": "x"}')])
    shown = subprocess.run(command(source, tmp_path / "out"), capture_output=True, text=True, check=True)
    heading, *columns = shown.stderr.splitlines()
    assert "1 source of webdataset" in heading
    assert [line.split(maxsplit=1) for line in columns] == [
        ["__key__", "string"],
        ["jpg", "binary"],
        ["json", "struct<b: list<int64>, a: string>"],
    ]
    assert convert(source, tmp_path / "json").error == ""


def test_long_names_folders_and_hidden_files(tmp_path: Path):
    name = "folder/" + "n" * 150 + "/" + "ä" * 60
    folder = special("folder", tarfile.DIRTYPE)
    # Some programs store the size of a folder, which has no contents.
    folder.size = 4096
    entries = [
        folder,
        ("folder/._a.jpg", b"hidden"),
        ("__MACOSX/a.jpg", b"hidden"),
        (".DS_Store", b"hidden"),
        (f"{name}.txt", b"long"),
        ("./b.txt", b"b"),
    ]
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        out = tmp_path / f"out{form}"
        table = convert(write_tar(tmp_path / "a.tar", entries, form), out).table()
        assert table.to_pylist() == [{"__key__": name, "txt": "long"}, {"__key__": "./b", "txt": "b"}]


def test_names_that_look_like_another_format(tmp_path: Path):
    source = tmp_path / "in"
    source.mkdir()
    for row, name in enumerate(["ARROW1", "PAR1"]):
        write_tar(source / f"{row}.tar", [(f"{name}.cls", b"1")])
    assert convert(source, tmp_path / "out").table()["__key__"].to_pylist() == ["ARROW1", "PAR1"]
    assert convert(source / "1.tar", tmp_path / "one").table()["cls"].to_pylist() == [1]


def test_types_are_set(tmp_path: Path):
    entries = [("a.json", b'{"x": 1}'), ("a.txt", b"\xff"), ("a.id", b"007"), ("a.score", b"0.5")]
    flags = ["json=string", "txt=binary", "id=string", "score=float32"]
    flags = [part for flag in flags for part in ("--type", flag)]
    table = convert(write_tar(tmp_path / "a.tar", entries), tmp_path / "out", *flags).table()
    assert table.to_pylist() == [{"__key__": "a", "json": '{"x": 1}', "txt": b"\xff", "id": "007", "score": 0.5}]
    assert table.schema.field("score").type == pa.float32()


def test_row_groups_of_images_are_small(tmp_path: Path):
    random = Random(3)
    images = [random.randbytes(100_000) for _ in range(400)]
    source = write_tar(tmp_path / "a.tar", ((f"{row:03}.jpg", image) for row, image in enumerate(images)))
    done = convert(source, tmp_path / "out")
    assert done.table()["jpg"].to_pylist() == images
    metadata = pq.read_metadata(parts(tmp_path / "out")[0])
    sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
    assert len(sizes) == 3
    assert all(16 << 20 <= size < 18 << 20 for size in sizes[:-1])
    # Images are compressed already.
    assert done.result["bytes"] < 1.01 * sum(map(len, images))


ONE: list[Entry] = [("a.jpg", b"x" * 1000), ("a.cls", b"1")]
LATER = ["--infer-rows", "1"]


@pytest.mark.parametrize(
    ("entries", "flags", "message"),
    [
        ([], [], "it has no samples"),
        ([*ONE, ("../b.jpg", b"x")], [], 'entry "../b.jpg": its name is outside the archive'),
        ([*ONE, ("/etc/b.jpg", b"x")], [], 'entry "/etc/b.jpg": its name is outside the archive'),
        ([*ONE, ("a.CLS", b"2")], [], 'sample "a": two of its entries have the extension "cls"'),
        ([*ONE, ("b.jpg", b"x"), ("a.txt", b"x")], [], 'sample "a": its entries are not next to each other'),
        ([*ONE, ("README", b"x")], [], 'entry "README": its name has no extension'),
        ([*ONE, ("b.cls", b"1.5")], [], 'sample "b", column "cls": "1.5" is not Int64'),
        ([*ONE, ("b.cls", b"")], [], 'sample "b", column "cls"'),
        ([*ONE, ("b.txt", b"\xff")], [], 'sample "b", column "txt": it is not UTF-8; Utf8 is the type of .txt'),
        ([*ONE, ("b.txt", b"x")], LATER, 'column "txt": the first 1 samples do not have it: raise --infer-rows'),
        ([("a.json", b'{"x": 1}'), ("b.json", b'{"x": "y"}')], [], 'sample "b", column "json.x": it is a text here'),
        ([("a.json", b'{"x": 1}'), ("b.json", b'{"x": "y"}')], LATER, '"json.x": it is a text, the column is Int64'),
        ([("a.json", b'{"x": 1')], [], "it is not JSON"),
        ([*ONE, special("b.jpg", tarfile.SYMTYPE)], [], 'entry "b.jpg": it is a symbolic link'),
        ([*ONE, special("b.jpg", tarfile.LNKTYPE)], [], 'entry "b.jpg": it is a hard link'),
        ([*ONE, special("b.jpg", tarfile.FIFOTYPE)], [], 'entry "b.jpg": it is a pipe'),
        ([(f"a.{number}", b"") for number in range(1_001)], [], 'sample "a": it has more than 1000 entries'),
        ([(f"{number}.{number}", b"") for number in range(1_001)], [], "more than 1000 extensions"),
        (ONE, ["--type", "png=string"], "--type png=…: no file has this column; they have jpg, cls"),
    ],
)
def test_errors_name_the_entry(tmp_path: Path, entries: list[Entry], flags: list[str], message: str):
    done = convert(write_tar(tmp_path / "a.tar", entries), tmp_path / "out", *flags)
    assert done.code in (1, 2)
    assert message in done.error, done.error
    assert "a.tar" in done.error or "--type" in done.error
    assert not (tmp_path / "out").exists()


def test_archives_that_end_early_are_refused(tmp_path: Path):
    whole = tar_bytes([("a.jpg", b"x" * 1000), ("b.jpg", b"y" * 1000)])
    end = 2 * (512 + 1024)
    source = tmp_path / "a.tar"
    for size in [0, 1, 511, 512, 700, 1512, 1536, 2048, 2049, end - 1, end, end + 100]:
        source.write_bytes(whole[:size])
        done = convert(source, tmp_path / "out")
        assert (done.code, "the archive ends early, at byte" in done.error) == (1, True), (size, done.error)
    packed = gzip.compress(whole)
    (tmp_path / "a.tar.gz").write_bytes(packed[:-9])
    done = convert(tmp_path / "a.tar.gz", tmp_path / "out")
    assert (done.code, "a.tar.gz" in done.error) == (1, True), done.error
    # One block of zeros ends an archive, too.
    source.write_bytes(whole[: end + 512])
    assert convert(source, tmp_path / "out").table()["jpg"].to_pylist() == [b"x" * 1000, b"y" * 1000]


def test_archives_that_were_joined_lose_nothing(tmp_path: Path):
    (tmp_path / "a.tar").write_bytes(tar_bytes(ONE) + tar_bytes([("b.jpg", b"x")]))
    done = convert(tmp_path / "a.tar", tmp_path / "out")
    assert (done.code, "data follows its end" in done.error) == (1, True), done.error


def with_size(data: bytes, field: bytes) -> bytes:
    """The archive with another size in its first header, and its checksum."""
    header = bytearray(data[:512])
    header[124 : 124 + len(field)] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (b"77777777777\0", "a value has at most 64 MiB"),
        (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", "a value has at most 64 MiB"),
        (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "an entry declares"),
        (b"\xff" * 12, "the size of an entry is not a number"),
        (b"00000001751\0", "the archive ends early"),
    ],
)
def test_declared_sizes_allocate_nothing(tmp_path: Path, field: bytes, message: str):
    data = tar_bytes([("a.jpg", b"x" * 1000)])[: 512 + 1000]
    (tmp_path / "a.tar").write_bytes(with_size(data, field))
    done = convert(tmp_path / "a.tar", tmp_path / "out")
    assert (done.code, message in done.error) == (1, True), done.error


def test_damaged_headers_are_found(tmp_path: Path):
    whole = tar_bytes([("a.jpg", b"x" * 1000), ("b.jpg", b"y" * 1000)])
    random = Random(5)
    for start in (0, 1536):
        for _ in range(10):
            damaged = bytearray(whole)
            damaged[start + random.randrange(500)] ^= 1 << random.randrange(8)
            (tmp_path / "a.tar").write_bytes(damaged)
            done = convert(tmp_path / "a.tar", tmp_path / "out")
            assert (done.code, "the checksum of a header is wrong" in done.error) == (1, True), done.error


def test_memory_is_bounded(tmp_path: Path):
    image = Random(1).randbytes(1 << 20)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for row in range(400):
            info = tarfile.TarInfo(f"{row:04}.jpg")
            info.size = len(image)
            archive.addfile(info, io.BytesIO(row.to_bytes(8, "big") + image[8:]))
    peak = peak_bytes(tmp_path / "a.tar", tmp_path / "out")
    assert peak < 200 << 20, f"{peak} bytes of memory for 400 MiB of images"
