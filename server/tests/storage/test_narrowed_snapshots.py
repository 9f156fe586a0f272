"""Filters on partition columns: which files are opened, for which requests, and what changes of other files do."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.faults import outcome
from harness.metrics import scrape
from harness.serving import Serve, Server, fit, info, plan_of, raw_table, stored
from harness.stores.s3 import S3Backend

DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]
CITIES = ["Zürich", "São Paulo/Centro", None, "a=b%"]
HOURS = [0, 7]
ROWS = 10
NULL = "__HIVE_DEFAULT_PARTITION__"


def folders() -> pa.Table:
    rows = [{"day": day, "city": city, "hour": hour} for day in DAYS for city in CITIES for hour in HOURS]
    return pa.Table.from_pylist(rows, pa.schema({"day": pa.date32(), "city": pa.string(), "hour": pa.int64()}))


def rows_of_files() -> list[dict[str, Any]]:
    """The rows of all files, with their partition columns."""
    return [
        {"id": number * ROWS + row, "x": float(row), **folder}
        for number, folder in enumerate(folders().to_pylist())
        for row in range(ROWS)
    ]


def path_of(folder: Mapping[str, Any]) -> str:
    city = NULL if folder["city"] is None else quote(folder["city"], safe=" ")
    return f"day={folder['day']}/city={city}/hour={folder['hour']:02}/a.parquet"


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("narrowed")
    for number, folder in enumerate(folders().to_pylist()):
        ids = range(number * ROWS, (number + 1) * ROWS)
        write(root / "t" / path_of(folder), id=ids, x=[float(row) for row in range(ROWS)])
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({"t": root / "t"})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as client:
        yield client


def read(client: fl.FlightClient, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of all ranks, in their order."""
    endpoints = info(client, {"batch_size": 16, **request}).endpoints
    return [row for endpoint in endpoints for row in client.do_get(endpoint.ticket).read_all().to_pylist()]


def snapshot_of(client: fl.FlightClient, request: Mapping[str, Any]) -> str:
    return json.loads(info(client, request).app_metadata)["snapshot"]


def act(client: fl.FlightClient, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(next(client.do_action(fl.Action(action, json.dumps(body).encode()))).body.to_pybytes())


def whole_snapshot(client: fl.FlightClient, dataset: str = "t") -> str:
    return snapshot_of(client, {"dataset": dataset, "plan": plan_of(stored("id"))})


# === Which files a filter keeps ===

# Filters, and the conditions of each that partition columns decide; None: they keep all files.
FILTERS = [
    ("day = DATE '2024-02-29'", "day = DATE '2024-02-29'"),
    ("day > DATE '2024-02-28' AND hour = 7 AND x > 5", "day > DATE '2024-02-28' AND hour = 7"),
    ("x > 5 AND (id % 2 = 0 AND (hour = 0))", "hour = 0"),
    ("city IS NULL", "city IS NULL"),
    ("city IN ('Zürich', 'a=b%') AND id % 3 = 0", "city IN ('Zürich', 'a=b%')"),
    ("city <> 'Zürich'", "city <> 'Zürich'"),
    ("hour BETWEEN 1 AND 9 OR city = 'Zürich'", "hour BETWEEN 1 AND 9 OR city = 'Zürich'"),
    ("NOT (city = 'Zürich' OR hour = 0)", "NOT (city = 'Zürich' OR hour = 0)"),
    ("date_part('month', day) = 3 AND x < 4", "date_part('month', day) = 3"),
    ("coalesce(city, 'a?') LIKE '%a%' AND hour + 1 = 8", "coalesce(city, 'a?') LIKE '%a%' AND hour = 7"),
    ("CASE WHEN hour = 0 THEN city IS NULL ELSE x > 3 END", None),
    ("city LIKE 'S%' OR x > 100", None),
    ("x > 3", None),
    ("day < DATE '2030-01-01' AND x > 3", None),
    # Not computed for hours of 0, which would fail.
    ("hour <> 0 AND 7 / hour = 1 AND x > 3", "hour <> 0"),
]


@pytest.mark.parametrize(("text", "decided"), FILTERS)
def test_a_request_opens_the_files_that_its_filter_keeps(client: fl.FlightClient, text: str, decided: str | None):
    plan = plan_of(stored("id", "day", "city", "hour", "late"), filter=text)
    plan["derive"] = [{"name": "late", "expr": "hour * 2 + x"}]
    table = pa.Table.from_pylist(
        rows_of_files(), pa.schema([("id", pa.int64()), ("x", pa.float64()), *folders().schema])
    )
    want = [row["id"] for row in duckdb.arrow(table).filter(text).order("id").arrow().read_all().to_pylist()]
    assert want
    for order in ({}, {"shuffle": True, "seed": 3, "world_size": 3}):
        request = {"dataset": "t", "plan": plan, **order}
        got = sorted(read(client, request), key=lambda row: row["id"])
        assert [row["id"] for row in got] == want
        assert got == [
            {
                "id": row["id"],
                **{name: row[name] for name in folders().column_names},
                "late": row["hour"] * 2 + row["x"],
            }
            for row in rows_of_files()
            if row["id"] in set(want)
        ]
        digest = snapshot_of(client, request)
        if decided is None:
            assert digest == whole_snapshot(client)
        else:
            kept = duckdb.arrow(folders()).filter(decided).arrow().read_all().num_rows
            assert digest.endswith(f"-{kept}"), digest


def test_names_with_capital_letters_are_in_quotes(tmp_path: Path, serve: Serve):
    for year in (2023, 2024):
        write(tmp_path / f"t/Year={year}/a.parquet", id=[year])
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        for text, is_narrowed in (("Year = 2024", False), ('"Year" = 2024', True)):
            request = {"dataset": "t", "plan": plan_of(stored("id"), filter=text)}
            assert read(client, request) == [{"id": 2024}]
            assert ("-1" in snapshot_of(client, request)) == is_narrowed


def batches(client: fl.FlightClient, request: Mapping[str, Any]) -> list[tuple[dict[str, Any], pa.RecordBatch]]:
    """The headers and rows of all ranks, without their numbers."""
    found = []
    for endpoint in info(client, request).endpoints:
        for chunk in client.do_get(endpoint.ticket):
            header = json.loads(chunk.app_metadata.to_pybytes())
            header.pop("checksum", None)
            data = chunk.data
            found.append((header, data.select([name for name in data.schema.names if name != "__row_id"])))
    return found


@pytest.mark.parametrize(
    "text", ["hour = 7", "city IS NULL AND x > 2", "day > DATE '2024-02-28'", "day = DATE '1999-01-01'"]
)
@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 3, "epoch": 2, "window_rows": 16}])
@pytest.mark.parametrize("world", [1, 3])
def test_neither_row_ids_nor_the_whole_snapshot_change_a_batch(
    client: fl.FlightClient, text: str, order: dict[str, Any], world: int
):
    plan = plan_of(stored("id", "day", "x"), filter=text)
    request = {"dataset": "t", "plan": plan, "batch_size": 7, "world_size": world, **order}
    want = batches(client, request)
    whole = whole_snapshot(client)
    for more in ({"with_row_ids": True}, {"snapshot": whole}, {"with_row_ids": True, "snapshot": whole}):
        assert batches(client, {**request, **more}) == want, more
        # Also from the middle, with the digest that a state has.
        resumed = {
            **request,
            **more,
            "start_position": 14 * world,
            "snapshot": snapshot_of(client, {**request, **more}),
        }
        if sum(data.num_rows for _, data in want) > 14 * world:
            assert batches(client, resumed) == [one for one in want if one[0]["position"] >= 14 * world]
    every = read(client, {"dataset": "t", "plan": plan_of(stored("id")), "with_row_ids": True})
    numbers = {row["id"]: row["__row_id"] for row in every}
    assert all(row["__row_id"] == numbers[row["id"]] for row in read(client, {**request, "with_row_ids": True}))


def test_row_ids_are_those_of_the_snapshot_of_all_files(tmp_path: Path, serve: Serve):
    for day in range(3):
        write(tmp_path / f"t/day={day}/a.parquet", id=[day])
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        request = {"dataset": "t", "plan": plan_of(stored("id"), filter="day > 0"), "with_row_ids": True}
        assert [row["__row_id"] for row in read(client, request)] == [1, 2]
        old = info(client, request)
        write(tmp_path / "t/day=0/a.parquet", id=[7, 8])
        assert [row["__row_id"] for row in read(client, request)] == [2, 3]
        # The file that changed is not read, and the numbers are those of the ticket's snapshot.
        assert client.do_get(old.endpoints[0].ticket).read_all()["__row_id"].to_pylist() == [1, 2]
        write(tmp_path / "t/day=1/a.parquet", id=[5])
        assert [(row["__row_id"], row["id"]) for row in read(client, request)] == [(2, 5), (3, 2)]
        code, text = outcome(lambda: client.do_get(old.endpoints[0].ticket).read_all())
        assert (code, "snapshot changed" in text) == ("ABORTED", True), text


WHOLE: dict[str, dict[str, Any]] = {
    "with_row_ids": {"with_row_ids": True},
    "sample": {"sample": 0.5},
    "row ids in the filter": {"filter": "hour = 7 AND __row_id % 2 = 0"},
    "row ids in a derived column": {"derive": [{"name": "n", "expr": "__ROW_ID + 1"}]},
}


@pytest.mark.parametrize("name", WHOLE)
def test_requests_that_number_rows_read_all_files(client: fl.FlightClient, name: str):
    options = dict(WHOLE[name])
    plan = plan_of(stored("id"), filter=options.pop("filter", "hour = 7"), derive=options.pop("derive", []))
    request = {"dataset": "t", "plan": plan, **options}
    assert snapshot_of(client, request) == whole_snapshot(client)
    assert all(row["id"] // ROWS % 2 == 1 for row in read(client, request))
    # They cannot be had of some of the files.
    narrowed = snapshot_of(client, {"dataset": "t", "plan": plan_of(stored("id"), filter="hour = 7")})
    code, text = outcome(lambda: info(client, {**request, "snapshot": narrowed}))
    assert (code, "snapshot changed" in text) == ("ABORTED", True), text


def test_ops_that_choose_by_row_id_read_all_files(client: fl.FlightClient):
    chain: list[dict[str, Any]] = [{"target_mean": {"target": "x"}}]
    for folds, is_narrowed in ((None, False), (4, False), (0, True)):
        chain[0]["target_mean"] = {"label": "x", **({} if folds is None else {"folds": folds})}
        outputs = [{"name": "m", "dtype": "FLOAT64", "parts": [{"columns": ["day"], "ops": chain}]}, *stored("id")]
        fitted = fit(client, "t", {"outputs": outputs, "filter": "hour = 7"})[-1]["result"]
        request = {"dataset": "t", "plan_id": fitted["plan_id"]}
        assert ("-" in snapshot_of(client, request)) == is_narrowed
        assert len(read(client, request)) == len(DAYS) * len(CITIES) * ROWS


def test_a_filter_that_keeps_no_file_gives_an_empty_epoch(client: fl.FlightClient):
    plan = plan_of(stored("id", "x"), filter="day = DATE '1999-01-01'")
    found = info(client, {"dataset": "t", "plan": plan})
    never = info(client, {"dataset": "t", "plan": plan_of(stored("id", "x"), filter="x < 0")})
    assert found.total_records == never.total_records == 0
    assert found.schema.equals(never.schema)
    assert json.loads(found.app_metadata)["snapshot"].endswith("-1")
    assert (
        client.do_get(found.endpoints[0].ticket).read_all().equals(client.do_get(never.endpoints[0].ticket).read_all())
    )


# === Other calls ===


def test_fits_explain_replay_and_groups_use_the_same_files(client: fl.FlightClient):
    outputs = [{"name": "x", "dtype": "FLOAT64", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]
    unfitted = {"outputs": [*outputs, *stored("id")], "filter": "hour = 7 AND x < 4"}
    result = fit(client, "t", unfitted)[-1]["result"]
    learned = result["plan"]["outputs"][0]["parts"][0]["ops"][0]["standardize"]
    assert learned["mean"] == 1.5
    assert fit(client, "t", unfitted)[-1]["result"]["cached"]
    for plan in ({"plan_id": result["plan_id"]}, {"plan": result["plan"]}):
        request = {"dataset": "t", **plan, "batch_size": 16, "shuffle": True, "seed": 4}
        explained = act(client, "explain", request)
        files = len(DAYS) * len(CITIES)
        assert explained["snapshot"].endswith(f"-{files}")
        assert explained["row_groups"] == files
        replayed = act(client, "replay", {"stream": request, "rank": 0, "step": 1})
        assert replayed["snapshot"] == explained["snapshot"]
        (batch,) = (
            chunk.data
            for chunk in client.do_get(info(client, request).endpoints[0].ticket)
            if json.loads(chunk.app_metadata.to_pybytes())["step"] == 1
        )
        assert [row["row_group"] for row in replayed["rows"]] == [0] * 16
        paths = [path_of(folders().to_pylist()[one // ROWS]) for one in batch["id"].to_pylist()]
        assert [row["file"].rsplit("/t/", 1)[1] for row in replayed["rows"]] == paths
        assert [row["row"] for row in replayed["rows"]] == [one % ROWS for one in batch["id"].to_pylist()]
        (again,) = client.do_get(fl.Ticket(base64.b64decode(replayed["ticket"]))).read_all().to_batches()[:1]
        assert again["id"].equals(batch["id"])
    grouped = info(client, {"dataset": "t", "plan": plan_of(stored("id"), filter="hour = 7"), "group_by": "city"})
    assert len(grouped.endpoints) == len(CITIES)
    sizes = [client.do_get(endpoint.ticket).read_all().num_rows for endpoint in grouped.endpoints]
    assert sizes == [len(DAYS) * ROWS] * len(CITIES)


def test_row_ids_of_a_replay_are_those_of_all_files(client: fl.FlightClient):
    request = {"dataset": "t", "plan": plan_of(stored("id"), filter="hour = 7"), "batch_size": 16, "seed": 4}
    replayed = act(client, "replay", {"stream": {**request, "shuffle": True}, "rank": 0, "step": 1})
    numbers = [row["row_id"] for row in replayed["rows"]]
    whole = {row["__row_id"]: row["id"] for row in read(client, {**request, "with_row_ids": True})}
    (batch,) = client.do_get(fl.Ticket(base64.b64decode(replayed["ticket"]))).read_all().to_batches()[:1]
    ids = batch["id"].to_pylist()
    assert [whole[number] for number in numbers] == ids
    for plan in (request["plan"], plan_of(stored("id"))):
        body = json.dumps({"dataset": "t", "plan": plan, "row_ids": numbers}).encode()
        (taken,) = client.do_action(fl.Action("take", body))
        assert pa.ipc.open_stream(taken.body).read_all()["id"].to_pylist() == ids
    body = json.dumps({"dataset": "t", "plan": request["plan"], "row_ids": [0], "snapshot": replayed["snapshot"]})
    with pytest.raises(pa.ArrowInvalid, match="snapshot: it has only the files"):
        list(client.do_action(fl.Action("take", body.encode())))
    positions = json.dumps({"dataset": "t", "plan": request["plan"], "positions": list(range(40))}).encode()
    (taken,) = client.do_action(fl.Action("take", positions))
    assert (
        pa.ipc.open_stream(taken.body).read_all()["id"].to_pylist() == [whole[number] for number in sorted(whole)][:40]
    )


def test_sources_of_a_mixture_are_narrowed_each_by_its_filter(client: fl.FlightClient):
    def source(day: dt.date, weight: float) -> dict[str, Any]:
        plan = plan_of(stored("id", "day"), filter=f"day = DATE '{day}'")
        return {"dataset": "t", "weight": weight, "plan": plan}

    request = {"sources": [source(DAYS[0], 1), source(DAYS[2], 1)], "shuffle": True, "seed": 1}
    found = info(client, request)
    snapshots = [one["snapshot"] for one in json.loads(found.app_metadata)["sources"]]
    files = len(CITIES) * len(HOURS)
    assert [digest.rpartition("-")[2] for digest in snapshots] == [str(files)] * 2
    got = client.do_get(found.endpoints[0].ticket).read_all()
    assert sorted(got["id"].to_pylist()) == [r["id"] for r in rows_of_files() if r["day"] in (DAYS[0], DAYS[2])]


def test_columns_that_only_other_files_have(tmp_path: Path, serve: Serve):
    write(tmp_path / "t/day=1/a.parquet", id=[1, 2], n=pa.nulls(2))
    write(tmp_path / "t/day=2/a.parquet", id=[3], n=[0.5], extra=["text"])
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        request = {"dataset": "t", "plan": plan_of(stored("id", "extra"), filter="day = 1")}
        assert read(client, request) == [{"id": 1, "extra": None}, {"id": 2, "extra": None}]
        assert snapshot_of(client, request) == whole_snapshot(client)
        filled = [{"name": "n", "parts": [{"columns": ["n"], "ops": [{"fill_null": {"value": 7}}]}]}]
        assert read(client, {"dataset": "t", "plan": plan_of(filled, filter="day = 1")}) == [{"n": 7.0}, {"n": 7.0}]
        outputs = [*stored("id"), {"name": "e", "parts": [{"columns": ["extra"], "ops": [{"vocab": {}}]}]}]
        fitted = fit(client, "t", {"outputs": outputs, "filter": "day = 1"})[-1]["result"]
        assert [row["id"] for row in read(client, {"dataset": "t", "plan_id": fitted["plan_id"]})] == [1, 2]
        code, text = outcome(lambda: info(client, {"dataset": "t", "plan": plan_of(stored("idd"), filter="day = 1")}))
        # The error knows the columns of all files.
        assert (code, '"idd"' in text, "extra" in text or "id" in text) == ("INVALID_ARGUMENT", True, True), text


def test_a_pinned_schema_decides_the_types_of_conditions(tmp_path: Path, serve: Serve):
    for code in ("007", "7", "08"):
        write(tmp_path / f"t/zip={code}/day=1/a.parquet", id=[int(code)], other=[code])
    pinned = pa.schema([("zip", pa.string()), ("id", pa.int64())])
    pq.write_table(pinned.empty_table(), tmp_path / "schema")
    with fl.connect(serve({"t": tmp_path / "t"}, "--dataset-schema", f"t={tmp_path}/schema").url) as client:
        for text, files in (("zip = '007'", 1), ("zip < '08'", 1), ("zip > '08' OR zip = '08'", 2)):
            request = {"dataset": "t", "plan": plan_of(stored("zip"), filter=text)}
            assert snapshot_of(client, request).endswith(f"-{files}")
            assert len(read(client, request)) == files
        # A partition column that the pinned schema lacks is not served.
        code, text = outcome(lambda: info(client, {"dataset": "t", "plan": plan_of(stored("id"), filter="day = 1")}))
        assert (code, '"day"' in text) == ("INVALID_ARGUMENT", True), text


# === Which files are read, counted ===

# More than those that are opened before the first request.
FOLDERS, FILES_OF_FOLDER = 50, 40
KEPT = "day = 7 AND id > 0"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    running: list[Daemon] = []

    def start(location: str, state: str = "state", env: Mapping[str, str] | None = None) -> Daemon:
        running.append(Daemon(*LOOPBACK, "--state", str(tmp_path / state), f"--dataset=t={location}", env=env))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def gets(daemon: Daemon) -> int:
    return int(scrape(daemon).value("forebay_storage_requests_total", operation="get", status="ok"))


def footers(daemon: Daemon) -> int:
    """Footers that were read."""
    return int(scrape(daemon).value("forebay_cache_requests_total", cache="footers", result="miss"))


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """2,000 files of 3 rows in 50 folders."""
    for day in range(FOLDERS):
        for file in range(FILES_OF_FOLDER):
            first = (day * FILES_OF_FOLDER + file) * 3
            write(tmp_path / f"many/day={day}/{file:02}.parquet", id=[first, first + 1, first + 2])
    return tmp_path / "many"


OF_DAY_7 = list(range(7 * FILES_OF_FOLDER * 3, 8 * FILES_OF_FOLDER * 3))


def stream_of(text: str, **more: Any) -> dict[str, Any]:
    return {"dataset": "t", "plan": plan_of(stored("id"), filter=text), "batch_size": 16, **more}


def test_only_one_folder_of_a_bucket_is_read(tmp_path: Path, start: Callable[..., Daemon]):
    keys = [f"t/day={day}/{file:02}.parquet" for day in range(FOLDERS) for file in range(FILES_OF_FOLDER)]
    write(tmp_path / "a.parquet", id=[1, 2])
    backend = S3Backend()
    try:
        backend.put_many(keys, (tmp_path / "a.parquet").read_bytes())
        assert backend.proxy
        started = start(backend.url("t/"), env=backend.environment(backend.proxy.url))
        with fl.connect(started.urls[0]) as client:
            assert len(read(client, stream_of(KEPT))) == 2 * FILES_OF_FOLDER
        requested = [seen.path.rsplit("/t/", 1)[1] for seen in list(backend.proxy.seen) if "/t/" in seen.path]
        assert {path.split("/")[0] for path in requested} == {"day=7"}
        # For each file: its footer, its column to count the rows that pass, and its column to send them.
        assert len(requested) <= 3 * FILES_OF_FOLDER
    finally:
        backend.close()


def test_only_one_folder_is_read_by_every_call(many: Path, start: Callable[..., Daemon]):
    started = start(str(many))
    assert gets(started) == 0
    request = stream_of(KEPT, shuffle=True, seed=1, world_size=2)
    with fl.connect(started.urls[0]) as client:
        assert sorted(row["id"] for row in read(client, request)) == OF_DAY_7
        # Two ranks read some of the files twice.
        assert gets(started) <= 4 * FILES_OF_FOLDER
        assert info(client, stream_of("day = 7")).total_records == len(OF_DAY_7)
        act(client, "explain", request)
        fit(client, "t", {"outputs": stored("id"), "filter": KEPT})
        assert sorted(row["id"] for row in read(client, {**request, "epoch": 1, "seed": 2})) == OF_DAY_7
        assert footers(started) == FILES_OF_FOLDER
        assert gets(started) <= 8 * FILES_OF_FOLDER
        # All footers except those that are known.
        before = gets(started)
        assert raw_table(client, "t").num_rows == 3 * FOLDERS * FILES_OF_FOLDER
        assert footers(started) == FOLDERS * FILES_OF_FOLDER
        assert gets(started) - before == (2 * FOLDERS - 1) * FILES_OF_FOLDER
        # A snapshot of all files has the footers for any other filter.
        before = gets(started)
        assert info(client, stream_of("day = 8")).total_records == FILES_OF_FOLDER * 3
        assert gets(started) == before
        # So has a replay, which numbers the rows of all files.
        act(client, "replay", {"stream": request, "rank": 1, "step": 2})
        assert footers(started) == FOLDERS * FILES_OF_FOLDER


def test_an_epoch_resumes_on_another_server_and_at_another_world_size(many: Path, start: Callable[..., Daemon]):
    servers = [start(str(many), state) for state in ("one", "two")]
    request = stream_of(KEPT, shuffle=True, seed=1, world_size=2, lanes=16)
    with fl.connect(servers[0].urls[0]) as client:
        found = info(client, request)
        digest = json.loads(found.app_metadata)["snapshot"]
        ranks = [[chunk.data["id"].to_pylist() for chunk in client.do_get(e.ticket)] for e in found.endpoints]
    with fl.connect(servers[1].urls[0]) as client:
        for endpoint, rank in zip(found.endpoints, ranks, strict=True):
            assert [chunk.data["id"].to_pylist() for chunk in client.do_get(endpoint.ticket)] == rank
        resumed = {**request, "world_size": 1, "start_position": 32, "snapshot": digest}
        rest = [row["id"] for row in read(client, resumed)]
        assert sorted(rest) == sorted(one for rank in ranks for batch in rank[1:] for one in batch)
        # To find the snapshot again, no other folder was read.
        assert footers(servers[1]) == FILES_OF_FOLDER


# === Changes ===


def test_files_that_the_filter_excludes_come_and_go(many: Path, start: Callable[..., Daemon]):
    request = stream_of(KEPT, shuffle=True, seed=1)
    with fl.connect(start(str(many)).urls[0]) as client:
        found = info(client, request)
        ids = client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist()
        assert sorted(ids) == OF_DAY_7
        write(many / "day=8/new.parquet", id=[-1])
        write(many / "day=1000/new.parquet", id=[-2])
        (many / "day=9/00.parquet").unlink()
        (many / "day=0/00.parquet").write_bytes(b"not Parquet")
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == ids
        assert info(client, request).app_metadata == found.app_metadata
    # A server that has not seen the files before.
    with fl.connect(start(str(many), "other").urls[0]) as client:
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == ids
        assert outcome(lambda: whole_snapshot(client))[0] == "DATA_LOSS"


def test_a_new_file_in_a_kept_folder_is_in_the_next_epoch(many: Path, start: Callable[..., Daemon]):
    request = stream_of(KEPT)
    first = start(str(many))
    with fl.connect(first.urls[0]) as client:
        found = info(client, request)
        write(many / "day=7/new.parquet", id=[10**6])
        # The epoch continues with its files; a new one has the new file.
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == OF_DAY_7
        assert [row["id"] for row in read(client, request)] == [*OF_DAY_7, 10**6]
        assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == OF_DAY_7
    started = start(str(many), "other")
    with fl.connect(started.urls[0]) as client:
        code, text = outcome(lambda: client.do_get(found.endpoints[0].ticket).read_all())
        assert (code, "snapshot changed" in text) == ("ABORTED", True), text
        # To know that, the other folders are not read.
        assert footers(started) == gets(started) == FILES_OF_FOLDER + 1


def test_a_changed_file_in_a_kept_folder_ends_the_stream(many: Path, start: Callable[..., Daemon]):
    with fl.connect(start(str(many)).urls[0]) as client:
        found = info(client, stream_of(KEPT))
        write(many / "day=7/05.parquet", id=[1])
        for _ in range(2):
            code, text = outcome(lambda: client.do_get(found.endpoints[0].ticket).read_all())
            assert (code, "snapshot changed" in text) == ("ABORTED", True), text
        assert len(read(client, stream_of(KEPT))) == len(OF_DAY_7) - 2


def test_a_snapshot_serves_only_the_filter_that_led_to_it(client: fl.FlightClient):
    digest = snapshot_of(client, {"dataset": "t", "plan": plan_of(stored("id"), filter="hour = 7")})
    for text in ("hour = 0", "hour >= 0", "x > 3"):
        request = {"dataset": "t", "plan": plan_of(stored("id"), filter=text), "snapshot": digest}
        code, message = outcome(lambda request=request: info(client, request))
        assert (code, "snapshot changed" in message) == ("ABORTED", True), message
    same = {"dataset": "t", "plan": plan_of(stored("id"), filter="hour > 3"), "snapshot": digest}
    assert len(read(client, same)) == len(DAYS) * len(CITIES) * ROWS
    # One of all files is one of any filter.
    whole = {"dataset": "t", "plan": plan_of(stored("id"), filter="hour = 7"), "snapshot": whole_snapshot(client)}
    assert len(read(client, whole)) == len(DAYS) * len(CITIES) * ROWS
