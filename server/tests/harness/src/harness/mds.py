"""Folders of MDS shards, written without MosaicML Streaming."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SCALARS = {"int": "<i8", **{f"{kind}{bits}": f"<{kind[0]}{bits // 8}" for kind, bits in [
    ("int", 8), ("int", 16), ("int", 32), ("int", 64), ("uint", 8), ("uint", 16), ("uint", 32), ("uint", 64),
    ("float", 16), ("float", 32), ("float", 64),
]}}  # fmt: skip

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "gz": gzip.compress,
    "br": lambda data: pa.Codec("brotli").compress(data, asbytes=True),
}


def size_of(encoding: str) -> int | None:
    """Bytes of a value of an encoding; `None` if they vary."""
    if encoding in SCALARS:
        return np.dtype(SCALARS[encoding]).itemsize
    if encoding.startswith("ndarray:"):
        _, kind, shape = encoding.split(":")
        return int(np.prod([int(length) for length in shape.split(",")])) * np.dtype(SCALARS[kind]).itemsize
    return None


def encode(encoding: str, value: Any) -> bytes:
    """A value as it is stored."""
    if isinstance(value, bytes):
        return value
    if encoding in SCALARS:
        return np.array(value, SCALARS[encoding]).tobytes()
    if encoding.startswith("ndarray:"):
        return np.array(value, SCALARS[encoding.split(":")[1]]).tobytes()
    return (json.dumps(value) if encoding == "json" else str(value)).encode()


def shard_bytes(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A shard without compression."""
    samples = []
    for row in rows:
        values = [encode(encoding, row[name]) for name, encoding in columns.items()]
        sizes = [len(value) for value, kind in zip(values, columns.values(), strict=True) if size_of(kind) is None]
        samples.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
    description = json.dumps({"columns": dict(columns)}).encode()
    offsets = [4 * (len(rows) + 2) + len(description)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(rows) + 2}I", len(rows), *offsets) + description + b"".join(samples)


def write_mds(
    folder: Path,
    columns: Mapping[str, str],
    shards: Sequence[Sequence[Mapping[str, Any]]],
    codec: str | None = None,
) -> Path:
    """Write shards with their index and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, rows in enumerate(shards):
        name, data = f"shard.{number:05}.mds", shard_bytes(columns, rows)
        zipped = None
        if codec is None:
            (folder / name).write_bytes(data)
        else:
            packed = CODECS[codec.split(":")[0]](data)
            (folder / f"{name}.{codec.split(':')[0]}").write_bytes(packed)
            zipped = {"basename": f"{name}.{codec.split(':')[0]}", "bytes": len(packed), "hashes": {}}
        entries.append(
            {
                "column_names": list(columns),
                "column_encodings": list(columns.values()),
                "column_sizes": [size_of(encoding) for encoding in columns.values()],
                "compression": codec,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "samples": len(rows),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": zipped,
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    return folder


def edit_index(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change the index of a folder."""
    index = json.loads((folder / "index.json").read_text())
    edit(index)
    (folder / "index.json").write_text(json.dumps(index))
