"""JSON metadata of datasets, epochs and batches."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from forebay.errors import BrokenStream, StreamError

from .stages import StageSeconds

Json = dict[str, Any]


@dataclass(frozen=True)
class BatchHeader:
    """Header of a batch."""

    epoch: int
    step: int
    """Step of the rank, counted from the start of the epoch."""
    position: int
    """Global position at which the step begins."""
    rows: int
    padding_rows: int
    """Rows at the end of the batch that repeat others (remainder PAD)."""
    last: bool
    """Whether this is the rank's last batch of the epoch."""
    checksum: int
    """XXH3-64 of the Arrow body as sent; verified if the package xxhash is installed."""
    stage_seconds: StageSeconds = field(default=StageSeconds(), compare=False)
    """Stage times since the previous batch. Not a property of the batch, so not compared."""

    def __repr__(self) -> str:
        padding = f", {self.padding_rows} of them padding" if self.padding_rows else ""
        last = ", last" if self.last else ""
        return f"<epoch {self.epoch}, step {self.step}, position {self.position}, {self.rows} rows{padding}{last}>"

    @classmethod
    def of(cls, fields: Json) -> BatchHeader:
        """Read the message's JSON."""
        return cls(
            epoch=int(fields.get("epoch") or 0),
            step=int(fields.get("step") or 0),
            position=int(fields.get("position") or 0),
            rows=int(fields.get("rows") or 0),
            padding_rows=int(fields.get("padding_rows") or 0),
            last=bool(fields.get("last")),
            checksum=int(fields.get("checksum") or 0),
            stage_seconds=StageSeconds.of(fields.get("stage_seconds")),
        )


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset as the server lists it."""

    name: str
    rows: int
    bytes: int
    files: int
    row_groups: int
    snapshot: str
    """Digest of the current files."""
    error: str
    """Why the dataset cannot be read; empty when it can."""
    table_version: str = ""
    """Version of the lake table; empty when the dataset is not a table."""

    @classmethod
    def of(cls, fields: Json) -> DatasetInfo:
        """Read the message's JSON."""
        return cls(
            name=str(fields["name"]),
            rows=int(fields.get("rows") or 0),
            bytes=int(fields.get("bytes") or 0),
            files=int(fields.get("files") or 0),
            row_groups=int(fields.get("row_groups") or 0),
            snapshot=str(fields.get("snapshot") or ""),
            error=str(fields.get("error") or ""),
            table_version=str(fields.get("table_version") or ""),
        )


@dataclass(frozen=True)
class SourceInfo:
    """A source of a mixture."""

    dataset: str
    snapshot: str
    plan_id: str
    share: float
    """Its part of the rows."""
    repeat: bool
    rows: int
    """Rows of the dataset that pass the plan's filter and the sample."""
    epoch_rows: int
    """Rows that an epoch has of it; more than `rows` if it repeats."""
    epochs: float
    """epoch_rows / rows."""

    @classmethod
    def of(cls, fields: Json) -> SourceInfo:
        """Read the message's JSON."""
        return cls(
            dataset=str(fields.get("dataset") or ""),
            snapshot=str(fields.get("snapshot") or ""),
            plan_id=str(fields.get("plan_id") or ""),
            share=float(fields.get("share") or 0),
            repeat=bool(fields.get("repeat")),
            rows=int(fields.get("rows") or 0),
            epoch_rows=int(fields.get("epoch_rows") or 0),
            epochs=float(fields.get("epochs") or 0),
        )


@dataclass(frozen=True)
class LengthBucket:
    """A bucket of rows of similar length."""

    least: int
    """The least length of its rows."""
    most: int | None
    """The greatest length that they may have; None: any."""
    rows: int
    """Rows that an epoch has of it, without padding rows."""
    batch_size: int
    """Rows of a full batch."""
    steps: int
    """Steps of the longest rank."""

    @classmethod
    def of(cls, fields: Json) -> LengthBucket:
        """Read the message's JSON."""
        return cls(
            least=int(fields.get("least") or 0),
            most=int(fields.get("most") or 0) or None,
            rows=int(fields.get("rows") or 0),
            batch_size=int(fields.get("batch_size") or 0),
            steps=int(fields.get("steps") or 0),
        )


@dataclass(frozen=True)
class StreamInfo:
    """Description of an epoch and of one rank's share of it."""

    snapshot: str
    """Digest of the files that are read."""
    plan_id: str
    rows: int
    """Rows of all ranks, including padding rows."""
    steps: int
    """Steps of the longest rank."""
    rank: int
    rank_rows: int
    rank_steps: int
    lanes: int = 0
    """Lanes of a shuffled epoch; 0 in file order."""
    window_rows: int = 0
    """Rows permuted together within a lane; 0 in file order."""
    order_version: int = 0
    """Version of the order's arithmetic; 0 if the server does not report it."""
    sources: tuple[SourceInfo, ...] = ()
    """Sources of a mixture."""
    passing_rows: int = field(default=0, compare=False)
    """Rows before padding repeats some or dropping leaves some out; 0 if the server does not report them, as for the
    groups of a dataset. Not a property of the stream, so not compared."""
    common_steps: int = field(default=0, compare=False)
    """With bucket_by_length, the steps in which every rank has a batch: all others are the last ones."""
    length_buckets: tuple[LengthBucket, ...] = field(default=(), compare=False)
    """The buckets of bucket_by_length that have rows, the shortest first."""
    rank_rows_kept: float = field(default=0.0, compare=False)
    """Share of a rank's rows that it reads in the next epoch, too: 1 / world size if epochs are independent, and 0 if
    it is not measured."""

    @classmethod
    def of(cls, stream: Json, share: Json, rank: int) -> StreamInfo:
        """Read the JSON of the stream and of the rank's endpoint."""
        if int(share.get("rank") or 0) != rank:
            raise StreamError(f"endpoint {rank} belongs to rank {share.get('rank')}")
        return cls(
            snapshot=str(stream.get("snapshot") or ""),
            plan_id=str(stream.get("plan_id") or ""),
            rows=int(stream.get("rows") or 0),
            steps=int(stream.get("steps") or 0),
            rank=rank,
            rank_rows=int(share.get("rows") or 0),
            rank_steps=int(share.get("steps") or 0),
            lanes=int(stream.get("lanes") or 0),
            window_rows=int(stream.get("window_rows") or 0),
            order_version=int(stream.get("order_version") or 0),
            sources=read_sources(stream),
            passing_rows=int(stream.get("passing_rows") or 0),
            common_steps=int(stream.get("common_steps") or 0),
            length_buckets=tuple(map(LengthBucket.of, cast("list[Json]", stream.get("length_buckets") or []))),
            rank_rows_kept=float(stream.get("rank_rows_kept") or 0),
        )


def read_sources(described: Json) -> tuple[SourceInfo, ...]:
    """Read the JSON of a mixture's sources."""
    return tuple(SourceInfo.of(one) for one in cast("list[Json]", described.get("sources") or []))


def read_header(metadata: pa.Buffer | None) -> BatchHeader:
    """Read the JSON header in a batch's app_metadata."""
    try:
        return BatchHeader.of(cast(Json, json.loads(b"" if metadata is None else metadata.to_pybytes())))
    except (ValueError, AttributeError, TypeError) as error:
        raise BrokenStream(f"a batch has no readable header: {error}") from error
