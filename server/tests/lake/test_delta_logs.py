"""Damaged, incomplete and unsupported logs: each error names what is wrong, and the server serves on."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from forebay.errors import ForebayError, translate
from harness.daemon import run_to_end
from harness.delta import LOG, add, commit, commit_file, field, inline_vector, start
from harness.serving import Serve, plan_of, raw_table, read, stored

ROWS = pa.table({"id": [1, 2, 3]})
ID = field("id", "long")


def failure(client: fl.FlightClient, dataset: str) -> ForebayError:
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        raw_table(client, dataset)
    return translate(caught.value)


def crafted(root: Path, *, features: tuple[str, ...] = (), **of_add: object) -> None:
    """A table of one file."""
    root.mkdir()
    pq.write_table(ROWS, root / "a.parquet")
    commit(root, 0, *start([ID], features=features), add(root, "a.parquet", **of_add))  # pyright: ignore[reportArgumentType]


def three_versions(root: Path) -> None:
    for _ in range(3):
        write_deltalake(root, ROWS, mode="append")


def no_log(root: Path) -> None:
    root.mkdir()
    pq.write_table(ROWS, root / "a.parquet")


def hole(root: Path) -> None:
    three_versions(root)
    commit_file(root, 1).unlink()


def no_first_commit(root: Path) -> None:
    three_versions(root)
    commit_file(root, 0).unlink()


def damaged_json(root: Path) -> None:
    three_versions(root)
    commit_file(root, 1).write_text('{"add": {"path": ')


def damaged_checkpoint(root: Path) -> None:
    three_versions(root)
    DeltaTable(root).create_checkpoint()
    for checkpoint in (root / LOG).glob("*.checkpoint*.parquet"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:-40] + b"garbage!" * 5)


def no_metadata(root: Path) -> None:
    crafted(root)
    commit(root, 0, add(root, "a.parquet"))


def unknown_feature(root: Path) -> None:
    crafted(root, features=("timeTurner",))


def reader_version(root: Path) -> None:
    crafted(root)
    log = commit_file(root, 0)
    log.write_text(log.read_text().replace('"minReaderVersion": 1', '"minReaderVersion": 9'))


def variant(root: Path) -> None:
    crafted(root)
    begin = start([ID, field("v", "variant")], features=("variantType",))
    commit(root, 0, *begin, add(root, "a.parquet"))


def outside(root: Path) -> None:
    crafted(root)
    action = add(root, "a.parquet")
    action["add"]["path"] = "s3://elsewhere/a.parquet"
    commit(root, 0, *start([ID]), action)


def above(root: Path) -> None:
    crafted(root)
    action = add(root, "a.parquet")
    action["add"]["path"] = "../a.parquet"
    commit(root, 0, *start([ID]), action)


def bad_partition(root: Path) -> None:
    crafted(root)
    begin = start([ID, field("day", "date")], partitions=["day"])
    commit(root, 0, *begin, add(root, "a.parquet", values={"day": "2024-02-30"}))


def other_type(root: Path) -> None:
    crafted(root)
    commit(root, 0, *start([field("id", "boolean")]), add(root, "a.parquet"))


def vector_beyond_the_file(root: Path) -> None:
    crafted(root)
    vector = inline_vector([1, 3])
    commit(root, 0, *start([ID], features=("deletionVectors",)), add(root, "a.parquet", vector=vector))


def missing_vector(root: Path) -> None:
    crafted(root)
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    commit(root, 0, *start([ID], features=("deletionVectors",)), add(root, "a.parquet", vector=vector))


def damaged_vector(root: Path) -> None:
    crafted(root)
    vector = {**inline_vector([1]), "pathOrInlineDv": "0" * 40}
    commit(root, 0, *start([ID], features=("deletionVectors",)), add(root, "a.parquet", vector=vector))


FAULTS: dict[Callable[[Path], None], tuple[str, str]] = {
    no_log: ("FAILED_PRECONDITION", "not a Delta table: the folder _delta_log has no commit"),
    hole: ("DATA_LOSS", "the log has no commit 1; restore the file 00000000000000000001.json"),
    no_first_commit: ("FAILED_PRECONDITION", "version 2 is no longer in the log"),
    damaged_json: ("DATA_LOSS", "the file 00000000000000000001.json of the log is damaged"),
    damaged_checkpoint: ("DATA_LOSS", ".checkpoint.parquet of the log is damaged"),
    no_metadata: ("DATA_LOSS", "its log cannot be read"),
    unknown_feature: ("UNIMPLEMENTED", "timeTurner"),
    reader_version: ("UNIMPLEMENTED", "reader version 9"),
    variant: ("UNIMPLEMENTED", 'column "v" has the type variant'),
    outside: ("UNIMPLEMENTED", '"s3://elsewhere/a.parquet", which is not in the store of the table'),
    above: ("DATA_LOSS", '"../a.parquet"'),
    bad_partition: ("DATA_LOSS", '"2024-02-30" of the partition column "day"'),
    other_type: ("FAILED_PRECONDITION", "Boolean in version 0 of the table cannot hold its values: rewrite the file"),
    vector_beyond_the_file: ("DATA_LOSS", "its table has deleted row 3, which it does not have"),
    missing_vector: ("ABORTED", 'the deletion vector of "a.parquet" in version 0 of the table does not exist'),
    damaged_vector: ("DATA_LOSS", 'the deletion vector of "a.parquet" in version 0 of the table cannot be read'),
}


def test_each_fault_has_its_error_and_harms_no_other_dataset(tmp_path: Path, serve: Serve):
    for make in FAULTS:
        make(tmp_path / make.__name__)
    crafted(tmp_path / "healthy")
    server = serve({name.name: f"delta+{name}" for name in tmp_path.iterdir()})
    with fl.connect(server.url) as client:
        for make, (code, words) in FAULTS.items():
            for _ in range(2):
                error = failure(client, make.__name__)
                assert error.code == code, error
                assert words in str(error), error
                assert make.__name__ in str(error), error
                assert "\n" not in str(error)
        assert raw_table(client, "healthy").equals(ROWS)
    assert server.alive


def test_versions_that_do_not_exist(tmp_path: Path, serve: Serve):
    three_versions(tmp_path / "t")
    server = serve({"late": f"delta+{tmp_path / 't'}@version=7"})
    with fl.connect(server.url) as client:
        error = failure(client, "late")
        assert error.code == "FAILED_PRECONDITION"
        assert "there is no version 7: the newest version of the table is 2" in str(error)
        # It may be written later.
        for _ in range(5):
            write_deltalake(tmp_path / "t", ROWS, mode="append")
        assert raw_table(client, "late").num_rows == 24


def test_an_unsupported_feature_is_refused_only_in_versions_that_need_it(tmp_path: Path, serve: Serve):
    crafted(tmp_path / "t")
    commit(tmp_path / "t", 1, *start([ID], features=("timeTurner",)))
    server = serve({"old": f"delta+{tmp_path / 't'}@version=0", "new": f"delta+{tmp_path / 't'}"})
    with fl.connect(server.url) as client:
        assert raw_table(client, "old").equals(ROWS)
        assert "timeTurner" in str(failure(client, "new"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("delta+{}@version=x", 'the version "x" is not a number'),
        ("delta+{}@version=-1", 'the version "-1" is not a number'),
        ("delta+{}/*.parquet", "a table must be a folder"),
        ("delta+https://example.org/t", "a table must be a folder"),
        ("delta+", "the path is empty"),
        ("delta+{}/nowhere", "there is no such file or directory"),
    ],
)
def test_locations_that_are_not_tables_stop_the_start(tmp_path: Path, url: str, words: str):
    ended = run_to_end("--listen", "127.0.0.1:0", "--dataset", f"t={url.format(tmp_path)}")
    assert ended.returncode != 0
    assert words in ended.stderr, ended.stderr


def test_a_table_has_no_pinned_schema(tmp_path: Path):
    crafted(tmp_path / "t")
    flags = ("--dataset", f"t=delta+{tmp_path / 't'}", "--dataset-schema", f"t={tmp_path / 't/a.parquet'}")
    ended = run_to_end("--listen", "127.0.0.1:0", *flags)
    assert ended.returncode != 0
    assert "is a lake table, which has its own schema" in ended.stderr


def test_damaged_paths_in_the_log_are_no_way_out(tmp_path: Path, serve: Serve):
    """Paths of the log never leave the folder of the table."""
    crafted(tmp_path / "t")
    pq.write_table(ROWS, tmp_path / "secret.parquet")
    action = add(tmp_path / "t", "a.parquet")
    for path in ("../secret.parquet", "x/../../secret.parquet", "%2e%2e/secret.parquet"):
        action["add"]["path"] = path
        commit(tmp_path / "t", 0, *start([ID]), action)
        with fl.connect(serve({"t": f"delta+{tmp_path / 't'}"}).url) as client:
            assert failure(client, "t").code == "DATA_LOSS", json.dumps(path)


def test_columns_whose_types_were_widened(tmp_path: Path, serve: Serve):
    """Every widening of Delta: files before it keep their types."""
    old = {
        "b": pa.array([1, None, -128], pa.int8()),
        "i": pa.array([1, None, 2**31 - 1], pa.int32()),
        "l": pa.array([1, None, -(2**63)], pa.int64()),
        "f": pa.array([0.5, None, -1.5], pa.float32()),
        "d": pa.array([0, None, 19_782], pa.date32()),
        "m": pa.array([Decimal("1.5"), None, Decimal("-2.5")], pa.decimal128(4, 1)),
    }
    new = {
        "b": (pa.int32(), "integer"),
        "i": (pa.decimal128(12, 2), "decimal(12,2)"),
        "l": (pa.decimal128(20, 0), "decimal(20,0)"),
        "f": (pa.float64(), "double"),
        "d": (pa.timestamp("us"), "timestamp_ntz"),
        "m": (pa.decimal128(10, 3), "decimal(10,3)"),
    }
    root = tmp_path / "t"
    root.mkdir()
    before = pa.table({"id": pa.array([1, 2, 3], pa.int64()), **old})
    after = pa.table(
        {"id": pa.array([4, 5, 6], pa.int64()), **{name: old[name].cast(kind) for name, (kind, _) in new.items()}}
    )
    pq.write_table(before, root / "a.parquet")
    pq.write_table(after, root / "b.parquet")
    fields = [ID, *(field(name, kind) for name, (_, kind) in new.items())]
    begin = start(fields, features=("typeWidening", "timestampNtz"), configuration={"delta.enableTypeWidening": "true"})
    commit(root, 0, *begin, add(root, "a.parquet"), add(root, "b.parquet"))
    want = pa.concat_tables([before.cast(after.schema), after]).to_pylist()
    with fl.connect(serve({"t": f"delta+{root}"}).url) as client:
        assert raw_table(client, "t").to_pylist() == want
        for text, ids in {
            "i > 100": [3, 6],
            "l < 0": [3, 6],
            "d >= TIMESTAMP '2024-02-29 00:00:00'": [3, 6],
            "d < TIMESTAMP '2000-01-01 00:00:00' AND i = 1": [1, 4],
        }.items():
            assert read(client, "t", plan_of(stored("id"), filter=text))["id"].to_pylist() == ids, text


def test_a_date_beyond_the_wider_type_is_an_error(tmp_path: Path, serve: Serve):
    root = tmp_path / "t"
    root.mkdir()
    days = pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64()), "d": days}), root / "a.parquet")
    begin = start([ID, field("d", "timestamp_ntz")], features=("typeWidening", "timestampNtz"))
    commit(root, 0, *begin, add(root, "a.parquet"))
    with fl.connect(serve({"t": f"delta+{root}"}).url) as client:
        assert read(client, "t", plan_of(stored("id")))["id"].to_pylist() == [1, 2]
        failed = failure(client, "t")
        assert failed.code == "FAILED_PRECONDITION", str(failed)
        assert '"d"' in str(failed), str(failed)
