"""Who takes part: each contender's script, its environment, and in what it differs from the task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Strings(Enum):
    """What becomes of a string."""

    VOCABULARY = "its index in the vocabulary of all rows"
    HASH = "a hash of it instead of a vocabulary"
    CODES = "its code in a dictionary of the piece at hand, no vocabulary"


@dataclass(frozen=True)
class Entry:
    """One contender."""

    name: str
    """What --only takes; with underscores, its script under contenders/."""
    title: str
    strings: Strings
    environment: str = ""
    """Of which file under requirements/ its environment is made; empty: the project's own."""
    in_order: bool = True
    """Whether its rows come in file order."""
    bounded: bool = False
    """Whether its epoch is broken off after --seconds-max."""
    slow: bool = False
    """Whether --skip-slow leaves it out."""
    remarks: str = ""

    @property
    def script(self) -> str:
        """The name of its file."""
        return self.name.replace("-", "_") + ".py"

    @property
    def is_forebay(self) -> bool:
        """Whether it is ours."""
        return self.name.startswith("forebay")

    @property
    def differs(self) -> str:
        """In what its work is another than Forebay's, for the table."""
        parts = [] if self.strings is Strings.VOCABULARY else [f"a string is {self.strings.value}"]
        if self.remarks:
            parts.append(self.remarks)
        return "; ".join(parts)


FILE_ORDER, SHUFFLED = "forebay-client", "forebay-shuffled"
POLARS, RAY, SPARK = "polars-hash", "ray-data", "spark-handoff"

LINEUP = (
    Entry(FILE_ORDER, "Forebay, FlightDataset", Strings.VOCABULARY, remarks="tensors cross a socket"),
    Entry(
        SHUFFLED,
        "Forebay, FlightDataset, shuffled",
        Strings.VOCABULARY,
        in_order=False,
        remarks="tensors cross a socket; shuffled",
    ),
    Entry("forebay-bare", "Forebay, bare pyarrow.flight", Strings.VOCABULARY, remarks="tensors cross a socket"),
    Entry(POLARS, "Polars: scan, expressions", Strings.HASH, "polars"),
    Entry("polars-vocabulary", "Polars: scan, expressions, Enum", Strings.VOCABULARY, "polars"),
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
        remarks="the first batch comes when all is written",
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
    """How many times a peer's rate Forebay's is to be."""

    peer: str
    ratio: float


GOALS = (Goal(POLARS, 1.7), Goal(RAY, 9), Goal(SPARK, 40))
