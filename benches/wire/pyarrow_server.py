"""pyarrow's Flight server (C++) with prepared batches, [rows, columns] float32 in one column, or in as many columns.

Arguments: columns, rows, and `table` for many columns. Exits when stdin closes.
"""

from __future__ import annotations

import itertools
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

# The same number as in `server.rs`.
BATCHES = 16


class Prepared(fl.FlightServerBase):
    """Sends the number of batches that the ticket contains, entirely in C++."""

    def __init__(self, columns: int, rows: int, is_table: bool) -> None:
        super().__init__("grpc://127.0.0.1:0")
        values = np.arange(rows * columns, dtype=np.float32)
        if is_table:
            self._schema = pa.schema([(f"x{number}", pa.float32()) for number in range(columns)])
            parts = [np.split(values + number, columns) for number in range(BATCHES)]
            self._batches = [pa.RecordBatch.from_arrays([pa.array(x) for x in p], schema=self._schema) for p in parts]
            return
        lists = [pa.FixedSizeListArray.from_arrays(pa.array(values + number), columns) for number in range(BATCHES)]
        self._schema = pa.schema([pa.field("x", pa.list_(pa.float32(), columns), nullable=False)])
        self._batches = [pa.RecordBatch.from_arrays([one], schema=self._schema) for one in lists]

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """Send the batches."""
        sent = list(itertools.islice(itertools.cycle(self._batches), int(ticket.ticket)))
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(self._schema, sent))


def main() -> None:
    """Serve until stdin closes."""
    columns, rows = (int(argument) for argument in sys.argv[1:3])
    server = Prepared(columns, rows, "table" in sys.argv[3:])
    print(f"127.0.0.1:{server.port}", flush=True)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
