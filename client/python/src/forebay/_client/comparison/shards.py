"""Reads Parquet files in order, in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as fs

Location = str | os.PathLike[str]


class Shards:
    """Parquet files of one schema: a file, a folder, a URI, or a list of these.

    Files of a folder are read in the order of their paths, those that start with ``_`` or ``.`` are not read, and
    folders ``key=value`` are columns.
    """

    def __init__(self, locations: Location | Sequence[Location]) -> None:
        listed = [locations] if isinstance(locations, (str, os.PathLike)) else list(locations)
        if not listed:
            raise ValueError("shards is empty: pass the folder or the Parquet files that the old job wrote")
        self._name = ", ".join([os.fspath(one) for one in listed[:3]])
        try:
            parts = [_dataset(os.fspath(one)) for one in listed]
            self._fragments = [fragment for part in parts for fragment in _fragments(part)]
            self.schema: pa.Schema = parts[0].schema
        except (pa.ArrowException, OSError) as error:
            raise _readable(self._name, error) from error
        if not self._fragments:
            raise FileNotFoundError(f"{self._name}: no Parquet files")

    def rows(self) -> int:
        """Return the number of rows, from the footers."""
        try:
            return sum(int(fragment.count_rows()) for fragment in self._fragments)
        except (pa.ArrowException, OSError) as error:
            raise _readable(self._name, error) from error

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns in batches of up to a number of rows."""
        for fragment in self._fragments:
            scanner = fragment.to_batches(
                schema=self.schema, columns=list(columns), batch_size=batch_size, batch_readahead=1, use_threads=False
            )
            while True:
                try:
                    batch = next(scanner)
                except StopIteration:
                    break
                except (pa.ArrowException, OSError) as error:
                    raise _readable(str(fragment.path), error) from error
                if batch.num_rows:
                    yield batch


def _dataset(location: str) -> Any:
    """Return the dataset of a file, a folder or a URI."""
    system: Any = fs
    if "://" in location:
        files, path = system.FileSystem.from_uri(location)
    else:
        files, path = system.LocalFileSystem(), os.path.abspath(location)
    if files.get_file_info(path).type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{location}: no such file or folder")
    # Here, as it imports pandas, which takes longer than all of this package.
    import pyarrow.dataset as ds

    return cast(Any, ds).dataset(path, filesystem=files, format="parquet", partitioning="hive")


def _fragments(dataset: Any) -> list[Any]:
    return sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)


def _readable(name: str, error: BaseException) -> Exception:
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(str(error))
    return ValueError(f"{name}: not readable Parquet files of one schema: {error}")
