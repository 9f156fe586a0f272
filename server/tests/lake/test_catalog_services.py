"""Tables that are looked up in AWS Glue (moto) and Unity Catalog, and credentials that catalogs hand out."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog

from harness.daemon import LOOPBACK, run_to_end
from harness.lake_catalogs import (
    NUMBERS,
    TOKEN,
    CatalogServer,
    RestCatalogServer,
    UnityServer,
    ids,
    refused,
    rows,
)
from harness.object_store import KEY_ID, SECRET, Store, s3_server
from harness.refusals import check
from harness.serving import Serve

# Catalogs of Glue in one process share their databases.
DATABASES = (f"lake{number}" for number in itertools.count())


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
