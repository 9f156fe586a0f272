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
    """The same plans fitted again: the ids are digests of all that was learned."""

    name = "fits"
    rest_seconds = 6.0

    def visit(self) -> None:
        """Fit one."""
        plan, plan_id = self.random.choice(self.scene.truth.fits)
        with fb.connect(self.any_order()) as client:
            found = client.fit("table", fb.Plan.from_dict(plan), progress=False).plan_id
        if found != plan_id:
            self.wrong(f"learned {found}, not {plan_id}")


class LeftFits(Load):
    """Fits whose client goes away."""

    name = "fits that are left"
    rest_seconds = 8.0
    allowed = BROKEN

    def visit(self) -> None:
        """Ask for one, and leave at its first word or before."""
        plan, _ = self.random.choice(self.scene.truth.fits)
        body = json.dumps({"dataset": "table", "plan": plan}).encode()
        with connect(self.any_replica()) as client:
            results = client.do_action(fl.Action("fit", body))
            if self.random.random() < 0.5:
                next(results, None)


class Explains(Load):
    """What epochs cost."""

    name = "explains"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Ask for one."""
        spec = self.random.choice([specs.SHUFFLED, specs.ORDERED, specs.LONG])
        with fb.connect(self.any_order()) as client:
            found = client.explain(spec.dataset, self.scene.truth.plan(spec), **spec.options)
        if found != self.scene.truth.explains[spec.name]:
            self.wrong(f"{spec.name} is explained otherwise than before")


class Replays(Load):
    """A batch looked up again: its rows, and its bytes."""

    name = "replays"
    rest_seconds = 2.0
    # The batch is fetched from the replica that was asked, without fail-over.
    allowed = BROKEN

    def visit(self) -> None:
        """Look one up."""
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
            self.wrong(f"{spec.name}, epoch {epoch}, rank {rank}, step {step}: other rows than the stream's")
        if digest(batch.data) != share.steps[step].digest:
            self.wrong(f"{spec.name}, epoch {epoch}, rank {rank}, step {step}: other bytes than the stream's")
        self.add("batches")


class Exchanges(Load):
    """Rows in, features out, over calls that stay open for a while."""

    name = "exchanges"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Send some batches."""
        plan = self.scene.truth.plan(specs.SHUFFLED)
        with fb.connect(self.any_order()) as client, client.exchange(plan) as exchange:
            for _ in range(EXCHANGES_A_VISIT):
                rows, want = self.random.choice(self.scene.truth.exchanges)
                if digest(exchange.batch(rows)) != want:
                    self.wrong("other features than before")
                self.add("batches")
                if not self.scene.rest(EXCHANGE_REST_SECONDS):
                    return


class RawTables(Load):
    """Datasets as they are stored, the list of them, and their schemas."""

    name = "raw tables, lists and schemas"
    rest_seconds = 2.0
    # A raw table has no place to go on from.
    allowed = BROKEN

    def visit(self) -> None:
        """Read one."""
        with fb.connect(self.any_order()) as client:
            if not client.table("small").equals(self.scene.truth.small):
                self.wrong("another table than the one that is stored")
            if not client.schema("small").equals(self.scene.truth.small.schema):
                self.wrong("another schema than the one that is stored")
            listed = client.datasets()
        if listed["small"].rows != self.scene.truth.small.num_rows or not listed["torn"].error:
            self.wrong(f"listed as {listed['small']}, {listed['torn']}")
        self.add("rows", self.scene.truth.small.num_rows)


class Damaged(Load):
    """Corrupt files beside good ones: right rows up to the damage, and an end that names the file."""

    name = "corrupt files"
    rest_seconds = 1.5
    allowed = BROKEN | {"DATA_LOSS"}

    def visit(self) -> None:
        """Read one to its damage."""
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
                self.unexpected(f"the file is not named: {error}")
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
                follower.take(header_of(chunk), chunk.data)


class BadRequests(Load):
    """Requests that are wrong: each is refused with a code of the client's side."""

    name = "requests that are wrong"
    rest_seconds = 0.3
    allowed = BROKEN
    refusals = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"})

    def visit(self) -> str | None:
        """Ask for one."""
        with connect(self.any_replica()) as client:
            what, ask = self.random.choice(list(self._requests(client).items()))
            try:
                ask()
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

        def ask(request: object) -> object:
            return ticket(client, request)  # type: ignore[arg-type]

        def put() -> None:
            writer, _ = client.do_put(fl.FlightDescriptor.for_path("table"), self.scene.truth.small.schema)
            with contextlib.closing(writer):
                writer.write_table(self.scene.truth.small.slice(0, 10))

        noise = self.random.randbytes(200)
        act: Callable[[str, bytes], object] = lambda kind, body: list(client.do_action(fl.Action(kind, body)))  # noqa: E731
        return {
            "an unknown dataset": lambda: ask({"dataset": "tabel", "plan": plan}),
            "an unknown path": lambda: client.get_flight_info(fl.FlightDescriptor.for_path("../etc")),
            "batches of no row": lambda: ask({"dataset": "table", "plan": plan, "batch_size": 0}),
            "batches beyond all limits": lambda: ask({"dataset": "table", "plan": plan, "batch_size": 2**62}),
            "an unknown field": lambda: ask({"dataset": "table", "plan": plan, "batchsize": 5}),
            "an unknown column": lambda: ask({"dataset": "table", "plan": column}),
            "a filter that is no SQL": lambda: ask({"dataset": "table", "plan": bad_sql}),
            "an unfitted plan": lambda: ask({"dataset": "table", "plan": specs.FEATURES}),
            "an unknown plan": lambda: ask({"dataset": "table", "plan_id": "0" * 32}),
            "a position off the grid": lambda: ask({"dataset": "table", "plan": plan, "start_position": 7}),
            "no JSON": lambda: client.get_flight_info(fl.FlightDescriptor.for_command(b"{" + noise)),
            "noise for a ticket": lambda: client.do_get(fl.Ticket(noise)).read_all(),
            "an unknown action": lambda: act("dance", b"{}"),
            "noise for a fit": lambda: act("fit", b"{" + noise),
            "a replay beyond the end": lambda: act(
                "replay",
                json.dumps({"stream": {"dataset": "table", "plan": plan}, "rank": 0, "step": 10**9}).encode(),
            ),
            "a put": put,
        }
