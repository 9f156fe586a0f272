"""Everything but training jobs: fits, explains, replays, exchanges, raw tables, damaged files, wrong requests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import forebay as fb
import specs
from forebay.errors import ForebayError, translate
from readers import header_of
from tables import DAMAGED_FILE, TORN_FILE
from truth import digest, ticket
from visit import BROKEN, Follower, Load, connect

EXCHANGES_A_VISIT = 12
EXCHANGE_REST_SECONDS = 0.2


class Fits(Load):
    """Repeated fits of the same plans: plan ids are digests of the learned values and must match."""

    name = "fits"
    rest_seconds = 6.0

    def visit(self) -> None:
        """Fit a plan."""
        plan, plan_id = self.random.choice(self.scene.truth.fits)
        with fb.connect(self.any_order()) as client:
            found = client.fit("table", fb.Plan.from_dict(plan), progress=False).plan_id
        if found != plan_id:
            self.wrong(f"learned {found}, not {plan_id}")


class LeftFits(Load):
    """Fits whose client disconnects."""

    name = "abandoned fits"
    rest_seconds = 8.0
    allowed = BROKEN

    def visit(self) -> None:
        """Start a fit and disconnect before or after its first result."""
        plan, _ = self.random.choice(self.scene.truth.fits)
        body = json.dumps({"dataset": "table", "plan": plan}).encode()
        with connect(self.any_replica()) as client:
            results = client.do_action(fl.Action("fit", body))
            if self.random.random() < 0.5:
                next(results, None)


class Explains(Load):
    """Calls of `explain`."""

    name = "explains"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Send one call."""
        spec = self.random.choice([specs.SHUFFLED, specs.ORDERED, specs.LONG])
        with fb.connect(self.any_order()) as client:
            found = client.explain(spec.dataset, self.scene.truth.plan(spec), **spec.options)
        if found != self.scene.truth.explains[spec.name]:
            self.wrong(f"{spec.name} is explained differently than before")


class Replays(Load):
    """Replays of a batch: its rows and its bytes."""

    name = "replays"
    rest_seconds = 2.0
    # The batch is fetched from the replica that was called, without fail-over.
    allowed = BROKEN

    def visit(self) -> None:
        """Replay a batch."""
        spec = self.random.choice([specs.SHUFFLED, specs.ORDERED])
        epoch, rank = self.random.choice(spec.epochs), self.random.randrange(spec.world_size)
        share = self.scene.truth.shares[spec.name, epoch, rank]
        step = self.random.randrange(len(share.steps))
        plan = self.scene.truth.plan(spec)
        with fb.connect(self.any_order()) as client:
            replay = client.replay(spec.dataset, plan, step=step, rank=rank, epoch=epoch, **spec.options)
            batch = replay.batch
        begin = sum(one.header.rows for one in share.steps[:step])
        want = share.row_ids[begin : begin + share.steps[step].header.rows]
        if not np.array_equal(replay.rows["row_id"].to_numpy(), want):
            self.wrong(f"{spec.name}, epoch {epoch}, rank {rank}, step {step}: rows differ from the stream's")
        if digest(batch.data) != share.steps[step].digest:
            self.wrong(f"{spec.name}, epoch {epoch}, rank {rank}, step {step}: bytes differ from the stream's")
        self.add("batches")


class Exchanges(Load):
    """Exchanges that stay open for several batches."""

    name = "exchanges"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Send batches and check the answers."""
        plan = self.scene.truth.plan(specs.SHUFFLED)
        with fb.connect(self.any_order()) as client, client.exchange(plan) as exchange:
            for _ in range(EXCHANGES_A_VISIT):
                rows, want = self.random.choice(self.scene.truth.exchanges)
                if digest(exchange.batch(rows)) != want:
                    self.wrong("features differ from the first answer")
                self.add("batches")
                if not self.scene.rest(EXCHANGE_REST_SECONDS):
                    return


class RawTables(Load):
    """Raw tables, the list of datasets, and their schemas."""

    name = "raw tables, lists and schemas"
    rest_seconds = 2.0
    # A raw table cannot be resumed.
    allowed = BROKEN

    def visit(self) -> None:
        """Read a table."""
        with fb.connect(self.any_order()) as client:
            if not client.table("small").read().equals(self.scene.truth.small):
                self.wrong("the table differs from the stored one")
            if not client.schema("small").equals(self.scene.truth.small.schema):
                self.wrong("the schema differs from the stored one")
            listed = client.datasets()
        if listed["small"].rows != self.scene.truth.small.num_rows or not listed["torn"].error:
            self.wrong(f"listed as {listed['small']}, {listed['torn']}")
        self.add("rows", self.scene.truth.small.num_rows)


class Damaged(Load):
    """Corrupt files among valid ones: correct rows up to the damage, then an error that names the file."""

    name = "corrupt files"
    rest_seconds = 1.5
    allowed = BROKEN | {"DATA_LOSS"}

    def visit(self) -> None:
        """Read a dataset up to the damage."""
        url = self.any_replica()
        if self.random.random() < 0.3:
            self._expect(lambda: self._read_torn(url), TORN_FILE)
        else:
            self._expect(lambda: self._read_damaged(url), DAMAGED_FILE)

    def _expect(self, read: Callable[[], None], file: str) -> None:
        try:
            read()
        except (pa.ArrowException, fl.FlightError, OSError) as raised:
            error = translate(raised)
            if error.code == "DATA_LOSS" and file not in str(error):
                self.unexpected(f"the error does not name the file: {error}")
            raise
        if not self.scene.over.is_set():
            self.wrong(f"{file} was read to its end")

    def _read_torn(self, url: str) -> None:
        with connect(url) as client:
            client.get_flight_info(fl.FlightDescriptor.for_path("torn"))

    def _read_damaged(self, url: str) -> None:
        follower = Follower(self, specs.DAMAGED, 0, 0)
        with connect(url) as client:
            request = specs.DAMAGED.request(self.scene.truth.plan(specs.DAMAGED), 0)
            for chunk in client.do_get(ticket(client, request)):
                follower.take(header_of(chunk), chunk.data)  # pyright: ignore[reportArgumentType]


class BadRequests(Load):
    """Invalid requests: each must be refused with a client-side code."""

    name = "invalid requests"
    rest_seconds = 0.3
    allowed = BROKEN
    refusals = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"})

    def visit(self) -> str | None:
        """Send one call."""
        with connect(self.any_replica()) as client:
            what, send = self.random.choice(list(self._requests(client).items()))
            try:
                send()
            except (pa.ArrowException, fl.FlightError, OSError) as raised:
                error: ForebayError = translate(raised)
                if error.code in self.refusals:
                    return error.code
                if error.code not in BROKEN:
                    raise type(error)(f"{what}: {error}") from raised
                raise
        self.unexpected(f"{what} was not refused")
        return None

    def _requests(self, client: fl.FlightClient) -> dict[str, Callable[[], object]]:
        plan = specs.PLAIN
        column = {"outputs": [{"name": "m", "parts": [{"columns": ["nowhere"]}]}]}
        bad_sql = {**plan, "filter": "n ==== 3"}

        def flight(request: object) -> object:
            return ticket(client, request)  # type: ignore[arg-type]

        def put() -> None:
            writer, _ = client.do_put(fl.FlightDescriptor.for_path("table"), self.scene.truth.small.schema)
            with contextlib.closing(writer):
                writer.write_table(self.scene.truth.small.slice(0, 10))

        noise = self.random.randbytes(200)
        act: Callable[[str, bytes], object] = lambda kind, body: list(client.do_action(fl.Action(kind, body)))  # noqa: E731
        return {
            "an unknown dataset": lambda: flight({"dataset": "tabel", "plan": plan}),
            "an unknown path": lambda: client.get_flight_info(fl.FlightDescriptor.for_path("../etc")),
            "batches without rows": lambda: flight({"dataset": "table", "plan": plan, "batch_size": 0}),
            "batches beyond all limits": lambda: flight({"dataset": "table", "plan": plan, "batch_size": 2**62}),
            "an unknown field": lambda: flight({"dataset": "table", "plan": plan, "batchsize": 5}),
            "an unknown column": lambda: flight({"dataset": "table", "plan": column}),
            "a filter that is not SQL": lambda: flight({"dataset": "table", "plan": bad_sql}),
            "an unfitted plan": lambda: flight({"dataset": "table", "plan": specs.FEATURES}),
            "an unknown plan": lambda: flight({"dataset": "table", "plan_id": "0" * 32}),
            "a position off the grid": lambda: flight({"dataset": "table", "plan": plan, "start_position": 7}),
            "invalid JSON": lambda: client.get_flight_info(fl.FlightDescriptor.for_command(b"{" + noise)),
            "a random ticket": lambda: client.do_get(fl.Ticket(noise)).read_all(),
            "an unknown action": lambda: act("dance", b"{}"),
            "a random fit request": lambda: act("fit", b"{" + noise),
            "a replay beyond the end": lambda: act(
                "replay",
                json.dumps({"stream": {"dataset": "table", "plan": plan}, "rank": 0, "step": 10**9}).encode(),
            ),
            "a put": put,
        }
