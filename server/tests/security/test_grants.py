"""Bearer tokens, grants and signed tickets over bare pyarrow."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon
from harness.secured import (
    ADMIN,
    LOOKUP,
    OTHER,
    PLAN,
    PRINCIPALS,
    TRAINER,
    Secured,
    action,
    bearer,
    refused,
    request,
    table,
)
from harness.serving import Serve


def plans(client: fl.FlightClient, token: str) -> dict[str, list[str]]:
    """The plans that a caller sees, with the datasets that it sees of each."""
    results = client.do_action(action("plans"), bearer(token))
    seen = [plan for result in results for plan in json.loads(result.body.to_pybytes())["plans"]]
    return {plan["plan_id"]: [dataset["name"] for dataset in plan["datasets"]] for plan in seen}


def fitted(client: fl.FlightClient, token: str, dataset: str, column: str) -> str:
    parts = [{"columns": [column], "ops": [{"min_max": {}}]}]
    body = {"dataset": dataset, "plan": {"outputs": [{"name": "y", "parts": parts}]}}
    *_, last = client.do_action(action("fit", **body), bearer(token))
    return json.loads(last.body.to_pybytes())["result"]["plan_id"]


def test_plans_are_listed_and_removed_by_principals_with_their_datasets(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    with secured.client() as client:
        # The same values in both datasets: one plan, which two principals use.
        shared = fitted(client, TRAINER, "numbers", "x")
        assert fitted(client, OTHER, "secret", "x") == shared
        private = fitted(client, OTHER, "secret", "hidden")
        assert plans(client, ADMIN) == {shared: ["numbers", "secret"], private: ["secret"]}
        assert plans(client, OTHER) == {shared: ["numbers", "secret"], private: ["secret"]}
        assert plans(client, TRAINER) == {shared: ["numbers"]}

        def remove(plan_id: str, token: str) -> None:
            list(client.do_action(action("remove_plan", plan_id=plan_id), bearer(token)))

        with refused("unauthorized", "datasets that are not granted to trainer") as caught:
            remove(shared, TRAINER)
        assert "secret" not in str(caught.value)
        # An existing plan and none look the same, and no id is suggested that the caller may not see.
        for unknown in (private, private[:-1] + ("0" if private[-1] != "0" else "1"), "ab", "../plans", "x" * 9000):
            with refused("not found", "UNKNOWN_PLAN") as caught:
                remove(unknown, TRAINER)
            assert private not in str(caught.value).replace(unknown, "")
        assert set(plans(client, ADMIN)) == {shared, private}
        remove(shared, OTHER)
        remove(private, ADMIN)
        assert plans(client, ADMIN) == {}
        with refused("not found", "UNKNOWN_PLAN"):
            remove(shared, ADMIN)


def test_every_call_requires_a_token(client: fl.FlightClient):
    calls: list[Callable[[fl.FlightCallOptions], object]] = [
        lambda options: list(client.list_flights(b"", options)),
        lambda options: list(client.list_actions(options)),
        lambda options: client.get_flight_info(request("numbers"), options),
        lambda options: client.get_schema(fl.FlightDescriptor.for_path("numbers"), options),
        lambda options: list(client.do_action(action("explain", dataset="numbers", plan=PLAN), options)),
        lambda options: list(client.do_action(action("describe", dataset="numbers"), options)),
        lambda options: client.get_flight_info(table("numbers"), options),
        lambda options: list(client.do_action(action("take", dataset="numbers", plan=PLAN, row_ids=[0]), options)),
        lambda options: list(client.do_action(action("plans"), options)),
        lambda options: list(client.do_action(action("remove_plan", plan_id="ab"), options)),
        lambda options: client.do_get(fl.Ticket(b"FBT1"), options).read_all(),
        lambda options: client.do_exchange(fl.FlightDescriptor.for_command(b"{}"), options)[1].read_all(),
    ]
    wrong = [None, "", "token-of-trainer-012345678", TRAINER + "0", "x" * 4000]
    odd = [(b"authorization", b"Basic " + TRAINER.encode()), (b"authorization", TRAINER.encode())]
    unknown = [bearer(token) for token in wrong] + [fl.FlightCallOptions(timeout=20, headers=[pair]) for pair in odd]
    for call in calls:
        for options in unknown:
            with refused("unauthenticated") as caught:
                call(options)
            assert TRAINER not in str(caught.value)
    assert [info.descriptor.path for info in client.list_flights(b"", bearer(TRAINER))] == [[b"numbers"]]
    granted = [info.descriptor.path[0] for info in client.list_flights(b"", bearer(ADMIN))]
    assert sorted(granted) == [b"hidden", b"numbers", b"secret"]


def test_endpoints_say_when_their_tickets_expire(client: fl.FlightClient):
    for descriptor in (fl.FlightDescriptor.for_path("numbers"), request("numbers", world_size=2), table("numbers")):
        before = dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
        infos = client.get_flight_info(descriptor, bearer(TRAINER)).endpoints
        times = [pa.scalar(info.expiration_time).cast(pa.timestamp("us", "UTC")).as_py() for info in infos]
        hour = dt.timedelta(seconds=3600)
        assert times
        assert all(before + hour <= time <= dt.datetime.now(dt.timezone.utc) + hour for time in times)


def test_ungranted_datasets_are_indistinguishable_from_missing_ones(client: fl.FlightClient):
    for name in ("secret", "hidden", "nowhere", "", "numbers/../secret", "NUMBERS"):
        for call in (
            lambda name=name: client.get_flight_info(fl.FlightDescriptor.for_path(name), bearer(TRAINER)),
            lambda name=name: client.get_flight_info(request(name or "x"), bearer(TRAINER)),
            lambda name=name: client.get_schema(fl.FlightDescriptor.for_path(name), bearer(TRAINER)),
            lambda name=name: list(client.do_action(action("fit", dataset=name or "x", plan=PLAN), bearer(TRAINER))),
            lambda name=name: list(client.do_action(action("describe", dataset=name or "x"), bearer(TRAINER))),
            lambda name=name: client.get_flight_info(table(name), bearer(TRAINER)),
            lambda name=name: client.get_flight_info(taken(name or "x"), bearer(TRAINER)),
            lambda name=name: list(client.do_action(action("take", dataset=name or "x", plan=PLAN), bearer(TRAINER))),
            lambda name=name: list(
                client.do_action(action("explain", dataset=name or "x", plan=PLAN), bearer(TRAINER))
            ),
        ):
            with refused("unauthorized", "not granted to trainer"):
                call()
    # A granted dataset that does not exist: the error suggests no names of others.
    with pytest.raises(pa.ArrowException) as caught:
        client.get_flight_info(fl.FlightDescriptor.for_path("ghost-secret"), bearer(TRAINER))
    assert "no dataset" in str(caught.value)
    assert not re.search(r'"(secret|hidden)"', str(caught.value))


def taken(dataset: str, **more: Any) -> fl.FlightDescriptor:
    take = {"dataset": dataset, "plan": PLAN, "row_ids": [7, 3], **more}
    return fl.FlightDescriptor.for_command(json.dumps({"take": take}).encode())


def test_a_take_requires_the_grants_of_its_plan_and_its_own_ticket(client: fl.FlightClient):
    with refused("unauthorized", '"secret" is not granted to trainer'):
        client.get_flight_info(taken("numbers", plan=LOOKUP), bearer(TRAINER))
    with refused("unauthorized", '"secret" is not granted to trainer'):
        list(client.do_action(action("take", dataset="numbers", plan=LOOKUP, row_ids=[1]), bearer(TRAINER)))
    ticket = client.get_flight_info(taken("secret"), bearer(OTHER)).endpoints[0].ticket
    assert client.do_get(ticket, bearer(OTHER)).read_all().num_rows == 2
    by_hand = json.dumps({"take": {"request": {"dataset": "numbers", "plan": PLAN, "row_ids": [1]}}}).encode()
    for token, bad in ((TRAINER, ticket), (ADMIN, ticket), (TRAINER, fl.Ticket(by_hand))):
        with refused("unauthorized"):
            client.do_get(bad, bearer(token)).read_all()


def test_every_source_of_a_mixture_requires_a_grant(client: fl.FlightClient):
    def mixed(*names: str, **more: Any) -> dict[str, Any]:
        sources = [{"dataset": name, "weight": 1 + index} for index, name in enumerate(names)]
        return {"sources": sources, "plan": PLAN, "batch_size": 100, **more}

    def descriptor(body: dict[str, Any]) -> fl.FlightDescriptor:
        return fl.FlightDescriptor.for_command(json.dumps(body).encode())

    looked_up = mixed("numbers")
    looked_up["sources"].append({"dataset": "numbers", "weight": 1, "plan": LOOKUP})
    for body in (mixed("numbers", "secret"), mixed("secret", "numbers"), mixed("numbers", "nowhere"), looked_up):
        for call in (
            lambda body=body: client.get_flight_info(descriptor(body), bearer(TRAINER)),
            lambda body=body: client.get_schema(descriptor(body), bearer(TRAINER)),
            lambda body=body: list(client.do_action(action("explain", **body), bearer(TRAINER))),
            lambda body=body: list(client.do_action(action("replay", stream=body), bearer(TRAINER))),
        ):
            with refused("unauthorized", "not granted to trainer"):
                call()
    info = client.get_flight_info(descriptor(mixed("numbers", "secret")), bearer(OTHER))
    ticket = info.endpoints[0].ticket
    assert client.do_get(ticket, bearer(OTHER)).read_all().num_rows == info.total_records
    for token in (TRAINER, ADMIN):
        with refused("unauthorized"):
            client.do_get(ticket, bearer(token)).read_all()


JOIN: dict[str, Any] = {
    "join": [{"table": "secret", "on": "x", "key": "x", "columns": ["hidden"], "prefix": "joined_"}],
    "filter": "joined_hidden IS NOT NULL OR x = x",
    "outputs": [{"name": "x", "dtype": "AS_STORED", "parts": [{"columns": ["x"]}]}],
}


@pytest.mark.parametrize("plan", [LOOKUP, JOIN], ids=["lookup", "join"])
def test_tables_of_a_plan_require_a_grant(secured: Secured, client: fl.FlightClient, plan: dict[str, Any]):
    results = client.do_action(action("fit", dataset="numbers", plan=plan), bearer(OTHER))
    plan_id = [json.loads(result.body.to_pybytes()) for result in results][-1]["result"]["plan_id"]
    info = client.get_flight_info(request("numbers", plan=None, plan_id=plan_id), bearer(OTHER))
    assert client.do_get(info.endpoints[0].ticket, bearer(OTHER)).read_all().num_rows == 1000
    many = json.loads(json.dumps(plan).replace('["hidden"]', '["hidden", "hidden"]'))
    stream = {"dataset": "numbers", "plan_id": plan_id}

    def exchange() -> None:
        command = json.dumps({"plan_id": plan_id}).encode()
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(command), bearer(TRAINER))
        writer.begin(pa.schema([("x", pa.int64())]))
        reader.read_all()

    for call in (
        lambda: client.get_flight_info(request("numbers", plan=plan), bearer(TRAINER)),
        # No column at all: lookups cannot be computed or probed.
        lambda: client.get_flight_info(request("numbers", plan=many), bearer(TRAINER)),
        lambda: client.get_flight_info(request("numbers", plan=None, plan_id=plan_id), bearer(TRAINER)),
        lambda: list(client.do_action(action("fit", dataset="numbers", plan=plan), bearer(TRAINER))),
        lambda: list(client.do_action(action("explain", **stream), bearer(TRAINER))),
        lambda: list(client.do_action(action("replay", stream=stream), bearer(TRAINER))),
        lambda: list(client.do_action(action("show", plan_id=plan_id), bearer(TRAINER))),
        exchange,
    ):
        with refused("unauthorized", "secret"):
            call()
    # A caller without a grant learns of no plan.
    with pytest.raises(pa.ArrowException) as caught:
        client.get_flight_info(request("numbers", plan=None, plan_id=plan_id[:-1] + "0"), bearer(TRAINER))
    assert plan_id not in str(caught.value)


def test_ticket_is_bound_to_its_caller_and_cannot_be_forged(secured: Secured, client: fl.FlightClient):
    ticket = client.get_flight_info(request("numbers"), bearer(TRAINER)).endpoints[0].ticket
    with refused("unauthorized", "another caller"):
        client.do_get(ticket, bearer(ADMIN)).read_all()
    data = ticket.ticket
    forged = [data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in range(0, len(data), 7)]
    forged += [data[:-1], data + b"\0", data[data.index(b"FBT1") :], b""]
    forged += [json.dumps({"stream": {"request": {"dataset": "secret", "plan": PLAN}, "rank": 0}}).encode()]
    for changed in forged:
        with refused("unauthorized", "not signed by this service"):
            client.do_get(fl.Ticket(changed), bearer(TRAINER)).read_all()
    # A server without authentication cannot know who made it.
    plain = secured._serve({"numbers": secured.root / "numbers"})
    with fl.connect(plain.url) as anyone, pytest.raises(pa.ArrowInvalid, match="signed by a server"):
        anyone.do_get(fl.Ticket(data)).read_all()
    # A replayed batch has a ticket of the same kind.
    stream = {"dataset": "numbers", "plan": PLAN}
    results = list(client.do_action(action("replay", stream=stream, step=0), bearer(TRAINER)))
    replayed = base64.b64decode(json.loads(results[0].body.to_pybytes())["ticket"])
    assert client.do_get(fl.Ticket(replayed), bearer(TRAINER)).read_all().num_rows == 1000


def test_replicas_with_one_key_accept_each_others_tickets_until_expiry(secured: Secured):
    replica, brief = secured.start(), secured.start("--ticket-seconds", "1")
    with secured.client() as one, secured.client(replica.url) as other, secured.client(brief.url) as hasty:
        ticket = one.get_flight_info(request("numbers"), bearer(TRAINER)).endpoints[0].ticket
        assert other.do_get(ticket, bearer(TRAINER)).read_all().num_rows == 1000
        ticket = hasty.get_flight_info(request("numbers"), bearer(TRAINER)).endpoints[0].ticket
        assert hasty.do_get(ticket, bearer(TRAINER)).read_all().num_rows == 1000
        time.sleep(3)
        with refused("unauthorized", "expired"):
            hasty.do_get(ticket, bearer(TRAINER)).read_all()


def test_ticket_key_in_the_state_directory_is_private(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    at = secured.flags.index("--ticket-key")
    del secured.flags[at : at + 2]
    state = tmp_path / "state"
    flags = [*LOOPBACK, "--dataset", f"numbers={secured.root}/numbers", "--state", str(state), *secured.flags]
    first, second = Daemon(*flags), Daemon(*flags)
    try:
        with secured.client(first.url) as one, secured.client(second.url) as other:
            ticket = one.get_flight_info(request("numbers"), bearer(TRAINER)).endpoints[0].ticket
            assert other.do_get(ticket, bearer(TRAINER)).read_all().num_rows == 1000
    finally:
        first.stop()
        second.stop()
    assert (state / "ticket-key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in state.iterdir() if path.name.endswith(".tmp")] == []


def test_revoked_grants_are_rejected_at_the_next_call(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    with secured.client() as client:
        ticket = client.get_flight_info(request("secret"), bearer(OTHER)).endpoints[0].ticket
        secured.principals.write_text(PRINCIPALS.replace("['numbers', 'secret']", "['numbers']"))
        time.sleep(1.2)
        with refused("unauthorized", "not granted to other"):
            client.do_get(ticket, bearer(OTHER)).read_all()
        # A file that is broken changes nothing.
        secured.principals.write_text("[")
        time.sleep(1.2)
        client.get_flight_info(request("numbers"), bearer(OTHER))
        secured.principals.write_text(principal("trainer", TRAINER, "numbers"))
        time.sleep(1.2)
        with refused("unauthenticated"):
            client.get_flight_info(request("numbers"), bearer(OTHER))
