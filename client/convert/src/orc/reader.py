"""Read ORC files with pyarrow for `forebay convert`: requests on stdin, frames on stdout."""

import sys

# Modules of the working directory are not imported.
sys.path = [path for path in sys.path if path]

BATCH_ROWS = 1 << 16
BATCH_BYTES = 8 << 20


def number(value: int) -> bytes:
    """Return a number as it is sent."""
    return value.to_bytes(8, "little")


def send(kind: bytes, *parts: object) -> None:
    """Write a frame: its kind, the length of what it has, and that."""
    views = [memoryview(part) for part in parts]
    for view in (kind, number(sum(view.nbytes for view in views)), *views):
        sys.stdout.buffer.write(view)
    sys.stdout.buffer.flush()


try:
    import pyarrow as pa
    from pyarrow import orc
except ImportError as error:
    send(b"M", str(error).encode())
    sys.exit()
send(b"H")


def stream(schema: pa.Schema, *batches: pa.RecordBatch) -> pa.Buffer:
    """Return batches as a stream of Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def read(stored: object, is_whole: bool) -> None:
    """Send the number of rows with the schema, and then the rows of one stripe after the other."""
    file = orc.ORCFile(stored)
    send(b"S", number(file.nrows), stream(file.schema))
    for stripe in range(file.nstripes if is_whole else 0):
        rows = file.read_stripe(stripe)
        step = max(1, min(BATCH_ROWS, rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1)))
        for start in range(0, rows.num_rows, step):
            send(b"B", stream(rows.schema, rows.slice(start, step)))
        # Not kept while the next stripe is read.
        del rows
    send(b"D")


while kind := sys.stdin.buffer.read(1):
    length = int.from_bytes(sys.stdin.buffer.read(8), "little")
    path = sys.stdin.buffer.read(length)
    try:
        # A path must be UTF-8, and its file is mapped into memory, which raises the memory of this process.
        with open(path, "rb") as stored:
            read(stored, kind == b"R")
    # Any error of a library is returned, and the next file can be read.
    except Exception as error:
        send(b"E", str(error).encode(errors="replace"))
