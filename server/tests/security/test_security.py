"""Authentication and grants over bare pyarrow: TLS, client certificates, bearer tokens, grants, signed tickets."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.certificates import Authority, Pair, digest, principal
from harness.daemon import LOOPBACK, Daemon, run_to_end
from harness.damaged_files import as_stored
from harness.documents import BOOK, example
from harness.proxy import Proxy
from harness.serving import Server

Serve = Callable[..., Server]
TRAINER, OTHER, ADMIN = "token-of-trainer-0123456789", "token-of-other-0123456789", "token-of-admin-0123456789"
PRINCIPALS = (
    principal("trainer", TRAINER, "numbers", "ghost-*")
    + principal("other", OTHER, "numbers", "secret")
    + principal("admin", ADMIN, "*")
)
PLAN = as_stored("x")
LOOKUP = {
    "outputs": [
        {
            "name": "y",
            "dtype": "FLOAT32",
            "parts": [
                {
                    "columns": ["x"],
                    "ops": [
                        {"lookup": {"table": "secret", "key": "x", "columns": ["hidden"]}},
                        {"fill_null": {"value": 0}},
                    ],
                }
            ],
        },
    ]
}


def bearer(token: str | None) -> fl.FlightCallOptions:
    headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
    return fl.FlightCallOptions(timeout=20, headers=headers)


def refused(phrase: str, words: str = "") -> Any:
    """What pyarrow raises differs from call to call; the phrase of the code is the same."""
    return pytest.raises((pa.ArrowException, OSError), match=f"(?s){phrase} error.*{words}")


def request(dataset: str, **more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"dataset": dataset, **({"plan": PLAN} | more)}).encode())


def table(dataset: str, **more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"table": {"dataset": dataset, **more}}).encode())


def action(name: str, **body: Any) -> fl.Action:
    return fl.Action(name, json.dumps(body).encode())


class Secured:
    """A server with three principals, and its clients."""

    def __init__(self, serve: Serve, root: Path, *flags: str) -> None:
        self.root = root
        for name in ("numbers", "secret", "hidden"):
            (root / name).mkdir(parents=True)
        pq.write_table(
            pa.table({"x": pa.array(range(1000), pa.int64())}), root / "numbers/a.parquet", row_group_size=99
        )
        table = pa.table({"x": pa.array(range(1000), pa.int64()), "hidden": pa.array([0.5] * 1000)})
        pq.write_table(table, root / "secret/a.parquet")
        pq.write_table(table, root / "hidden/a.parquet")
        self.authority = Authority(root / "certificates")
        self.pair = self.authority.issue("server", "localhost", "127.0.0.1")
        self.principals = root / "principals.toml"
        self.principals.write_text(PRINCIPALS)
        self.flags = ["--tls-cert", str(self.pair.cert), "--tls-key", str(self.pair.key)]
        self.flags += ["--principals", str(self.principals), "--ticket-key", str(self.key()), "--log", "trace", *flags]
        self._serve = serve
        self.server = self.start()

    def key(self) -> Path:
        key = self.root / "ticket-key"
        key.write_text("4f" * 32)
        return key

    def start(self, *flags: str) -> Server:
        datasets = {name: self.root / name for name in ("numbers", "secret", "hidden")}
        return self._serve(datasets, *self.flags, *flags)

    def client(self, url: str = "", pair: Pair | None = None) -> fl.FlightClient:
        url = url or self.server.url
        assert url.startswith("grpc+tls://")
        chain = {} if pair is None else {"cert_chain": pair.cert.read_bytes(), "private_key": pair.key.read_bytes()}
        return fl.FlightClient(url, tls_root_certs=self.authority.ca.read_bytes(), **chain)


@pytest.fixture(scope="module")
def secured(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(serve, tmp_path_factory.mktemp("secured"))


@pytest.fixture
def client(secured: Secured) -> Iterator[fl.FlightClient]:
    with secured.client() as client:
        yield client


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


def test_a_stream_and_a_table_over_tls(client: fl.FlightClient):
    info = client.get_flight_info(request("numbers", batch_size=128), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all().column(0).to_pylist() == list(
        range(1000)
    )
    info = client.get_flight_info(fl.FlightDescriptor.for_path("numbers"), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all().num_rows == 1000
    info = client.get_flight_info(table("numbers", columns=["x"], limit=3), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all()["x"].to_pylist() == [0, 1, 2]
    by_hand = json.dumps({"table": {"dataset": "numbers", "limit": 3}}).encode()
    with refused("unauthorized"):
        client.do_get(fl.Ticket(by_hand), bearer(TRAINER)).read_all()


def test_ungranted_datasets_are_indistinguishable_from_missing_ones(client: fl.FlightClient):
    for name in ("secret", "hidden", "nowhere", "", "numbers/../secret", "NUMBERS"):
        for call in (
            lambda name=name: client.get_flight_info(fl.FlightDescriptor.for_path(name), bearer(TRAINER)),
            lambda name=name: client.get_flight_info(request(name or "x"), bearer(TRAINER)),
            lambda name=name: client.get_schema(fl.FlightDescriptor.for_path(name), bearer(TRAINER)),
            lambda name=name: list(client.do_action(action("fit", dataset=name or "x", plan=PLAN), bearer(TRAINER))),
            lambda name=name: list(client.do_action(action("describe", dataset=name or "x"), bearer(TRAINER))),
            lambda name=name: client.get_flight_info(table(name), bearer(TRAINER)),
            lambda name=name: list(
                client.do_action(action("explain", dataset=name or "x", plan=PLAN), bearer(TRAINER))
            ),
        ):
            with refused("unauthorized", "not granted to trainer"):
                call()
    # What is granted and is not there: names of others are no hint.
    with pytest.raises(pa.ArrowException) as caught:
        client.get_flight_info(fl.FlightDescriptor.for_path("ghost-secret"), bearer(TRAINER))
    assert "no dataset" in str(caught.value)
    assert not re.search(r'"(secret|hidden)"', str(caught.value))


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


def test_renewed_certificate_is_used_without_a_restart(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    place = urlsplit(secured.server.url)

    def shown() -> str:
        return ssl.get_server_certificate((str(place.hostname), int(str(place.port))))

    before = shown()
    secured.authority.issue("server", "localhost", "127.0.0.1")
    time.sleep(1.2)
    assert shown() != before
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_mutual_tls_admits_certificate_holders(serve: Serve, tmp_path: Path):
    authority = Authority(tmp_path / "foreign")
    foreign = authority.issue("foreign", "trainer.example")
    secured = Secured(serve, tmp_path / "server")
    pair = secured.authority.issue("client", "trainer.example")
    secured.flags += ["--tls-client-ca", str(secured.authority.ca)]
    secured.principals.write_text(PRINCIPALS + '[by-name]\ncertificate = "trainer.example"\ndatasets = "numbers"\n')
    server = secured.start()
    with secured.client(server.url, pair) as client:
        client.get_flight_info(request("numbers"), bearer(None))
        # A token says more than a certificate.
        client.get_flight_info(request("secret"), bearer(OTHER))
        with refused("unauthorized", "not granted to by-name"):
            client.get_flight_info(request("secret"), bearer(None))
    for wrong in (None, foreign):
        with (
            secured.client(server.url, wrong) as client,
            pytest.raises((fl.FlightUnavailableError, fl.FlightInternalError)),
        ):
            client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_plaintext_and_tls_mismatch_fails_immediately(secured: Secured, server: Server):
    start = time.monotonic()
    with fl.connect(secured.server.url.replace("grpc+tls", "grpc")) as client, pytest.raises(fl.FlightUnavailableError):
        list(client.list_flights(b"", fl.FlightCallOptions(timeout=10)))
    known = {"tls_root_certs": secured.authority.ca.read_bytes()}
    with (
        fl.connect(server.url.replace("grpc", "grpc+tls"), **known) as client,
        pytest.raises(fl.FlightUnavailableError),
    ):
        list(client.list_flights(b"", fl.FlightCallOptions(timeout=10)))
    for running, words in (
        (secured.server, b"GET / HTTP/1.1\r\n\r\n"),
        (server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ):
        place = urlsplit(running.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
            connection.sendall(words)
            while connection.recv(4096):
                pass
    assert time.monotonic() - start < 30
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_unfinished_tls_handshake_times_out(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path, "--handshake-seconds", "1")
    place = urlsplit(secured.server.url)
    silent = [socket.create_connection((place.hostname, place.port), timeout=10) for _ in range(50)]
    for number, connection in enumerate(silent):
        connection.sendall(b"\x16\x03\x01\x02\x00"[: number % 6])
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))
    for connection in silent:
        with connection:
            while connection.recv(4096):
                pass


def test_tokens_and_rows_are_encrypted_in_transit(secured: Secured):
    place = urlsplit(secured.server.url)
    with Proxy(f"grpc://{place.hostname}:{place.port}") as proxy:
        url = proxy.url.replace("grpc://", "grpc+tls://")
        with fl.FlightClient(url, tls_root_certs=secured.authority.ca.read_bytes()) as client:
            info = client.get_flight_info(request("numbers"), bearer(TRAINER))
            table = client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all()
        rows = table.column(0).chunk(0).buffers()[-1].to_pybytes()[:64]
        assert len(proxy.heard) > 8000
        for secret in (TRAINER.encode(), b"authorization", b"numbers", rows):
            assert secret not in proxy.heard


def test_no_log_and_no_error_contains_a_secret(secured: Secured, client: fl.FlightClient):
    for token in (TRAINER, "a-wrong-token-of-somebody"):
        with pytest.raises(fl.FlightError) as caught:
            client.get_flight_info(request("secret"), bearer(token))
        assert token not in str(caught.value)
    output = "".join(secured.server.log)
    assert len(output) > 1000
    for secret in (TRAINER, ADMIN, "a-wrong-token-of-somebody", digest(TRAINER), "4f" * 16, "PRIVATE KEY"):
        assert secret not in output, secret


def test_python_client_reads_credentials_from_arguments_and_environment(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = fb.Credentials(token=TRAINER, ca=secured.authority.ca)
    assert TRAINER not in repr(given)
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with fb.connect(secured.server.url, credentials=given) as client:
        assert list(client.datasets()) == ["numbers"]
        assert sum(len(batch["x"]) for batch in client.stream("numbers", plan, shuffle=True)) == 1000
        assert len(client.replay("numbers", plan, step=0).rows) == 1000
        with pytest.raises(fb.PermissionDenied):
            client.table("secret")
    (tmp_path / "token").write_text(TRAINER + "\n")
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("FOREBAY_CA", str(secured.authority.ca))
    with fb.connect(secured.server.url) as client:
        assert list(client.datasets()) == ["numbers"]
    monkeypatch.delenv("FOREBAY_TOKEN_FILE")
    with pytest.raises(fb.Unauthenticated):
        fb.connect(secured.server.url)
    for token in ("", "a\nb", "ä"):
        with pytest.raises(ValueError, match="a header cannot carry"):
            fb.connect(secured.server.url, credentials=fb.Credentials(token=token))
    with pytest.raises(fb.InvalidRequest, match="unencrypted connection"):
        fb.connect("grpc://10.1.2.3:1", credentials=given)


def test_conflicting_flags_exit_with_2(secured: Secured, tmp_path: Path):
    foreign = Authority(tmp_path).issue("foreign", "a")
    pair, principals = secured.pair, secured.principals
    broken = tmp_path / "broken.toml"
    broken.write_text('[a]\ntoken_sha256 = "12"\ndatasets = "*"\n')
    short = tmp_path / "short"
    short.write_text("short")
    tls = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    public = ["--listen", "0.0.0.0:0"]
    for flags, words in [
        (["--tls-cert", str(pair.cert)], "--tls-key"),
        (["--tls-cert", str(pair.cert), "--tls-key", str(foreign.key)], "does not match"),
        (["--tls-cert", str(tmp_path / "none"), "--tls-key", str(pair.key)], "cannot read"),
        (["--tls-cert", str(principals), "--tls-key", str(pair.key)], "PEM"),
        ([*tls, "--tls-client-ca", str(principals)], "PEM"),
        (["--tls-client-ca", str(secured.authority.ca)], "--tls-cert"),
        (["--principals", str(tmp_path / "none")], "cannot read"),
        (["--principals", str(broken)], "64 hexadecimal digits"),
        (["--ticket-key", str(short)], "at least 32"),
        ([*public], "--insecure-public"),
        ([*public, *tls], "credentials"),
        ([*public, "--principals", str(principals)], "TLS"),
        ([*public, *tls, "--principals", str(principals), "--metrics-listen", "0.0.0.0:0"], "--metrics-public"),
    ]:
        listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
        metrics = [] if "--metrics-listen" in flags else ["--metrics-listen", "127.0.0.1:0"]
        state = ["--state", str(tmp_path / "state")]
        done = run_to_end("--dataset", f"numbers={secured.root}/numbers", *state, *listen, *metrics, *flags)
        assert done.returncode == 2, (flags, done.stderr)
        assert words in done.stderr, (flags, done.stderr)


def test_a_public_address_with_tls_and_credentials_needs_no_insecure_flag(secured: Secured, tmp_path: Path):
    public = ["--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0", "--metrics-public"]
    dataset = ["--dataset", f"numbers={secured.root}/numbers", "--state", str(tmp_path)]
    daemon = Daemon(*public, *dataset, *secured.flags)
    assert daemon.url.startswith("grpc+tls://0.0.0.0:")
    daemon.stop()


def test_the_books_commands_and_examples(
    serve: Serve, flights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = re.search(r"<!-- commands: secure -->\n```sh\n(.*?)```", (BOOK / "security.md").read_text(), re.DOTALL)
    assert found
    commands, start = found[1].split("forebay-server ", 1)
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    flags = re.sub(r"\\\n", " ", start).split()
    at = flags.index("--dataset")
    del flags[at : at + 2]
    at = flags.index("--listen")
    del flags[at : at + 2]
    monkeypatch.chdir(tmp_path)
    server = serve({"flights": flights_folder}, *flags)
    port = server.url.rsplit(":", 1)[1]
    for name in ("secure-plain", "secure-torch"):
        code = example(name).replace("grpc+tls://localhost:8815", f"grpc+tls://localhost:{port}")
        assert port in code
        names: dict[str, Any] = {}
        exec(compile(code, "example", "exec"), names)
        assert names["rows"] == 327_346
