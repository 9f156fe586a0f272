"""`TableStream`: a dataset as stored, as an Arrow stream for any library with the Arrow PyCapsule interface.

Reads in file order, and keeps no batch. A stream that breaks is not resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight

from .connection import Connection


class TableStream:
    """The rows of a dataset in file order, every column as stored; made by `Client.table`.

    A source for libraries that read Arrow streams: ``pl.DataFrame(flights)``, ``pd.DataFrame.from_arrow(flights)``,
    ``duckdb.sql("FROM flights")`` and ``pa.table(flights)``. Each reader opens the dataset again and requests batches
    as it needs them, so that an aggregate does not hold the table in memory. The libraries raise their own errors, with
    the message of Forebay's.

    Everything else of a ``pyarrow.Table``, such as ``num_rows``, ``to_pandas()`` and ``flights["carrier"]``, reads all
    rows into memory, each time.
    """

    def __init__(self, dataset: str, open_batches: Callable[[], TableBatches]) -> None:
        self.dataset = dataset
        self._open = open_batches

    def __repr__(self) -> str:
        return f"TableStream({self.dataset!r})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a PyCapsule of an Arrow stream over all rows."""
        return cast(Any, self.reader()).__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the table of all rows."""
        if name.startswith("_") or not hasattr(pa.Table, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.read(), name)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.read().num_rows

    def __getitem__(self, key: Any) -> Any:
        """Return a column by name or index, or a slice of the rows."""
        return cast(Any, self.read())[key]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the current files."""
        with contextlib.closing(self._open()) as batches:
            return batches.schema

    def reader(self) -> pa.RecordBatchReader:
        """Open the dataset; dropping the reader ends the stream."""
        batches = self._open()
        return pa.RecordBatchReader.from_batches(batches.schema, batches)

    def read(self) -> pa.Table:
        """Read all rows into memory."""
        return self.reader().read_all()


class TableBatches(Iterator[pa.RecordBatch]):
    """The record batches of one pass over a table. Owns its connection."""

    def __init__(self, connection: Connection, ticket: flight.Ticket) -> None:
        self._connection = connection
        self._reader: flight.FlightStreamReader | None = None
        try:
            self._reader = connection.get(ticket)
            with connection.translated():
                self.schema: pa.Schema = self._reader.schema
        except BaseException:
            self.close()
            raise

    def __next__(self) -> pa.RecordBatch:
        """Wait for the next record batch without holding the GIL."""
        while self._reader is not None:
            try:
                with self._connection.translated():
                    data = self._reader.read_chunk().data
            except BaseException:
                # The end of the table too.
                self.close()
                raise
            if data is not None:
                return data
        raise StopIteration

    def close(self) -> None:
        """Cancel the call and close the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(Exception):
                reader.cancel()
        self._connection.close()

    def __del__(self) -> None:
        self.close()
