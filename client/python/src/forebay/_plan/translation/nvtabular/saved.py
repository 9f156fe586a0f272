"""Reads the folder of a saved workflow: its metadata, its pickle, and the Parquet files of its categories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from .node import fields_of
from .pickled import BYTES_MAX, read_pickle

VERSION_READ = "23.08"
METADATA_BYTES_MAX = 1 << 20
# A vocabulary of ten million texts of 20 characters.
CATEGORIES_BYTES_MAX = 256 << 20
# The index of a column's first value: after 0, which is for padding, null and unknown values.
FIRST = 3


class SavedWorkflow:
    """A folder that ``workflow.save`` wrote."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.pickle = str(self._folder / "workflow.pkl")
        if not self._folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; pass the folder that workflow.save(…) wrote")
        self._check_version()

    def output_node(self) -> Any:
        """Return the last node of the workflow's graph."""
        workflow = read_pickle(self.pickle, self._bytes("workflow.pkl", BYTES_MAX))
        graph = fields_of(self.pickle, workflow, "Workflow").get("graph")
        return fields_of(self.pickle, graph, "Graph").get("output_node")

    def categories(self, recorded: object, column: str) -> list[Any]:
        """Return the values that Categorify numbers, in order, from the file that it recorded when it was saved."""
        name = PurePosixPath(recorded.replace("\\", "/")).name if isinstance(recorded, str) else ""
        if not name:
            raise ValueError(f"{self.pickle}: no file of categories of column {column!r}; save the workflow again")
        where = f"categories/{name}"
        data = self._bytes(where, CATEGORIES_BYTES_MAX)
        try:
            table = cast(Any, pq).read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{self._folder / where}: not a readable Parquet file: {error}; copy it again") from error
        if column not in table.column_names:
            raise ValueError(f"{self._folder / where}: has no column {column!r}; save the workflow again")
        values = cast("list[Any]", table[column].to_pylist())
        if any(value is None or value != value for value in values) or len(set(values)) < len(values):
            raise ValueError(f"{self._folder / where}: values must be distinct, without null and NaN; fit it again")
        if _start(table.schema.metadata) not in (None, 0, FIRST):
            raise ValueError(f"{self._folder / where}: its index does not start at {FIRST}; save the workflow again")
        return values

    def _check_version(self) -> None:
        try:
            found = json.loads(self._bytes("metadata.json", METADATA_BYTES_MAX))
            version = str(found["versions"]["nvtabular"])
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError) as error:
            raise ValueError(f"{self._folder / 'metadata.json'}: not the metadata of a workflow: {error!r}") from error
        if not version.startswith(f"{VERSION_READ}."):
            raise ValueError(
                f"the workflow was saved by NVTabular {version}; this package reads {VERSION_READ}: fit and save it "
                "with that version"
            )

    def _bytes(self, name: str, limit: int) -> bytes:
        path = self._folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; copy the whole folder that workflow.save(…) wrote")
        size = path.stat().st_size
        if size > limit:
            raise ValueError(f"{path}: has {size} bytes, the limit is {limit}")
        return path.read_bytes()


def _start(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the first number of the index that pandas recorded; None without a record."""
    try:
        (index,) = json.loads((metadata or {})[b"pandas"])["index_columns"]
        return int(index["start"])
    except (LookupError, TypeError, ValueError):
        return None
