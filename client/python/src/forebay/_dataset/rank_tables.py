"""The ranks of a stream as Arrow data, for libraries that read each in its own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from forebay._client.client import connect
from forebay._client.credentials import Credentials
from forebay._client.cursor import Cursor, resolved
from forebay._client.explain import RankExplain
from forebay._client.header import StreamInfo
from forebay._client.mixture import Mixture
from forebay._client.options import DatasetKeywords, SourceKeywords, StreamOptions, integer
from forebay._client.retry import RETRY_SECONDS
from forebay._plan.fitted import FittedPlan
from forebay._plan.names import check_keywords
from forebay._plan.plan import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

# For the error that names the nearest one.
KEYWORDS = ("ranks", *SourceKeywords.__annotations__)


@dataclass(frozen=True)
class RankTables:
    """Opens any rank's stream of a fitted plan; holds no connection, so that it can be pickled."""

    url: str | Sequence[str]
    name: str | Mixture
    plan: Plan | FittedPlan | str
    options: StreamOptions
    retry_seconds: float
    credentials: Credentials | None
    schema: pa.Schema
    """The columns of the batches."""
    info: StreamInfo
    """Description of the first epoch."""

    def batches(
        self, rank: int, *, epoch: int | None = None, step: int = 0, snapshot: str = ""
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the snapshot's digest and each batch of a rank, from a step of an epoch on."""
        options = self.options
        order = resolved(options.order, options.world_size)
        position = step * options.batch_size * options.world_size
        start = Cursor(options.epoch if epoch is None else epoch, position, options.world_size, order, snapshot)
        with (
            connect(self.url, retry_seconds=self.retry_seconds, credentials=self.credentials) as client,
            client.stream(self.name, self.plan, rank=rank, cursor=start, **options.keywords()) as stream,
        ):
            for batch in stream:
                yield stream.info.snapshot, batch.data

    def shares(self) -> tuple[RankExplain, ...]:
        """Return the rows and bytes of each rank in the first epoch."""
        options = replace(self.options, snapshot=self.info.snapshot)
        with connect(self.url, retry_seconds=self.retry_seconds, credentials=self.credentials) as client:
            return client.explain(self.name, self.plan, **options.keywords()).ranks


def rank_tables(
    function: str,
    url: str | Sequence[str],
    name: str | Mixture,
    plan: Plan | FittedPlan | str,
    *,
    ranks: int,
    filter: str | None = None,  # noqa: A002 (the contract's name)
    retry_seconds: float = RETRY_SECONDS,
    credentials: Credentials | None = None,
    **options: Unpack[DatasetKeywords],
) -> RankTables:
    """Fit the plan if necessary, and describe the stream."""
    check_keywords(function, options, KEYWORDS)
    chosen = StreamOptions(**options, world_size=integer("ranks", ranks, least=1))
    with connect(url, retry_seconds=retry_seconds, credentials=credentials) as client:
        fitted = client.fitted(name, plan, filter)
        with client.stream(name, fitted, **chosen.keywords()) as stream:
            schema, info = stream.schema, stream.info
    return RankTables(url, name, fitted, chosen, retry_seconds, credentials, schema, info)


def plain_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return a batch with its matrices as lists of fixed size; `schema` is that of `plain_schema`."""
    columns = [_plain(column) for column in cast("list[pa.Array[Any]]", batch.columns)]
    return pa.Table.from_arrays(columns, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with lists of fixed size in place of matrices."""
    fields = cast("list[pa.Field[Any]]", list(schema))
    return pa.schema([_plain_field(field) for field in fields])


def _plain(array: pa.Array[Any]) -> pa.Array[Any]:
    return cast(Any, array).storage if isinstance(array.type, pa.FixedShapeTensorType) else array


def _plain_field(field: pa.Field[Any]) -> pa.Field[Any]:
    kind: Any = field.type
    return field.with_type(kind.storage_type) if isinstance(kind, pa.FixedShapeTensorType) else field
