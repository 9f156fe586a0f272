"""The contenders: script, environment and deviations from the task of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Strings(Enum):
    """Treatment of strings."""

    VOCABULARY = "its index in the vocabulary of all rows"
    HASH = "a hash of it instead of a vocabulary"
    CODES = "its code in the dictionary of its chunk, no vocabulary"


@dataclass(frozen=True)
class Entry:
    """One contender."""

    name: str
    """Name for --only; with underscores, the script under contenders/."""
    title: str
    strings: Strings
    environment: str = ""
    """File under requirements/; if empty, the project's environment is used."""
    in_order: bool = True
    """Whether rows arrive in file order."""
    bounded: bool = False
    """Whether the epoch is stopped after --seconds-max."""
    slow: bool = False
    """Whether --skip-slow excludes it."""
    remarks: str = ""

    @property
    def script(self) -> str:
        """File name of the script."""
        return self.name.replace("-", "_") + ".py"

    @property
    def is_forebay(self) -> bool:
        """Whether this contender is Forebay."""
        return self.name.startswith("forebay")

    @property
    def differs(self) -> str:
        """Deviations from Forebay's work, for the table."""
        parts = [] if self.strings is Strings.VOCABULARY else [f"a string is {self.strings.value}"]
        if self.remarks:
            parts.append(self.remarks)
        return "; ".join(parts)


FILE_ORDER, SHUFFLED = "forebay-client", "forebay-shuffled"
RING, RING_SHUFFLED = "forebay-ring", "forebay-ring-shuffled"
POLARS, VOCABULARY, RAY, SPARK = "polars-hash", "polars-vocabulary", "ray-data", "spark-handoff"

LINEUP = (
    Entry(FILE_ORDER, "Forebay, FlightDataset", Strings.VOCABULARY, remarks="tensors cross a socket"),
    Entry(
        SHUFFLED,
        "Forebay, FlightDataset, shuffled",
        Strings.VOCABULARY,
        in_order=False,
        remarks="tensors cross a socket; shuffled",
    ),
    Entry(RING, "Forebay, FlightDataset, ring", Strings.VOCABULARY, remarks="tensors in shared memory"),
    Entry(
        RING_SHUFFLED,
        "Forebay, FlightDataset, ring, shuffled",
        Strings.VOCABULARY,
        in_order=False,
        remarks="tensors in shared memory; shuffled",
    ),
    Entry("forebay-bare", "Forebay, bare pyarrow.flight", Strings.VOCABULARY, remarks="tensors cross a socket"),
    Entry(POLARS, "Polars: scan, expressions", Strings.HASH, "polars"),
    Entry(VOCABULARY, "Polars: scan, expressions, Enum", Strings.VOCABULARY, "polars"),
    Entry("duckdb-sql", "DuckDB: SQL to Arrow", Strings.HASH, "duckdb"),
    Entry("pyarrow-vocabulary", "pyarrow.dataset, index_in", Strings.VOCABULARY, "pyarrow"),
    Entry("pyarrow-codes", "pyarrow.dataset, dictionary codes", Strings.CODES, "pyarrow"),
    Entry("torch-loader", "torch DataLoader, 2 workers, pyarrow", Strings.CODES, "pyarrow"),
    Entry("daft-frames", "Daft: read_parquet, expressions", Strings.HASH, "daft"),
    Entry("huggingface", "Hugging Face datasets, streaming", Strings.CODES, "datasets"),
    Entry(
        "huggingface-shuffled",
        "Hugging Face datasets, streaming, shuffled",
        Strings.CODES,
        "datasets",
        in_order=False,
        bounded=True,
        slow=True,
        remarks="shuffled in a buffer of 20,000 rows",
    ),
    Entry(
        RAY,
        "Ray Data: map_batches, iter_torch_batches",
        Strings.CODES,
        "ray",
        in_order=False,
        slow=True,
        remarks="blocks in any order",
    ),
    Entry(
        SPARK,
        "Spark pandas_udf, Parquet, pyarrow",
        Strings.HASH,
        "spark",
        in_order=False,
        slow=True,
        remarks="first batch after everything is written",
    ),
    Entry(
        "mosaicml-mds",
        "MosaicML streaming, shuffled",
        Strings.CODES,
        "mosaicml",
        in_order=False,
        bounded=True,
        slow=True,
        remarks="shuffled; reads features written beforehand, which is not measured",
    ),
    Entry(
        "grain-parquet",
        "Grain over Parquet",
        Strings.CODES,
        "grain",
        in_order=False,
        bounded=True,
        slow=True,
        remarks="files interleaved",
    ),
)


@dataclass(frozen=True)
class Goal:
    """Target ratio of a contender's rate to a peer's."""

    ours: str
    peer: str
    ratio: float


GOALS = (
    Goal(FILE_ORDER, POLARS, 1.7),
    Goal(FILE_ORDER, VOCABULARY, 2),
    Goal(FILE_ORDER, RAY, 15),
    Goal(FILE_ORDER, SPARK, 40),
    Goal(SHUFFLED, POLARS, 1.3),
    Goal(RING, POLARS, 2.5),
    Goal(RING, VOCABULARY, 3.5),
    Goal(RING_SHUFFLED, POLARS, 2),
)
