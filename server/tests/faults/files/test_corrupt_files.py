"""Files damaged in two hundred ways: a result or a clear error, and a server that keeps serving."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, info, raw_table

# Not ABORTED: no file changes after the request, and clients would retry indefinitely.
# A file with the mark of encryption is refused with UNIMPLEMENTED.
ALLOWED = ("DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")
RESIDENT_BYTES_MAX = 1_500_000_000
CASES_A_BATCH = 20
HASH = [{"fill_null": {"text": "none"}}, {"hash_bucket": {"buckets": 9}}]
PLAN: dict[str, Any] = {
    "filter": "id >= 3 AND (word IS NULL OR word <> 'k3')",
    "derive": [{"name": "twice", "expr": "number * 2"}],
    "outputs": [
        {"name": "dense", "parts": [{"columns": ["number", "twice"], "ops": [{"fill_null": {"value": 0}}]}]},
        {"name": "key", "dtype": "INT64", "parts": [{"columns": ["word"], "ops": HASH}]},
        {"name": "list", "dtype": "AS_STORED", "parts": [{"columns": ["list"]}]},
    ],
}

Damage = tuple[str, bytes]


def table() -> pa.Table:
    n = np.arange(1000)
    return pa.table(
        {
            "id": n,
            "number": pa.array(n / 7, mask=n % 5 == 0),
            "word": pa.array([None if i % 11 == 0 else f"k{i % 20}" for i in n]),
            "unique": pa.array([f"word {i}" for i in n]),
            "list": pa.array([[i] * (i % 4) for i in n], pa.list_(pa.int16())),
            "flag": pa.array(n % 3 == 0),
        }
    )


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False, "write_page_index": True},
    "dictionary": {"compression": "none", "data_page_size": 500, "write_batch_size": 50},
    "zstd-v2": {"compression": "zstd", "data_page_version": "2.0"},
    "delta": {
        "compression": "none",
        "data_page_version": "2.0",
        "use_dictionary": ["word"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "unique": "DELTA_BYTE_ARRAY", "number": "BYTE_STREAM_SPLIT"},
    },
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corrupt")
    for name in ("good", "bad"):
        (root / name).mkdir()
        pq.write_table(table(), root / name / "a.parquet", row_group_size=300)
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({"good": root / "good", "bad": root / "bad"})


def layout(root: Path, name: str) -> bytes:
    path = root / f"{name}.layout"
    pq.write_table(table(), path, row_group_size=300, **LAYOUTS[name])
    return path.read_bytes()


def footer_start(data: bytes) -> int:
    return len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]


def at_random(data: bytes, seed: int) -> Iterator[Damage]:
    """Bits and bytes anywhere, footer and pages alike."""
    choose = random.Random(seed)
    footer = footer_start(data)
    for case in range(CASES_A_BATCH):
        damaged = bytearray(data)
        # Two in three hit the footer or a page's header: there are the lengths, counts and offsets.
        low, high = [(4, footer), (footer, len(data) - 8), (4, len(data))][case % 3]
        for _ in range(choose.choice((1, 1, 3))):
            place = choose.randrange(low, high)
            damaged[place] = choose.choice((damaged[place] ^ 1 << choose.randrange(8), choose.randrange(256), 0xFF, 0))
        yield f"seed {seed}, case {case}", bytes(damaged)


def at_page_headers(data: bytes, path: Path) -> Iterator[Damage]:
    """Every small place at the start of each column chunk: the header of its dictionary or first page."""
    metadata = pq.ParquetFile(path).metadata
    choose = random.Random(99)
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        for place in choose.sample(range(start, start + 24), 4):
            damaged = bytearray(data)
            damaged[place] = choose.choice((0x7F, 0xFF, 0x80, damaged[place] + 2 & 0xFF))
            yield f"{chunk.path_in_schema}, header byte {place - start}", bytes(damaged)


def truncations(data: bytes) -> Iterator[Damage]:
    choose = random.Random(7)
    ends = [0, 1, 4, 7, 8, 11, 12, len(data) - 1, len(data) - 4, len(data) - 8, len(data) - 9, footer_start(data)]
    for end in ends + [choose.randrange(12, len(data)) for _ in range(8)]:
        yield f"cut to {end} bytes", data[:end]
        if end % 3 == 0:
            # As a copy that was interrupted, its end in place.
            yield f"{end} bytes and an end", data[:end] + data[-8:]


def lies_of_the_footer(data: bytes) -> Iterator[Damage]:
    true = struct.unpack("<I", data[-8:-4])[0]
    for length in (0, 1, 7, true - 1, true + 1, len(data) - 12, len(data) - 8, len(data), 2**31 - 1, 2**31, 2**32 - 1):
        yield f"footer of {length} bytes", data[:-8] + struct.pack("<I", length) + b"PAR1"
    yield "encrypted footer", data[:-4] + b"PARE"
    yield "no magic", data[:-4] + b"\0\0\0\0"
    yield "footer of zeros", data[: footer_start(data)] + bytes(true) + data[-8:]
    yield "footer of 0xFF", data[: footer_start(data)] + b"\xff" * true + data[-8:]
    yield "footer twice as long, half of it zeros", data[:-8] + bytes(true) + struct.pack("<I", 2 * true) + b"PAR1"
    yield "two files end to end", data + data
    yield "pages of zeros", data[:4] + bytes(footer_start(data) - 4) + data[footer_start(data) :]
    yield "pages of 0xFF", data[:4] + b"\xff" * (footer_start(data) - 4) + data[footer_start(data) :]


def lies_about_rows(data: bytes) -> Iterator[Damage]:
    """Every place of the footer that says 300, the rows of a row group and the values of its columns."""

    def varint(number: int) -> bytes:
        return bytes([2 * number & 0x7F | 0x80, 2 * number >> 7])

    for place in range(footer_start(data), len(data) - 8):
        if data[place : place + 2] == varint(300):
            for rows in (299, 301, 8000):
                yield f"byte {place} says {rows} rows, not 300", data[:place] + varint(rows) + data[place + 2 :]


def code(call: Any) -> tuple[str, str]:
    """The code that a call ends with, OK where it ends well."""
    try:
        call()
    except (pa.ArrowException, fl.FlightError) as raised:
        error = translate(raised)
        return error.code, str(error)
    return "OK", ""


def streams(client: fl.FlightClient) -> list[tuple[str, str]]:
    def features(requested: dict[str, Any]) -> None:
        client.do_get(info(client, {"dataset": "bad", "plan": requested}).endpoints[0].ticket).read_all()

    unfiltered = {"outputs": PLAN["outputs"][1:]}
    return [code(lambda: raw_table(client, "bad")), code(lambda: features(PLAN)), code(lambda: features(unfiltered))]


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def check(server: Server, root: Path, cases: Iterator[Damage]) -> dict[str, int]:
    """Serve every damaged file; returns a count of each code."""
    seen: dict[str, int] = {}
    wrong: list[str] = []
    with fl.connect(server.url) as client:
        for name, data in cases:
            # Replace the file atomically, as a writer would.
            (root / "_new").write_bytes(data)
            (root / "_new").rename(root / "bad/a.parquet")
            for found, words in streams(client):
                seen[found] = seen.get(found, 0) + 1
                if found != "OK" and (found not in ALLOWED or "panic" in words):
                    wrong.append(f"{name}: {found}: {words[:300]}")
                if found == "DATA_LOSS" and "a.parquet" not in words:
                    wrong.append(f"{name}: names no file: {words[:300]}")
            assert server.alive, name
        assert raw_table(client, "good").equals(table())
    assert wrong == [], f"{len(wrong)} of {sum(seen.values())}"
    assert resident_bytes(server) < RESIDENT_BYTES_MAX
    return seen


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", LAYOUTS)
def test_flipped_bytes(server: Server, root: Path, name: str, seed: int):
    seen = check(server, root, at_random(layout(root, name), seed))
    assert seen.get("DATA_LOSS", 0) > 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_page_headers(server: Server, root: Path, name: str):
    data = layout(root, name)
    check(server, root, at_page_headers(data, root / f"{name}.layout"))


def test_truncated_files_are_detected(server: Server, root: Path):
    seen = check(server, root, truncations(layout(root, "dictionary")))
    assert "OK" not in seen


def test_corrupt_footers(server: Server, root: Path):
    seen = check(server, root, lies_of_the_footer(layout(root, "plain")))
    assert seen["DATA_LOSS"] > 40


def test_wrong_row_counts(server: Server, root: Path):
    check(server, root, lies_about_rows(layout(root, "plain")))


def test_repaired_file_is_served(server: Server, root: Path):
    (root / "_new").write_bytes(layout(root, "plain"))
    (root / "_new").rename(root / "bad/a.parquet")
    with fl.connect(server.url) as client:
        assert raw_table(client, "bad").equals(table())
        assert [found for found, _ in streams(client)] == ["OK"] * 3
