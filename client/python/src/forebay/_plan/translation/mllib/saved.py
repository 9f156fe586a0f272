"""Reads a model that Spark saved: a folder of JSON metadata and Parquet data per stage. Needs no Spark and no Java."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from .stage import MllibStage

PIPELINE = "org.apache.spark.ml.PipelineModel"
METADATA_BYTES_MAX = 16 << 20
# A vocabulary of ten million labels of 20 characters.
DATA_BYTES_MAX = 256 << 20
NESTING_MAX = 16
# Elements of a vector: a sparse one may declare any size.
VECTOR_SIZE_MAX = 1 << 20
# A uid names a folder.
UID = re.compile(r"[\w.-]*\w[\w.-]*")

Files = Any
"""A `pyarrow.fs.FileSystem`."""


class Saved(NamedTuple):
    """The stages of a saved model, and the Spark version that saved it."""

    stages: list[MllibStage]
    version: str


def read_saved(location: str, with_data: frozenset[str]) -> Saved:
    """Read the model at a path or URI. Data is read for stages of the classes `with_data` only."""
    files, root = _opened(location)
    return Saved(list(_stages(files, root, with_data, 0)), _version(_metadata(files, root), root))


def _opened(location: str) -> tuple[Files, str]:
    system = cast(Any, fs)
    if "://" in location:
        files, root = system.FileSystem.from_uri(location)
    else:
        files, root = system.LocalFileSystem(), location
    root = str(root).rstrip("/") or "/"
    if files.get_file_info(root).type != fs.FileType.Directory:
        raise FileNotFoundError(f"{location}: no such folder; pass the folder that model.save(…) wrote")
    return files, root


def _stages(files: Files, folder: str, with_data: frozenset[str], depth: int) -> list[MllibStage]:
    metadata = _metadata(files, folder)
    class_name, uid = (_text(metadata, name, folder) for name in ("class", "uid"))
    params, defaults = (_object(metadata, name, folder) for name in ("paramMap", "defaultParamMap"))
    if class_name != PIPELINE:
        learned = _data(files, folder) if class_name in with_data else {}
        return [MllibStage(uid, class_name, params, defaults, learned)]
    if depth >= NESTING_MAX:
        raise ValueError(f"{folder}: pipelines are nested more than {NESTING_MAX} deep")
    uids = params.get("stageUids")
    if not isinstance(uids, list) or not all(_is_uid(one) for one in cast("list[object]", uids)):
        raise ValueError(f"{folder}/metadata: stageUids must be a list of the stages' uids, not {uids!r}")
    listed = cast("list[str]", uids)
    digits = len(str(len(listed)))
    found: list[MllibStage] = []
    for index, one in enumerate(listed):
        found += _stages(files, f"{folder}/stages/{index:0{digits}d}_{one}", with_data, depth + 1)
    return found


def _is_uid(uid: object) -> bool:
    return isinstance(uid, str) and UID.fullmatch(uid) is not None


def _metadata(files: Files, folder: str) -> dict[str, Any]:
    """Return the JSON object in the folder's metadata."""
    parts = _parts(files, f"{folder}/metadata")
    if not parts:
        raise FileNotFoundError(f"{folder}/metadata: no such folder, or it is empty; copy the whole model folder")
    if sum(part.size for part in parts) > METADATA_BYTES_MAX:
        raise ValueError(f"{folder}/metadata: exceeds the limit of {METADATA_BYTES_MAX} bytes")
    text = b"".join(_bytes(files, part.path) for part in parts)
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{folder}/metadata: not JSON, or truncated: {error}; save or copy the model again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{folder}/metadata: must be a JSON object; it is not a model of Spark MLlib")
    return cast("dict[str, Any]", found)


def _data(files: Files, folder: str) -> dict[str, Any]:
    """Return the one row of the folder's Parquet data."""
    where = f"{folder}/data"
    parts = _parts(files, where)
    if not parts:
        raise FileNotFoundError(f"{where}: no such folder, or it is empty; copy the whole model folder")
    if sum(part.size for part in parts) > DATA_BYTES_MAX:
        raise ValueError(f"{where}: exceeds the limit of {DATA_BYTES_MAX} bytes")
    rows: list[Mapping[str, Any]] = []
    for part in parts:
        try:
            table = cast(Any, pq).read_table(part.path, filesystem=files, partitioning=None)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{part.path}: not a readable Parquet file: {error}; copy the model again") from error
        rows += cast("list[Mapping[str, Any]]", table.slice(0, 2).to_pylist())
    if len(rows) != 1:
        raise ValueError(f"{where}: has {len(rows) or 'no'} rows, and a model has one; save the model again")
    return {name: _plain(f"{where}: {name}", value) for name, value in rows[0].items()}


def _plain(where: str, value: Any) -> Any:
    """Return a value of Spark's vector type as an array; others unchanged."""
    if not isinstance(value, dict):
        return value
    vector = cast("dict[str, Any]", value)
    if set(vector) != {"type", "size", "indices", "values"}:
        return vector
    values = np.array(vector["values"] or [], np.float64)
    if vector["type"] == 1:
        return values
    size, indices = vector["size"], np.array(vector["indices"] or [], np.int64)
    in_range = isinstance(size, int) and 0 <= size <= VECTOR_SIZE_MAX
    if not in_range or len(indices) != len(values) or (len(indices) and not 0 <= indices.min() <= indices.max() < size):
        raise ValueError(f"{where}: not a vector of up to {VECTOR_SIZE_MAX} elements; copy the model again")
    dense = np.zeros(size)
    dense[indices] = values
    return dense


def _parts(files: Files, folder: str) -> list[Any]:
    """Return the files of a folder that Spark wrote, in order, without its markers and checksums."""
    selector = cast(Any, fs).FileSelector(folder, allow_not_found=True)
    found = [one for one in files.get_file_info(selector) if one.type == fs.FileType.File]
    return sorted((one for one in found if not one.base_name.startswith(("_", "."))), key=lambda one: one.path)


def _bytes(files: Files, path: str) -> bytes:
    with files.open_input_stream(path) as opened:
        return cast(bytes, opened.read())


def _version(metadata: Mapping[str, Any], folder: str) -> str:
    return _text(metadata, "sparkVersion", folder)


def _text(metadata: Mapping[str, Any], name: str, folder: str) -> str:
    value = metadata.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{folder}/metadata: {name} must be text, not {value!r}; it is not a model of Spark MLlib")
    return value


def _object(metadata: Mapping[str, Any], name: str, folder: str) -> dict[str, Any]:
    value = metadata.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{folder}/metadata: {name} must be an object, not {value!r}")
    return cast("dict[str, Any]", value)
