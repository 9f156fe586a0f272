"""The ranks of a stream as Arrow tables, for libraries that read each in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from .client import connect
from .credentials import Credentials
from .cursor import Cursor, resolved
from .fitted import FittedPlan
from .header import StreamInfo
from .mixture import Mixture
from .names import check_keywords
from .options import DatasetKeywords, StreamOptions, integer
from .plan import Plan
from .retry import RETRY_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    """The columns of the tables."""
    info: StreamInfo
    """Description of the first epoch."""

    def tables(
        self, rank: int, *, epoch: int | None = None, step: int = 0, snapshot: str = ""
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield the snapshot's digest and the rows of each batch of a rank, from a step of an epoch on."""
        options = self.options
        order = resolved(options.order, options.world_size)
        position = step * options.batch_size * options.world_size
        start = Cursor(options.epoch if epoch is None else epoch, position, options.world_size, order, snapshot)
        with (
            connect(self.url, retry_seconds=self.retry_seconds, credentials=self.credentials) as client,
            client.stream(self.name, self.plan, rank=rank, cursor=start, **options.keywords()) as stream,
        ):
            for batch in stream:
                columns = [plain(column) for column in cast("list[pa.Array[Any]]", batch.data.columns)]
                yield stream.info.snapshot, pa.Table.from_arrays(columns, schema=self.schema)


def rank_tables(
    function: str,
    url: str | Sequence[str],
    name: str | Mixture,
    plan: Plan | FittedPlan | str,
    *,
    ranks: int,
    filters: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
    credentials: Credentials | None = None,
    **options: Unpack[DatasetKeywords],
) -> RankTables:
    """Fit the plan if necessary, and describe the stream."""
    check_keywords(function, options, ["filter", "retry_seconds", "credentials", *DatasetKeywords.__annotations__])
    chosen = StreamOptions(**options, world_size=integer("ranks", ranks, least=1))
    with connect(url, retry_seconds=retry_seconds, credentials=credentials) as client:
        fitted = client.fitted(name, plan, filters)
        with client.stream(name, fitted, **chosen.keywords()) as stream:
            schema, info = plain_schema(stream.schema), stream.info
    return RankTables(url, name, fitted, chosen, retry_seconds, credentials, schema, info)


def plain(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return a matrix as lists of fixed size, and any other column as it is."""
    return cast(Any, array).storage if isinstance(array.type, pa.FixedShapeTensorType) else array


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of columns that went through `plain`."""
    fields = cast("list[pa.Field[Any]]", list(schema))
    return pa.schema([_plain_field(field) for field in fields])


def _plain_field(field: pa.Field[Any]) -> pa.Field[Any]:
    kind: Any = field.type
    return field.with_type(kind.storage_type) if isinstance(kind, pa.FixedShapeTensorType) else field
