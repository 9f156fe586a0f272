"""Looks at a service's data: its datasets, their columns and rows, and what the columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from forebay._plan.plan import Plan
from forebay._show.preview import Preview
from forebay._show.progress import Progress, read_progress, reporting
from forebay.errors import StreamError

from .connection import Connection
from .description import DatasetDescription
from .header import DatasetInfo
from .options import integer
from .plan_check import PlanCheck, read_plan_check
from .replicas import Replicas
from .stored_plan import StoredPlan, read_stored_plan, read_stored_plans
from .table_stream import TableBatches, TableStream
from .targets import check_columns, check_dataset

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]


class Looking(Replicas):
    """The calls of `Client` that read what is there."""

    def datasets(self) -> dict[str, DatasetInfo]:
        """Return the server's datasets by name."""
        infos = [DatasetInfo.of(fields) for fields in self._on_any(lambda connection: connection.datasets())]
        return {info.name: info for info in infos}

    def schema(self, dataset: str) -> pa.Schema:
        """Return the dataset's columns as stored."""
        return self._on_any(lambda connection: connection.schema(dataset))

    def table(self, dataset: str, *, columns: Sequence[str] | None = None) -> TableStream:
        """Return the whole dataset as stored, in file order, as an Arrow stream: ``pl.DataFrame(client.table("t"))``.

        Nothing is read before a library does; `TableStream.read` returns a `pyarrow.Table`. `columns` chooses columns
        and their order; None: all.
        """
        check_dataset(dataset)
        read: Json = {"dataset": dataset}
        if columns is not None:
            read["columns"] = check_columns(columns)

        def open_batches() -> TableBatches:
            return self._on_any(
                lambda connection: TableBatches(
                    Connection(connection.url, self._credentials), connection.table_ticket(read)
                )
            )

        return TableStream(dataset, open_batches)

    def head(self, dataset: str, n: int = 10, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the first `n` rows in file order, as stored.

        The server reads no further, and only the `columns`, in their order; None: all.
        """
        check_dataset(dataset)
        read: Json = {"dataset": dataset, "limit": integer("n", n)}
        if columns is not None:
            read["columns"] = check_columns(columns)
        return self._on_any(lambda connection: connection.table(read))

    def preview(self, dataset: str, n: int = 10, *, columns: Sequence[str] | None = None) -> Preview:
        """Return the first `n` rows as `head`, to be printed: as wide as the terminal, with types, or as HTML."""
        return Preview(dataset, self.head(dataset, n, columns=columns))

    def describe(
        self,
        dataset: str,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the contract's name)
        progress: Progress | bool | None = None,
    ) -> DatasetDescription:
        """Describe what columns hold: nulls, distinct values, bounds, quantiles, frequent values, class weights.

        The server computes it in one pass over these `columns` (None: all) of the rows that pass the `filter`, an SQL
        expression as in `Plan`, and keeps the result until the dataset changes. `progress` is as for `fit`.
        """
        check_dataset(dataset)
        request: Json = {"dataset": dataset}
        if columns is not None:
            request["columns"] = check_columns(columns)
        if filter is not None:
            if not isinstance(cast(object, filter), str):
                raise TypeError(f"filter must be an SQL expression or None, not {filter!r}")
            request["filter"] = filter

        with reporting("describe", progress) as show:

            def read(connection: Connection) -> DatasetDescription:
                for update in connection.act("describe", request):
                    if update.get("result"):
                        return DatasetDescription.of(cast(Json, update["result"]))
                    if update.get("progress"):
                        show(read_progress(cast(Json, update["progress"])))
                raise StreamError("the description ended without a result")

            return self._on_any(read)

    def check_plan(self, dataset: str, plan: Plan) -> PlanCheck:
        """Check a plan on a dataset without reading its rows.

        Returns the type and the width of every output, the columns whose nulls would end a stream, and what a fit would
        learn. Raises `InvalidRequest` with the field of a plan that cannot be streamed or fitted.
        """
        check_dataset(dataset)
        if not isinstance(cast(object, plan), Plan):
            raise TypeError(f"plan must be a Plan, which may need a fit, not {plan!r}")
        resolved = plan.resolve(self.schema(dataset))

        def read(connection: Connection) -> PlanCheck:
            for fields in connection.act("check_plan", {"dataset": dataset, "plan": resolved.to_dict()}):
                return read_plan_check(fields)
            raise StreamError("the check of the plan ended without a result")

        return self._on_any(read)

    def plans(self) -> list[StoredPlan]:
        """Return the plans stored on the server that the caller may see, those used last first."""
        return self._on_any(lambda connection: read_stored_plans(connection.act("plans", {})))

    def remove_plan(self, plan_id: str) -> StoredPlan:
        """Remove a plan stored on the server, and return what it was.

        Open streams continue. New ones that name the id raise `NotFound` until the plan is fitted again.
        """
        return self._on_any(lambda connection: _removed(connection.act("remove_plan", {"plan_id": plan_id})))


def _removed(results: Iterable[Json]) -> StoredPlan:
    for fields in results:
        return read_stored_plan(fields)
    raise StreamError("the server removed the plan without a result")
