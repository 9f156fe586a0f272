"""Cost of an epoch, as estimated by the server's action `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from forebay.errors import StreamError

from .header import SourceInfo, read_sources

Json = dict[str, Any]
RANKS_SHOWN = 8
LIBRARY_COLUMNS_SHOWN = 6
TEXTS = ("snapshot", "plan_id", "bound_by")
FRACTIONS = (
    "sample",
    "read_amplification",
    "row_groups_per_batch",
    "row_group_rows",
    "rank_rows_kept",
    "place_correlation",
    "storage_seconds",
    "wire_seconds",
    "epoch_seconds",
)


@dataclass(frozen=True)
class RankExplain:
    """One rank's share of an epoch."""

    rank: int
    rows: int
    """Including padding rows."""
    steps: int
    bytes: int
    """Bytes it receives."""
    read_bytes: int
    """Compressed bytes read from storage for it."""
    memory_bytes: int
    """Memory its stream reserves on the server."""


@dataclass(frozen=True)
class LibraryColumn:
    """A column that the server decodes with the Parquet library instead of the page reader."""

    column: str
    reason: str
    """Such as "nested" or "INT96"."""
    row_groups: int
    """Row groups in which the library decodes it."""


@dataclass(frozen=True)
class CacheExplain:
    """What an epoch takes in the server's cache."""

    limit_bytes: int
    """The size of the cache; 0 if the server has none."""
    needed_bytes: int
    """Bytes that the whole epoch takes."""
    cached_bytes: int
    """Bytes of it that are cached now."""
    reason: str
    """Why nothing of this plan is ever cached; empty if it may be."""
    pages: bool = False
    """Whether the cache keeps decompressed pages of the files instead of finished rows."""

    def __str__(self) -> str:
        if self.reason:
            return f"rows are not cached: {self.reason}"
        if not self.limit_bytes:
            return f"off; an epoch would take {size(self.needed_bytes)} (--cache-bytes)"
        needed, cached = size(self.needed_bytes), size(self.cached_bytes)
        what = " of decompressed pages" if self.pages else ""
        return f"an epoch takes {needed}{what}, of which {cached} are cached; the limit is {size(self.limit_bytes)}"


@dataclass(frozen=True)
class Explain:
    """Estimated cost of an epoch, from arithmetic and file footers; ``print`` it."""

    snapshot: str
    plan_id: str
    rows: int
    """Rows of all ranks, including padding rows."""
    steps: int
    """Steps of the longest rank."""
    row_bytes: int
    """Bytes of a row on the wire; AS_STORED columns count uncompressed."""
    bytes: int
    """Bytes that all ranks receive."""
    lanes: int
    """0 in file order."""
    window_rows: int
    stored_bytes: int
    """Compressed bytes of the columns read, counting each row group with passing rows once."""
    read_bytes: int
    """Compressed bytes that all ranks read: parts of row groups as far as the files have a page index."""
    read_amplification: float
    """read_bytes / stored_bytes."""
    memory_bytes: int
    """Memory reserved by the stream of the rank that needs most."""
    memory_limit_bytes: int
    """The server's limit for all streams."""
    row_groups_per_batch: float
    """Mean number of row groups that contribute to a full batch, over a sample of batches."""
    row_groups: int
    """Row groups with passing rows."""
    storage_seconds: float
    """Seconds of an epoch at the assumed storage bandwidth; 0 if none was assumed."""
    wire_seconds: float
    epoch_seconds: float
    """The slower of the two."""
    bound_by: str
    """"storage", "wire", or empty if no bandwidth was assumed."""
    sample: float
    """Fraction of the dataset's rows that the epoch reads."""
    sample_seed: int
    columns: int
    """Columns that the plan reads."""
    fused_columns: int
    """Those that the server's page reader decodes in every row group."""
    library_columns: tuple[LibraryColumn, ...]
    """The others, at most 100, decoded by the Parquet library."""
    cache: CacheExplain | None
    """None from a server without a cache of finished rows."""
    ranks: tuple[RankExplain, ...]
    sources: tuple[SourceInfo, ...] = ()
    """Sources of a mixture; columns and decoders are those of the first."""
    row_group_rows: float = 0
    """Mean rows of a row group of the dataset; 0 for a mixture."""
    recommended_row_group_rows: int = 0
    """Rows of a row group that ``forebay convert`` would write."""
    udfs: tuple[str, ...] = ()
    """Python functions that each row goes through, such as ``words(text)``."""
    rank_rows_kept: float = 0
    """Share of a rank's rows that it reads in the next epoch, too: 1 / world size if epochs are independent."""
    place_correlation: float = 0
    """Correlation of the positions of a row in consecutive epochs: 0 if they are independent."""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        order = f"shuffled, {self.lanes} lanes of windows of {self.window_rows:,} rows" if self.lanes else "file order"
        if self.sample not in (0, 1):
            order += f", a sample of {self.sample} with seed {self.sample_seed}"
        lines = [
            f"{self.rows:,} rows in {self.steps:,} steps per rank, {order}",
            f"on the wire    {size(self.bytes)}, {self.row_bytes:,} bytes per row",
            f"from storage   {size(self.read_bytes)}, {self.read_amplification:.2f} times the "
            f"{size(self.stored_bytes)} stored",
            f"server memory  {size(self.memory_bytes)} for the rank that needs most, "
            f"of {size(self.memory_limit_bytes)}",
            f"mixing         {self.row_groups_per_batch:.1f} of {self.row_groups:,} row groups in a batch",
        ]
        if self.rank_rows_kept:
            lines.append(
                f"ranks          read {self.rank_rows_kept:.0%} of their rows in the next epoch, too; "
                f"{1 / max(1, len(self.ranks)):.0%} if epochs are independent"
            )
        if self.place_correlation:
            lines.append(
                f"places         of a row in two epochs correlate {self.place_correlation:.2f}; 0 if epochs are "
                "independent"
            )
        if self.recommended_row_group_rows:
            lines.append(
                f"row groups     {self.row_group_rows:,.0f} rows each, {self.recommended_row_group_rows:,} recommended"
            )
        if self.columns:
            lines.append(f"decoding       {self._decoding()}")
        if self.udfs:
            lines.append(f"functions      {', '.join(self.udfs)}")
        lines += [
            f"source         {source.dataset}: {100 * source.share:.4g} %, {source.epoch_rows:,} of {source.rows:,} "
            f"rows, {source.epochs:.4g} epochs{' (repeats)' if source.repeat else ''}"
            for source in self.sources
        ]
        if self.cache is not None:
            lines.append(f"server cache   {self.cache}")
        if self.bound_by:
            lines.append(
                f"an epoch       {self.epoch_seconds:,.1f} s, bound by {self.bound_by} "
                f"(storage {self.storage_seconds:,.1f} s, wire {self.wire_seconds:,.1f} s)"
            )
        lines += [
            f"rank {share.rank:<9} {share.rows:,} rows, {share.steps:,} steps, {size(share.bytes)}, "
            f"{size(share.read_bytes)} read, {size(share.memory_bytes)} of memory"
            for share in self.ranks[:RANKS_SHOWN]
        ]
        if len(self.ranks) > RANKS_SHOWN:
            lines.append(f"… and {len(self.ranks) - RANKS_SHOWN:,} more ranks")
        lines.append(f"snapshot {self.snapshot}, plan {self.plan_id}")
        return "\n".join(lines)

    def _decoding(self) -> str:
        fused = f"fused {self.fused_columns:,} of {self.columns:,} columns"
        count = self.columns - self.fused_columns
        if not count:
            return fused
        reasons: dict[str, list[str]] = {}
        for column in self.library_columns[:LIBRARY_COLUMNS_SHOWN]:
            reasons.setdefault(column.reason, []).append(column.column)
        listed = [f"{reason} ({', '.join(columns)})" for reason, columns in reasons.items()]
        if count > LIBRARY_COLUMNS_SHOWN:
            listed.append("…")
        return f"{fused}; {count:,} by the parquet crate: {', '.join(listed)}"


def read_explain(answers: Sequence[Json]) -> Explain:
    """Read the action's one result."""
    if len(answers) != 1:
        raise StreamError(f"explain returned {len(answers)} results instead of one")
    fields = answers[0]
    ranks = [
        RankExplain(*(int(share.get(name) or 0) for name in RankExplain.__dataclass_fields__))
        for share in cast("list[Json]", fields.get("ranks") or [])
    ]
    read: dict[str, Any] = {name: str(fields.get(name) or "") for name in TEXTS}
    read |= {name: float(fields.get(name) or 0) for name in FRACTIONS}
    library = [
        LibraryColumn(str(one.get("column") or ""), str(one.get("reason") or ""), int(one.get("row_groups") or 0))
        for one in cast("list[Json]", fields.get("library_columns") or [])
    ]
    cache = None
    if found := cast("Json | None", fields.get("cache")):
        sizes = (int(found.get(name) or 0) for name in ("limit_bytes", "needed_bytes", "cached_bytes"))
        cache = CacheExplain(*sizes, reason=str(found.get("reason") or ""), pages=bool(found.get("pages")))
    known = {*read, "ranks", "library_columns", "cache", "sources", "udfs"}
    read |= {name: int(fields.get(name) or 0) for name in Explain.__dataclass_fields__ if name not in known}
    return Explain(
        **read,
        library_columns=tuple(library),
        cache=cache,
        ranks=tuple(ranks),
        sources=read_sources(fields),
        udfs=tuple(str(name) for name in cast("list[object]", fields.get("udfs") or [])),
    )


def size(count: float) -> str:
    """Format bytes with a unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
