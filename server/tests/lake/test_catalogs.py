"""Tables that are looked up in catalogs with the REST API of Iceberg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.flight as fl
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import forebay as fb
from harness.daemon import LOOPBACK, run_to_end
from harness.iceberg import catalog, expected, path_of, plain
from harness.lake_catalogs import NUMBERS, TOKEN, CatalogServer, RestCatalogServer, ids, refused, rows
from harness.refusals import check
from harness.serving import Serve, info, plan_of, raw_table, stored

CLIENT_SECRET = "secret-not-to-be-seen-anywhere"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "ware house"


@pytest.fixture
def tables(warehouse: Path) -> SqlCatalog:
    """A catalog with a table `lake.events` of two commits."""
    made = catalog(warehouse)
    table = made.create_table("lake.events", schema=NUMBERS)
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    return made


@pytest.fixture
def rest(tables: SqlCatalog) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(tables, warehouse="prod", prefix="ws/prod") as server:
        yield server


def address(server: CatalogServer, warehouse: Path, table: str = "lake.events", marks: str = "") -> str:
    return f"iceberg+rest://{server.host}/api/{table}?warehouse=prod{marks}@root={warehouse}"


# === The REST API of Iceberg ===


def test_the_client_of_pyiceberg_reads_this_catalog(rest: RestCatalogServer, tables: SqlCatalog):
    """The catalog of these tests answers as that client expects of any."""
    rest.credential = ("me", CLIENT_SECRET)
    uri = f"{rest.url}/api"
    login = {"credential": f"me:{CLIENT_SECRET}", "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    client = RestCatalog("tests", uri=uri, warehouse="prod", **login)
    assert client.load_table("lake.events").metadata == tables.load_table("lake.events").metadata
    assert rest.logins >= 1


def test_commits_are_new_snapshots(rest: RestCatalogServer, tables: SqlCatalog, warehouse: Path, serve: Serve):
    table = tables.load_table("lake.events")
    first = table.metadata.snapshots[0].snapshot_id
    pinned = address(rest, warehouse, marks=f"@snapshot={first}")
    server = serve({"t": address(rest, warehouse), "pinned": pinned, "path": address(rest, warehouse, "lake/events")})
    request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 2}
    with fl.connect(server.url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))
        assert plain(raw_table(client, "path")).equals(expected(table))
        old = json.loads(info(client, request).app_metadata)["snapshot"]
        table.append(rows(6))
        assert ids(server.url) == [1, 2, 3, 4, 5, 6]
        assert ids(server.url, "pinned") == [1, 2, 3]
        found = info(client, {**request, "snapshot": old})
        assert sorted(client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    paths = {request.path for request in rest.requests}
    assert paths == {"/api/v1/config", "/api/v1/ws/prod/namespaces/lake/tables/events"}
    assert any("table_version" in line for line in server.log)


def test_a_catalog_that_is_gone_ends_no_stream(
    rest: RestCatalogServer, warehouse: Path, serve: Serve, tables: SqlCatalog
):
    tables.load_table("lake.events").append(rows(*range(100, 5100)))
    server = serve({"t": address(rest, warehouse)})
    request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 2}
    with fl.connect(server.url) as client:
        flight = info(client, request)
        snapshot = json.loads(flight.app_metadata)["snapshot"]
        rest.refusals = [(404, "gone")] * 100
        assert client.do_get(flight.endpoints[0].ticket).read_all().num_rows == 5005
        again = info(client, {**request, "snapshot": snapshot})
        assert client.do_get(again.endpoints[0].ticket).read_all().num_rows == 5005


def test_names_have_levels_and_odd_letters(rest: RestCatalogServer, tables: SqlCatalog, warehouse: Path, serve: Serve):
    for namespace in ("deep", "deep.er"):
        tables.create_namespace(namespace)
    table = tables.create_table(("deep", "er", "clicks ü%"), schema=NUMBERS, location=f"file://{warehouse}/odd")
    table.append(rows(7))
    url = address(rest, warehouse, "deep.er.clicks%20%C3%BC%25")
    assert ids(serve({"t": url}).url) == [7]
    assert rest.requests[-1].path.endswith("/namespaces/deep%1Fer/tables/clicks%20%C3%BC%25")


def test_local_uses_a_catalog(rest: RestCatalogServer, warehouse: Path, monkeypatch: pytest.MonkeyPatch):
    rest.token = TOKEN
    monkeypatch.setenv("ICEBERG_REST_TOKEN", TOKEN)
    url = fb.local(events=address(rest, warehouse))
    assert ids(url, "events") == [1, 2, 3, 4, 5]


def test_a_table_needs_the_folder_of_its_warehouse(rest: RestCatalogServer, tmp_path: Path):
    url = f"iceberg+rest://{rest.host}/api/lake.events?warehouse=prod"
    ended = run_to_end(*LOOPBACK, "--state", str(tmp_path / "state"), f"--dataset=t={url}")
    assert ended.returncode != 0
    assert "@root=s3://bucket/warehouse" in ended.stderr
    assert rest.requests == []


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("iceberg+rest://me:hidden@h/lake.t@root=/w", "must not have a user or a password"),
        ("iceberg+rest://h/lake.t?token=hidden@root=/w", "?warehouse=NAME and access-delegation"),
        ("iceberg+rest://h/t@root=/w", "HOST/NAMESPACE.TABLE"),
        ("delta+rest://h/lake.t@root=/w", "iceberg+rest://"),
        ("iceberg+unity://h/a.b.t@root=/w", "iceberg+rest://"),
        ("iceberg+glue://t@root=/w", "DATABASE/TABLE"),
        ("iceberg+rest://h/lake.t@root=s3://b/*", "must be a folder without wildcards"),
        ("iceberg+rest://h/lake.t@root=/w@root=s3://b/w", "not in the store of the other @root"),
    ],
)
def test_wrong_addresses_keep_the_server_from_starting(url: str, word: str, tmp_path: Path):
    ended = run_to_end(*LOOPBACK, "--state", str(tmp_path / "state"), f"--dataset=t={url}")
    assert ended.returncode != 0
    assert word in ended.stderr, ended.stderr
    assert "hidden" not in ended.stderr


# === Logins ===


def test_a_token_is_sent_and_never_shown(
    rest: RestCatalogServer, warehouse: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    rest.token = TOKEN
    monkeypatch.setenv("ICEBERG_REST_TOKEN", TOKEN)
    server = serve({"t": address(rest, warehouse)})
    assert ids(server.url) == [1, 2, 3, 4, 5]
    assert {request.authorization for request in rest.requests} == {f"Bearer {TOKEN}"}
    rest.token = "another"
    # The catalog of these tests repeats the token that it does not know.
    error = refused(server.url)
    check(error, "FAILED_PRECONDITION", "refuses access", "status 401", "NotAuthorizedException", "ICEBERG_REST_TOKEN")
    assert error.reason == "STORE_REFUSED"
    server.stop()
    assert TOKEN not in str(error) + "".join(server.log)


def test_a_client_logs_in_once_and_again_when_its_token_is_refused(
    rest: RestCatalogServer, tables: SqlCatalog, warehouse: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    tables.create_table("lake.other", schema=NUMBERS).append(rows(8))
    rest.token, rest.credential = "no token yet", ("me", CLIENT_SECRET)
    # Longer than any clock.
    rest.expires_seconds = 2**64 - 1
    monkeypatch.setenv("ICEBERG_REST_CREDENTIAL", f"me:{CLIENT_SECRET}")
    monkeypatch.setenv("ICEBERG_REST_SCOPE", "lake:read")
    server = serve({"t": address(rest, warehouse), "other": address(rest, warehouse, "lake.other")})
    assert (ids(server.url), ids(server.url, "other")) == ([1, 2, 3, 4, 5], [8])
    assert rest.logins == 1
    login = next(request for request in rest.requests if request.path.endswith("/oauth/tokens"))
    assert "scope=lake%3Aread" in login.body
    rest.token = "the server restarted"
    assert ids(server.url) == [1, 2, 3, 4, 5]
    assert rest.logins == 2
    rest.token, rest.credential = "the client was removed", ("you", CLIENT_SECRET)
    error = refused(server.url)
    check(error, "FAILED_PRECONDITION", "invalid_client", "ICEBERG_REST_CREDENTIAL")
    server.stop()
    assert CLIENT_SECRET not in str(error) + "".join(server.log)


def test_tokens_are_replaced_before_they_expire(
    rest: RestCatalogServer, warehouse: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    rest.token, rest.credential, rest.expires_seconds = "no token yet", ("me", CLIENT_SECRET), 0
    monkeypatch.setenv("ICEBERG_REST_CREDENTIAL", f"me:{CLIENT_SECRET}")
    assert ids(serve({"t": address(rest, warehouse)}).url) == [1, 2, 3, 4, 5]
    assert rest.logins >= 2
    assert all(request.authorization != "Bearer no token yet" for request in rest.requests)


def test_a_login_is_for_one_catalog(rest: RestCatalogServer, warehouse: Path, tmp_path: Path):
    there, elsewhere = (address(rest, warehouse), f"iceberg+rest://other.example/lake.t@root={warehouse}")
    flags = [*LOOPBACK, "--state", str(tmp_path / "state"), f"--dataset=a={there}", f"--dataset=b={elsewhere}"]
    ended = run_to_end(*flags, env={"ICEBERG_REST_TOKEN": TOKEN})
    assert ended.returncode != 0
    assert "login of one catalog" in ended.stderr
    assert "other.example" in ended.stderr
    assert TOKEN not in ended.stderr


# === What a catalog must not do ===


@pytest.fixture
def place(rest: RestCatalogServer) -> Callable[[str], None]:
    return lambda url: rest.places.update({"lake.events": url})


def test_a_table_in_another_warehouse_is_refused(
    rest: RestCatalogServer, tables: SqlCatalog, warehouse: Path, tmp_path: Path, serve: Serve, place: Callable
):
    other = catalog(tmp_path / "other").create_table("lake.secret", schema=NUMBERS)
    other.append(rows(42))
    metadata = tables.load_table("lake.events").metadata_location
    url = address(rest, warehouse)
    server = serve({"t": url, "both": f"{url}@root={tmp_path / 'other'}"})
    for wrong, word in [
        (other.metadata_location, "in no folder that @root names"),
        (f"s3://bucket{path_of(metadata)}", "not in the store of @root"),
        (metadata.replace("/lake/events/", "/lake/../../other/"), "not in the store of @root"),
        ("file:///etc/passwd", "not the name of a metadata file"),
        (f"file://{warehouse}x/lake/events/metadata/v1.metadata.json", "in no folder that @root names"),
        ("file:///metadata/v1.metadata.json", "in no folder that @root names"),
        ("", "names no metadata file"),
        ("nonsense", "not in the store of @root"),
    ]:
        place(wrong)
        check(refused(server.url), "FAILED_PRECONDITION", word, "lake.events")
    place(other.metadata_location)
    assert ids(server.url, "both") == [42]
    place(metadata)
    assert ids(server.url) == [1, 2, 3, 4, 5]


def test_a_link_out_of_the_warehouse_is_refused(
    rest: RestCatalogServer, warehouse: Path, tmp_path: Path, serve: Serve, place: Callable
):
    other = catalog(tmp_path / "other").create_table("lake.secret", schema=NUMBERS)
    other.append(rows(42))
    (warehouse / "link").symlink_to(path_of(other.location()))
    place(f"file://{warehouse}/link/metadata/{path_of(other.metadata_location).name}")
    check(refused(serve({"t": address(rest, warehouse)}).url), "PERMISSION_DENIED", "link")


def test_the_files_of_other_tables_of_the_warehouse_are_not_read(
    rest: RestCatalogServer, tables: SqlCatalog, warehouse: Path, serve: Serve
):
    """A writer of one table must not have the rows of another one served."""
    secret = tables.create_table("lake.secret", schema=NUMBERS)
    secret.append(rows(42))
    events = tables.load_table("lake.events")
    file = next(iter(secret.scan().plan_files())).file.file_path
    events.add_files([file])
    server = serve({"t": address(rest, warehouse), "both": f"{address(rest, warehouse)}@root={path_of(file).parent}"})
    check(refused(server.url), "UNIMPLEMENTED", "not in the folder of the table", "@root=URL")
    assert ids(server.url, "both") == [1, 2, 3, 4, 5, 42]


def test_failures_of_a_catalog_are_retried_or_explained(rest: RestCatalogServer, warehouse: Path, serve: Serve):
    server = serve({"t": address(rest, warehouse)})
    rest.refusals = [(503, ""), (429, "{}"), (500, "<html>")]
    assert ids(server.url) == [1, 2, 3, 4, 5]
    long = json.dumps({"error": {"type": "Odd", "message": "x" * 5000}})
    for status, body, code, word in [
        (
            404,
            '{"error": {"message": "no such\\ntable", "type": "NoSuchTable"}}',
            "FAILED_PRECONDITION",
            "no such table",
        ),
        (403, "<html>", "FAILED_PRECONDITION", "refuses access"),
        (400, long, "UNAVAILABLE", "status 400: Odd: xxx"),
        (200, "<html>", "UNAVAILABLE", "not the JSON of its API"),
        (200, '{"metadata-location": 3}', "UNAVAILABLE", "not the JSON of its API"),
        (200, "{}", "FAILED_PRECONDITION", "names no metadata file"),
        (200, "", "UNAVAILABLE", "not the JSON of its API"),
    ]:
        rest.refusals = [(status, body)]
        error = refused(server.url)
        check(error, code, word, "lake.events")
        assert len(str(error)) < 1000
    assert ids(server.url) == [1, 2, 3, 4, 5]


def test_redirects_to_other_hosts_are_not_followed(
    rest: RestCatalogServer, warehouse: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    rest.token = TOKEN
    monkeypatch.setenv("ICEBERG_REST_TOKEN", TOKEN)
    server = serve({"t": address(rest, warehouse)})
    assert ids(server.url) == [1, 2, 3, 4, 5]
    with RestCatalogServer(rest.catalog) as elsewhere:
        rest.refusals = [(302, f"{elsewhere.url}/api/v1/x")]
        check(refused(server.url), "UNAVAILABLE", "redirects to such addresses are not followed")
        assert elsewhere.requests == []


def test_a_missing_warehouse_or_table_is_named(rest: RestCatalogServer, warehouse: Path, serve: Serve):
    wrong = address(rest, warehouse).replace("warehouse=prod", "warehouse=dev")
    server = serve({"t": wrong, "missing": address(rest, warehouse, "lake.none")})
    check(refused(server.url), "FAILED_PRECONDITION", 'the warehouse "dev"', "Warehouse not found")
    check(refused(server.url, "missing"), "FAILED_PRECONDITION", 'the table "lake.none"', "Table does not exist")
