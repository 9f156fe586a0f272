"""Tables that are looked up in catalogs: the REST API of Iceberg, AWS Glue (moto) and Unity Catalog."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import forebay as fb
from harness.daemon import LOOPBACK, run_to_end
from harness.iceberg import catalog, expected, path_of, plain
from harness.lake_catalogs import CatalogServer, RestCatalogServer, UnityServer
from harness.object_store import KEY_ID, SECRET, Store, s3_server
from harness.refusals import check, refusal
from harness.serving import Serve, info, plan_of, raw_table, stored

TOKEN = "token-not-to-be-seen-anywhere"
CLIENT_SECRET = "secret-not-to-be-seen-anywhere"
# Catalogs of Glue in one process share their databases.
DATABASES = (f"lake{number}" for number in itertools.count())
NUMBERS = pa.schema([("id", pa.int64()), ("x", pa.float64())])


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "CREDENTIAL", "SCOPE", "OAUTH2_SERVER_URI"):
        monkeypatch.delenv(f"ICEBERG_REST_{name}", raising=False)
    monkeypatch.delenv("UNITY_CATALOG_TOKEN", raising=False)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "x": [number / 2 for number in ids]}, schema=NUMBERS)


def ids(url: str, name: str = "t") -> list[int]:
    with fl.connect(url) as client:
        return sorted(raw_table(client, name)["id"].to_pylist())


def refused(url: str, name: str = "t") -> fb.errors.ForebayError:
    with fl.connect(url) as client:
        return refusal(lambda: raw_table(client, name))


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


# === AWS Glue ===


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueCatalog]:
    """A catalog of Glue with an Iceberg table `lake.events` in S3, both of moto."""
    with s3_server() as endpoint:
        Store(endpoint, "lake")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        keys = {"access-key-id": KEY_ID, "secret-access-key": SECRET, "region": "us-east-1", "endpoint": endpoint}
        properties = {f"{kind}.{name}": value for kind in ("glue", "s3") for name, value in keys.items()}
        made = GlueCatalog("tests", **properties)
        made.properties["database"] = database = next(DATABASES)
        made.create_namespace(database)
        place = f"s3://lake/{database}/events"
        made.create_table(f"{database}.events", schema=NUMBERS, location=place).append(rows(1, 2))
        yield made


def by_boto(glue: GlueCatalog, name: str, location: str, **parameters: str) -> None:
    client = boto3.client(
        "glue",
        endpoint_url=glue.properties["s3.endpoint"],
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )
    table = {"Name": name, "StorageDescriptor": {"Location": location}, "Parameters": parameters}
    client.create_table(DatabaseName=glue.properties["database"], TableInput=table)


def test_tables_of_glue_are_read(glue: GlueCatalog, serve: Serve):
    database = glue.properties["database"]
    server = serve({"t": f"iceberg+glue://{database}/events@root=s3://lake/{database}"})
    assert ids(server.url) == [1, 2]
    glue.load_table(f"{database}.events").append(rows(3))
    assert ids(server.url) == [1, 2, 3]
    server.stop()
    assert SECRET not in "".join(server.log)


def test_delta_tables_of_glue_are_read_and_others_named(glue: GlueCatalog, serve: Serve):
    database = glue.properties["database"]
    storage = {
        "AWS_ENDPOINT_URL": glue.properties["s3.endpoint"],
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }
    write_deltalake(f"s3://lake/{database}/clicks", rows(4, 5), storage_options=storage)
    by_boto(glue, "clicks", f"s3://lake/{database}/clicks/", **{"spark.sql.sources.provider": "delta"})
    by_boto(glue, "away", "s3://other/clicks")
    by_boto(glue, "empty", "")
    names = ("clicks", "events", "away", "empty", "none")
    place = f"@root=s3://lake/{database}"
    urls = {name: f"delta+glue://{database}/{name}{place}" for name in names}
    server = serve({**urls, "other": f"iceberg+glue://{database}/clicks{place}"})
    assert ids(server.url, "clicks") == [4, 5]
    check(refused(server.url, "events"), "FAILED_PRECONDITION", "write iceberg+glue://")
    check(refused(server.url, "away"), "FAILED_PRECONDITION", "s3://other/clicks", "not in the store of @root")
    check(refused(server.url, "empty"), "FAILED_PRECONDITION", "names no folder")
    check(refused(server.url, "none"), "FAILED_PRECONDITION", "does not have the table", "EntityNotFoundException")
    check(refused(server.url, "other"), "FAILED_PRECONDITION", "is not an Iceberg table")


def test_requests_to_glue_are_signed(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Glue(CatalogServer):
        def answer(self, call):
            return 400, {"__type": "UnrecognizedClientException", "message": f"token {TOKEN} is not valid"}

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with Glue() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.url)
        running = serve({"t": f"iceberg+glue://d%20b/t@root={tmp_path}"})
        error = refused(running.url)
        check(error, "FAILED_PRECONDITION", "refuses access", "AWS_ACCESS_KEY_ID", "UnrecognizedClientException")
        running.stop()
        assert TOKEN not in str(error) + "".join(running.log)
        signed = server.requests[0].authorization or ""
        assert signed.startswith(f"AWS4-HMAC-SHA256 Credential={KEY_ID}/")
        assert "/eu-west-1/glue/aws4_request" in signed
        assert json.loads(server.requests[0].body) == {"DatabaseName": "d b", "Name": "t"}


# === Unity Catalog ===


def test_delta_tables_of_unity_are_read(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "managed/clicks"
    write_deltalake(folder, rows(1, 2))
    write_deltalake(folder, rows(3), mode="append")
    tables = {
        "main.web.clicks": {"data_source_format": "DELTA", "storage_location": folder.as_uri()},
        "main.web.csv": {"data_source_format": "CSV", "storage_location": folder.as_uri()},
        "main.web.away": {"data_source_format": "DELTA", "storage_location": "file:///etc"},
        "main.web.view": {"data_source_format": "DELTA"},
    }
    with UnityServer(tables) as unity:
        unity.token = TOKEN
        monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
        address = f"delta+unity://{unity.host}/main.web."
        names = {
            name: f"{address}{name}@root={tmp_path / 'managed'}" for name in ("clicks", "csv", "away", "view", "no")
        }
        server = serve({**names, "first": f"{address}clicks@version=0@root={tmp_path / 'managed'}"})
        assert ids(server.url, "clicks") == [1, 2, 3]
        assert ids(server.url, "first") == [1, 2]
        write_deltalake(folder, rows(4), mode="append")
        assert ids(server.url, "clicks") == [1, 2, 3, 4]
        check(refused(server.url, "csv"), "FAILED_PRECONDITION", '"CSV"', "only Delta tables")
        check(refused(server.url, "away"), "FAILED_PRECONDITION", "in no folder that @root names")
        check(refused(server.url, "view"), "FAILED_PRECONDITION", "names no folder")
        check(refused(server.url, "no"), "FAILED_PRECONDITION", "TABLE_NOT_FOUND")
        unity.token = "another"
        check(refused(server.url, "clicks"), "FAILED_PRECONDITION", "refuses access", "UNITY_CATALOG_TOKEN")
        server.stop()
        assert TOKEN not in "".join(server.log)


# === Credentials that a catalog hands out ===

VENDED_KEY, VENDED_SECRET = "ASIAVENDED", "vended-not-to-be-seen-anywhere"


@pytest.fixture
def moto() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


def credentials(ends_seconds: float = 3600, key: str = VENDED_KEY) -> dict[str, str]:
    return {
        "s3.access-key-id": key,
        "s3.secret-access-key": VENDED_SECRET,
        "s3.session-token": "session",
        "s3.session-token-expires-at-ms": str(int((time.time() + ends_seconds) * 1000)),
        # Not where the operator says that the store is.
        "s3.endpoint": "http://169.254.169.254",
    }


def in_bucket(moto: str, name: str, folder: Path) -> SqlCatalog:
    """A catalog whose table `lake.events` is in a bucket."""
    Store(moto, name)
    s3 = {"s3.endpoint": moto, "s3.access-key-id": KEY_ID, "s3.secret-access-key": SECRET, "s3.region": "us-east-1"}
    made = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"s3://{name}/w", **s3)
    made.create_namespace("lake")
    made.create_table("lake.events", schema=NUMBERS).append(rows(1, 2))
    return made


def test_files_are_read_with_the_credentials_that_the_catalog_hands_out(
    moto: str, tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    made = in_bucket(moto, "vended", tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with RestCatalogServer(made) as rest:
        url = f"iceberg+rest://{rest.host}/api/lake.events?access-delegation=vended-credentials@root=s3://vended/w"
        server = serve({"t": url})
        check(refused(server.url), "FAILED_PRECONDITION", "hands out no S3 credentials", "access-delegation")
        rest.vended = {"config": credentials()}
        assert ids(server.url) == [1, 2]
        handed_out = [request for request in rest.requests if request.delegation]
        # They are kept until they end.
        made.load_table("lake.events").append(rows(3))
        assert ids(server.url) == [1, 2, 3]
        assert len([request for request in rest.requests if request.delegation]) == len(handed_out)
        server.stop()
        assert VENDED_SECRET not in "".join(server.log)

        rest.vended = {
            "config": {"s3.access-key-id": "wrong"},
            "storage-credentials": [
                {"prefix": "s3://vended/w/lake/", "config": credentials(0.2)},
                {"prefix": "s3://other", "config": {}},
            ],
        }
        server = serve({"t": url})
        assert ids(server.url) == [1, 2, 3]
        first = len([request for request in rest.requests if request.delegation])
        time.sleep(0.3)
        made.load_table("lake.events").append(rows(4))
        assert ids(server.url) == [1, 2, 3, 4]
        assert len([request for request in rest.requests if request.delegation]) > first


def test_unity_hands_out_credentials_for_a_table(moto: str, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    Store(moto, "unity")
    storage = {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }
    write_deltalake("s3://unity/managed/clicks", rows(4, 5), storage_options=storage)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
    table = {"data_source_format": "DELTA", "storage_location": "s3://unity/managed/clicks", "table_id": "id-7"}
    with UnityServer({"main.web.clicks": table}) as unity:
        unity.token = TOKEN
        url = f"delta+unity://{unity.host}/main.web.clicks?access-delegation=vended-credentials@root=s3://unity/managed"
        server = serve({"t": url})
        check(refused(server.url), "FAILED_PRECONDITION", "hands out no S3 credentials")
        keys = {"access_key_id": VENDED_KEY, "secret_access_key": VENDED_SECRET, "session_token": "session"}
        unity.credentials = {
            "aws_temp_credentials": keys,
            "expiration_time": int((time.time() + 3600) * 1000),
        }
        assert ids(server.url) == [4, 5]
        body = json.loads(next(request.body for request in unity.requests if request.method == "POST"))
        assert body == {"table_id": "id-7", "operation": "READ"}


def test_credentials_are_handed_out_for_buckets_only(tmp_path: Path):
    url = f"iceberg+rest://h/lake.t?access-delegation=vended-credentials@root={tmp_path}"
    ended = run_to_end(*LOOPBACK, "--state", str(tmp_path / "state"), f"--dataset=t={url}")
    assert ended.returncode != 0
    assert "for s3:// only" in ended.stderr
