"""Write the seeds of Avro, tar, TFRecord and MDS: `python server/fuzz/archive_seeds.py` with the package `harness`."""

import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.avros import block, header, long, record, text
from harness.mds import shard_bytes, size_of
from harness.tars import special, tar_bytes
from harness.tfrecords import example, framed

CORPUS = Path(__file__).parent / "corpus"

# Without the zeros that fill an archive to 10 KB.
BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)

ENTRIES = [
    ("a/0.jpg", b"\xff\xd8\xff"),
    ("a/0.json", b'{"x": 1, "t": [1.5, null]}'),
    ("a/0.cls", b"3"),
    ("a/1.jpg", b""),
    ("a/1.json", b'{"x": null}'),
    ("a/1.cls", b"-1"),
]
LONG_NAME = ("d" * 60 + "/" + "e" * 60 + "/2.txt", b"text")


def archive(entries: Sequence[tuple[str, bytes] | tarfile.TarInfo], form: int) -> bytes:
    """Return an input of the target `tar`."""
    data = tar_bytes(entries, form).rstrip(b"\0")
    return b"\1" + data + bytes(-len(data) % BLOCK_BYTES) + END


def shard(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], name: str = "shard.00000.mds") -> bytes:
    """Return an input of the target `mds`."""
    data = shard_bytes(columns, rows)
    entry = {
        "format": "mds",
        "samples": len(rows),
        "column_names": list(columns),
        "column_encodings": list(columns.values()),
        "column_sizes": [size_of(encoding) for encoding in columns.values()],
        "compression": None,
        "raw_data": {"basename": name, "bytes": len(data)},
    }
    return json.dumps({"version": 2, "shards": [entry]}).encode() + b"\0" + data


def seeds() -> dict[str, bytes]:
    """Return every seed, by its path in the corpus."""
    features = [
        {"x": [1, -2], "y": [0.5], "name": [b"ab", b""]},
        {"x": [3], "y": None},
        {"name": [b"\xff"], "x": [2**62]},
    ]
    examples = [example(row) for row in features]
    columns = {"id": "int", "x": "float32", "t": "str", "b": "bytes", "j": "json", "m": "ndarray:uint8:2,2"}
    rows = [
        {"id": i, "x": i / 2, "t": "ab" * i, "b": b"\0\1" * i, "j": {"k": [i, None]}, "m": [[1, 2], [3, i]]}
        for i in range(3)
    ]
    numbers = {"a": "int8", "b": "uint64", "c": "float16"}, [{"a": -1, "b": 2**64 - 1, "c": 1.5}]
    kinds = record(
        {
            "i": ["null", "int"],
            "s": "string",
            "d": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "e": {"type": "enum", "name": "e", "symbols": ["A", "B"]},
            "f": {"type": "fixed", "name": "f", "size": 2},
            "l": {"type": "array", "items": ["null", "f"]},
            "m": {
                "type": "map",
                "values": {"type": "record", "name": "p", "fields": [{"name": "x", "type": "double"}]},
            },
            "t": {"type": "long", "logicalType": "timestamp-micros"},
            "b": "boolean",
        }
    )
    lists = long(2) + b"\0\2zz" + long(0), long(1) + text(b"k") + struct.pack("<d", 1.5) + long(0)
    row = b"\2\7" + text(b"ab") + text(b"\1\x7f") + b"\2" + b"xy" + b"".join(lists) + long(10**15) + b"\1"
    short = b'["null",{"type":"array","items":"string"}]'
    plain = b'{"type":"record","name":"r","fields":[{"name":"x","type":' + short + b"}]}"
    return {
        "avro/types": b"\1" + json.dumps(kinds).encode() + b"\0" + b"\2" + row + row,
        "avro/strings": b"\1" + plain + b"\0" + b"\3" + b"\0" + b"\2\2" + text(b"a") + b"\0" + b"\2\0",
        "avro/file": b"\0" + header(record({"x": "long"})) + block(2, b"\2\4") + block(1, b"\6"),
        "tar/ustar": archive(ENTRIES, tarfile.USTAR_FORMAT),
        "tar/gnu": archive([*ENTRIES[:2], LONG_NAME], tarfile.GNU_FORMAT),
        "tar/pax": archive([*ENTRIES[:2], LONG_NAME], tarfile.PAX_FORMAT),
        "tar/link": archive([("0.txt", b"x"), special("1.txt", tarfile.SYMTYPE)], tarfile.USTAR_FORMAT),
        "tfrecord/examples": b"\1" + b"".join(struct.pack("<H", len(one)) + one for one in examples),
        "tfrecord/file": b"\0" + b"".join(framed(one) for one in examples),
        "tfrecord/empty": b"\1" + struct.pack("<H", 0),
        "mds/columns": shard(columns, rows),
        "mds/numbers": shard(*numbers),
        "mds/missing-shard": shard(*numbers, name="another\x7f.mds"),
    }


for path, data in seeds().items():
    (CORPUS / path).parent.mkdir(exist_ok=True)
    (CORPUS / path).write_bytes(data)
