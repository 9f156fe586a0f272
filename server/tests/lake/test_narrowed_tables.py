"""Filters on partition columns of lake tables: which files are opened, their deleted rows, and what commits do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.table import Table

import forebay as fb
from harness.delta import add, field, inline_vector, start
from harness.delta import commit as delta_commit
from harness.iceberg import catalog, commit, opened, path_of, position_deletes
from harness.refusals import check, refusal
from harness.serving import Serve, Server, info, plan_of, raw_table, stored

WORDS = ["a", "b", "c", None]
ROWS = 50


def rows(number: int, first: int) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "word": pa.array([WORDS[number]] * ROWS, pa.string())})


@pytest.fixture
def iceberg(tmp_path: Path) -> Table:
    """Two files of each partition."""
    made = catalog(tmp_path).create_table("lake.t", schema=rows(0, 0).schema)
    with made.update_spec() as update:
        update.add_identity("word")
    for number in range(2 * len(WORDS)):
        made.append(rows(number % len(WORDS), number * ROWS))
    return made


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    root = tmp_path / "delta"
    for number in range(2 * len(WORDS)):
        write_deltalake(root, rows(number % len(WORDS), number * ROWS), mode="append", partition_by=["word"])
    return root


def ids_of(word: str | None) -> list[int]:
    firsts = [number * ROWS for number in range(2 * len(WORDS)) if WORDS[number % len(WORDS)] == word]
    return [first + row for first in firsts for row in range(ROWS)]


def damage(table: Path, word: str) -> None:
    """Overwrite the files of a partition with others of the same size."""
    for file in (path for path in table.rglob("*.parquet") if f"word={word}/" in str(path)):
        file.write_bytes(bytes(file.stat().st_size))


def narrowed(server: Server) -> list[str]:
    return [line for line in server.log if "narrowed snapshot opened" in line]


def request(text: str, **fields: Any) -> dict[str, Any]:
    return {"dataset": "t", "plan": plan_of(stored("id", "word"), filter=text), "batch_size": 16, **fields}


def ids(client: fl.FlightClient, request: dict[str, Any]) -> list[int]:
    found = info(client, request)
    tables = [client.do_get(one.ticket).read_all() for one in found.endpoints]
    return [n for table in tables for n in table["id"].to_pylist()]


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A URL and the folder of the table."""
    if request.param == "delta":
        root: Path = request.getfixturevalue("delta")
        return f"delta+{root}", root
    root = path_of(request.getfixturevalue("iceberg").location())
    return f"iceberg+{root}", root


def test_a_filter_opens_the_files_of_its_partitions(table: tuple[str, Path], serve: Serve):
    url, root = table
    damage(root, "b")
    server = serve({"t": url})
    with fl.connect(server.url) as client:
        for text, want in {
            "word = 'a'": ids_of("a"),
            "word IS NULL": ids_of(None),
            "word IN ('a', 'c') AND id % 3 = 0": [n for n in sorted(ids_of("a") + ids_of("c")) if n % 3 == 0],
            "word <> 'b' AND id >= 60": [n for n in sorted(ids_of("a") + ids_of("c")) if n >= 60],
        }.items():
            for order in ({}, {"shuffle": True, "seed": 3, "world_size": 3}):
                assert sorted(ids(client, request(text, **order))) == sorted(want), text
        # Filters that keep the same files share a snapshot.
        assert len(narrowed(server)) == 3
        assert all("listed_files=8" in line or '"listed_files":8' in line for line in narrowed(server))
        for everything in ("id >= 0", "word = 'b'"):
            check(refusal(lambda text=everything: ids(client, request(text))), "DATA_LOSS", "word=b")


def test_rows_have_the_numbers_of_all_files(table: tuple[str, Path], serve: Serve):
    url, _ = table
    with fl.connect(serve({"t": url}).url) as client:
        whole = raw_table(client, "t")["id"].to_pylist()
        found = info(client, request("word = 'a'", with_row_ids=True))
        got = client.do_get(found.endpoints[0].ticket).read_all()
        assert got["__row_id"].to_pylist() == [whole.index(n) for n in got["id"].to_pylist()]
        assert sorted(got["id"].to_pylist()) == ids_of("a")


def test_an_epoch_resumes_on_another_server(table: tuple[str, Path], serve: Serve):
    url, _ = table
    shuffled = request("word = 'c'", shuffle=True, seed=5)
    with fl.connect(serve({"t": url}).url) as client:
        found = info(client, shuffled)
        digest = json.loads(found.app_metadata)["snapshot"]
        assert digest.endswith("-2")
        whole = client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist()
    with fl.connect(serve({"t": url}).url) as client:
        rest = {**shuffled, "snapshot": digest, "start_position": 2 * 16}
        assert ids(client, rest) == whole[2 * 16 :]


def test_deleted_rows_stay_deleted(iceberg: Table, serve: Serve):
    urls = sorted(task.file.file_path for task in iceberg.scan().plan_files())
    of_a = [url for url in urls if "word=a/" in url]
    metadata = commit(iceberg, [position_deletes(iceberg, "d.parquet", {of_a[1]: [0, 7, 49]})], spec=0)
    want = [n for n in ids_of("a") if n not in deleted_of(of_a[1])]
    server = serve({"t": f"iceberg+{metadata}"})
    with fl.connect(server.url) as client:
        assert sorted(ids(client, request("word = 'a'"))) == want
        assert sorted(ids(client, request("word = 'a'", shuffle=True, seed=1, world_size=2))) == want
        assert sorted(ids(client, request("word = 'c'"))) == ids_of("c")
        # Other rows of the same files are another snapshot.
        digest = json.loads(info(client, request("word = 'a'")).app_metadata)["snapshot"]
        more = commit(opened(metadata), [position_deletes(iceberg, "e.parquet", {of_a[1]: [1]})], spec=0)
    with fl.connect(serve({"t": f"iceberg+{more}"}).url) as client:
        assert json.loads(info(client, request("word = 'a'")).app_metadata)["snapshot"] != digest
        check(refusal(lambda: info(client, request("word = 'a'", snapshot=digest))), "ABORTED", "snapshot")


def deleted_of(url: str) -> set[int]:
    found = pq.read_table(path_of(url), partitioning=None)["id"].to_pylist()
    return {found[row] for row in (0, 7, 49)}


def test_deletion_vectors_stay_with_their_files(tmp_path: Path, serve: Serve):
    root, actions, want = tmp_path / "t", list[dict[str, Any]](), list[int]()
    for number in range(6):
        word, file = WORDS[number % 3], f"word={WORDS[number % 3]}/{number}.parquet"
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        numbers = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
        pq.write_table(numbers, root / file)
        gone = [number, number + 2]
        actions.append(add(root, file, values={"word": word}, vector=inline_vector(gone)))
        want += [number * 10 + row for row in range(10) if word == "b" and row not in gone]
    fields = [field("id", "long"), field("word", "string")]
    delta_commit(root, 0, *start(fields, partitions=["word"], features=["deletionVectors"]), *actions)
    with fl.connect(serve({"t": f"delta+{root}"}).url) as client:
        assert sorted(ids(client, request("word = 'b'"))) == want
        assert sorted(ids(client, request("word = 'b'", shuffle=True, seed=2))) == want


def test_commits_are_seen_and_pinned_snapshots_are_kept(table: tuple[str, Path], iceberg: Table, serve: Serve):
    url, root = table
    server = serve({"t": url})
    with fl.connect(server.url) as client:
        before = request("word = 'a'")
        digest = json.loads(info(client, before).app_metadata)["snapshot"]
        if url.startswith("delta"):
            write_deltalake(root, rows(0, 1000), mode="append", partition_by=["word"])
        else:
            iceberg.append(rows(0, 1000))
        assert sorted(ids(client, before)) == [*ids_of("a"), *range(1000, 1000 + ROWS)]
        assert sorted(ids(client, {**before, "snapshot": digest})) == ids_of("a")


def test_a_file_that_changes_ends_the_stream_and_is_listed_again(table: tuple[str, Path], serve: Serve):
    url, root = table
    with fl.connect(serve({"t": url}).url) as client:
        assert sorted(ids(client, request("word = 'a'"))) == ids_of("a")
        [first, *_] = sorted(path for path in root.rglob("*.parquet") if "word=a/" in str(path))
        body = first.read_bytes()
        first.write_bytes(bytes(len(body)))
        check(refusal(lambda: ids(client, request("word = 'a'"))), "ABORTED", first.name)
        # Its bytes are no longer Parquet, which the next listing finds.
        check(refusal(lambda: ids(client, request("word = 'a'"))), "DATA_LOSS", first.name)
        first.write_bytes(body)
        assert sorted(ids(client, request("word = 'a'"))) == ids_of("a")
        assert sorted(ids(client, request("word = 'c'"))) == ids_of("c")


def test_fits_use_the_same_files(table: tuple[str, Path], serve: Serve):
    url, root = table
    damage(root, "b")
    with fb.connect(serve({"t": url}).url) as client:
        plan = fb.Plan(outputs={"id": fb.cols("id").standardize()}, filter="word = 'a'")
        fitted = client.fit("t", plan, progress=False).plan.to_dict()
        [output] = fitted["outputs"]
        mean = output["parts"][0]["ops"][0]["standardize"]["mean"]
        assert mean == pytest.approx(sum(ids_of("a")) / len(ids_of("a")))


def test_columns_by_which_only_some_files_are_partitioned_decide_nothing(iceberg: Table, serve: Serve):
    with iceberg.update_spec() as update:
        update.remove_field("word")
    iceberg.append(rows(0, 1000))
    server = serve({"t": f"iceberg+{path_of(iceberg.location())}"})
    with fl.connect(server.url) as client:
        assert sorted(ids(client, request("word = 'a'"))) == [*ids_of("a"), *range(1000, 1000 + ROWS)]
    assert not narrowed(server)
