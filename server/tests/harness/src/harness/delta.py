"""Delta tables whose logs are written by hand, for what PyPI's `deltalake` does not write."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq

LOG = "_delta_log"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
PORTABLE_MAGIC = 1681511377
ROARING_COOKIE = 12346
ARRAY_MAX = 4096

Action = dict[str, Any]


def z85(data: bytes) -> str:
    """ZeroMQ's base 85 of whole words."""
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(Z85[word // 85**place % 85] for place in range(4, -1, -1))
    return text


def roaring(rows: Sequence[int]) -> bytes:
    """The portable form of a bitmap of 64-bit numbers, as Delta has it."""
    bitmaps: dict[int, dict[int, list[int]]] = {}
    for row in sorted(rows):
        bitmaps.setdefault(row >> 32, {}).setdefault(row >> 16 & 0xFFFF, []).append(row & 0xFFFF)
    out = struct.pack("<IQ", PORTABLE_MAGIC, len(bitmaps))
    for high, containers in bitmaps.items():
        bodies: list[bytes] = []
        for values in containers.values():
            if len(values) <= ARRAY_MAX:
                bodies.append(struct.pack(f"<{len(values)}H", *values))
            else:
                bits = sum(1 << value for value in values)
                bodies.append(bits.to_bytes(8192, "little"))
        out += struct.pack("<III", high, ROARING_COOKIE, len(containers))
        out += b"".join(struct.pack("<HH", key, len(values) - 1) for key, values in containers.items())
        start = 8 + 8 * len(containers)
        for body in bodies:
            out += struct.pack("<I", start)
            start += len(body)
        out += b"".join(bodies)
    return out


def inline_vector(rows: Sequence[int]) -> Action:
    """A deletion vector in the log itself."""
    body = roaring(rows)
    padded = body + bytes(-len(body) % 4)
    return {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": len(body), "cardinality": len(rows)}


def stored_vectors(table: Path, of_files: Sequence[Sequence[int]]) -> list[Action]:
    """Deletion vectors in one file next to the data."""
    name = uuid.uuid4()
    data, vectors = b"\x01", list[Action]()
    for rows in of_files:
        body = roaring(rows)
        vectors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": z85(name.bytes),
                "offset": len(data),
                "sizeInBytes": len(body),
                "cardinality": len(rows),
            }
        )
        data += struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    (table / f"deletion_vector_{name}.bin").write_bytes(data)
    return vectors


def field(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> Action:
    """A column of a schema."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def commit_file(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.json"


def commit(table: Path, version: int, *actions: Action) -> None:
    """Write a version."""
    (table / LOG).mkdir(parents=True, exist_ok=True)
    commit_file(table, version).write_text("".join(json.dumps(action) + "\n" for action in actions))


def start(
    fields: Sequence[Action],
    *,
    partitions: Sequence[str] = (),
    features: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
) -> list[Action]:
    """The actions that begin a table."""
    protocol: Action = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": list(features),
        }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
        "partitionColumns": list(partitions),
        "configuration": dict(configuration or {}),
        "createdTime": 0,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def add(
    table: Path, file: str, *, vector: Action | None = None, values: Mapping[str, str | None] | None = None
) -> Action:
    """A data file of the table."""
    action: Action = {
        "path": quote(file),
        "partitionValues": dict(values or {}),
        "size": (table / file).stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": pq.read_metadata(table / file).num_rows}),
    }
    if vector:
        action["deletionVector"] = vector
    return {"add": action}


def remove(file: str, *, vector: Action | None = None) -> Action:
    """The end of a data file."""
    action: Action = {"path": quote(file), "deletionTimestamp": 0, "dataChange": True}
    if vector:
        action["deletionVector"] = vector
    return {"remove": action}
