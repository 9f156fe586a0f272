"""The action check_plan: what a plan gives on a dataset, without reading its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.plan_check import CheckedOutput, PlanCheck
from harness.serving import Serve, Server, info

ROWS = 1000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "gap": pa.array([None if i % 7 == 0 else float(i) for i in range(ROWS)]),
            "word": pa.array([f"w{i % 5}" for i in range(ROWS)]),
            "list": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int32())),
            "key": pa.array([i % 3 for i in range(ROWS)], pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def checked_server(table: pa.Table, tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("check")
    for name, rows in (("t", table), ("keys", pa.table({"key": pa.array([0, 1], pa.int32()), "value": [1.0, 2.0]}))):
        (root / name).mkdir()
        pq.write_table(rows, root / name / "a.parquet", row_group_size=300)
    return serve({"t": root / "t", "keys": root / "keys"})


@pytest.fixture(scope="module")
def checker(checked_server: Server) -> Iterator[fb.Client]:
    with fb.connect(checked_server.url) as client:
        yield client


def outputs(check: PlanCheck) -> dict[str, CheckedOutput]:
    return {output.name: output for output in check.outputs}


def test_types_and_widths_are_those_of_the_stream(checker: fb.Client):
    plan = fb.Plan(
        outputs={
            "dense": fb.cols("id", "key").clip(0, 9),
            "half": fb.output(fb.cols("key"), dtype="float16"),
            "words": fb.cols("word").hash_bucket(100),
            "items": fb.cols("list").first_n(2),
            "text": fb.cols("word").as_stored(),
        }
    )
    check = checker.check_plan("t", plan)
    assert [output.name for output in check.outputs] == list(plan.outputs)
    found = {name: (output.type, output.width) for name, output in outputs(check).items()}
    assert found["dense"] == ("float", 2)
    assert found["half"] == ("halffloat", 1)
    assert found["words"] == ("int32", 1)
    assert found["items"][0].startswith("list<")
    assert found["items"][1] is None
    assert found["text"] == ("string", 1)
    assert check.columns == ("id", "word", "list", "key")
    assert (check.dataset, check.learns, check.passes) == ("t", (), 0)
    with checker.stream("t", plan, batch_size=8) as stream:
        batch = next(iter(stream))
    assert batch["dense"].shape == (8, 2)


def test_what_a_fit_learns_is_listed_by_pass(checker: fb.Client):
    plan = fb.Plan(
        outputs={
            "x": fb.cols("gap", "id").fill_null("mean").standardize(),
            "c": fb.cols("word").vocab(),
            "m": fb.cols("key").target_mean("id"),
            "hot": fb.cols("word").vocab().one_hot(),
        }
    )
    check = checker.check_plan("t", plan)
    learned = [(one.pass_, one.output, one.column, one.op, one.statistic) for one in check.learns]
    assert (1, "x", "gap", "fill_null", "mean") in learned
    assert (2, "x", "gap", "standardize", "mean and deviation") in learned
    assert (1, "c", "word", "vocab", "vocabulary") in learned
    assert (1, "m", "key", "target_mean", "mean of id for each value") in learned
    assert (len(learned), check.passes) == (7, 2)
    assert outputs(check)["hot"].width is None


def test_joins_and_lookups_may_give_nulls(checker: fb.Client):
    raw = fb.Plan(join=[fb.join("keys", on="key", columns=["value"])], outputs={"v": fb.cols("value")})
    filled = fb.Plan(join=[fb.join("keys", on="key", columns=["value"])], outputs={"v": fb.cols("value").fill_null(0)})
    assert outputs(checker.check_plan("t", raw))["v"].null_columns == ("value",)
    assert outputs(checker.check_plan("t", filled))["v"].null_columns == ()


def test_nulls_are_known_from_footers_and_filters(checker: fb.Client):
    dense = {"x": fb.cols("id", "gap")}
    assert outputs(checker.check_plan("t", fb.Plan(outputs=dense)))["x"].null_columns == ("gap",)
    filtered = fb.Plan(filter="gap IS NOT NULL", outputs=dense)
    assert outputs(checker.check_plan("t", filtered))["x"].null_columns == ()
    stored = outputs(checker.check_plan("t", fb.Plan(outputs={"g": fb.cols("gap").as_stored()})))["g"]
    assert (stored.nullable, stored.null_columns) == (True, ())


def test_wrong_plans_are_refused_as_in_a_fit(checker: fb.Client):
    with pytest.raises(fb.InvalidRequest, match=r'no column "wrd": did you mean "word"'):
        checker.check_plan("t", fb.Plan(outputs={"c": fb.cols("wrd").vocab()}))
    with pytest.raises(fb.InvalidRequest, match="this op learns from numbers"):
        checker.check_plan("t", fb.Plan(outputs={"c": fb.cols("word").standardize()}))
    with pytest.raises(fb.NotFound, match='"tt"'):
        checker.check_plan("tt", fb.Plan(outputs={"c": fb.cols("word").vocab()}))
    with pytest.raises(TypeError, match="plan must be a Plan"):
        checker.check_plan("t", "0123")  # type: ignore[arg-type]


def test_bare_clients_check_plans_in_json(checked_server: Server):
    plan = {"outputs": [{"name": "x", "parts": [{"columns": ["id"], "ops": [{"standardize": {}}]}]}]}
    with fl.connect(checked_server.url) as bare:
        assert "check_plan" in {action.type for action in bare.list_actions()}
        (result,) = bare.do_action(fl.Action("check_plan", json.dumps({"dataset": "t", "plan": plan}).encode()))
        found = json.loads(result.body.to_pybytes())
        assert found["outputs"] == [{"name": "x", "type": "float", "width": 1, "nullable": False, "null_columns": []}]
        assert found["learns"][0]["statistic"] == "mean and deviation"
        with pytest.raises(pa.ArrowInvalid, match="the plan to check"):
            list(bare.do_action(fl.Action("check_plan", b'{"dataset": "t"}')))
        # Nothing was learned: the plan still needs its fit.
        with pytest.raises((fl.FlightError, pa.ArrowException, OSError), match="NOT_FITTED"):
            info(bare, {"dataset": "t", "plan": plan})


def test_the_check_reads_no_rows(table: pa.Table, tmp_path: Path, serve: Serve):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none")
    whole = bytearray(path.read_bytes())
    # Every page is damaged, and the footer is whole.
    whole[4:2000] = bytes(1996)
    path.write_bytes(whole)
    server = serve({"t": tmp_path})
    with fb.connect(server.url) as client:
        check = client.check_plan("t", fb.Plan(outputs={"x": fb.cols("id").standardize()}))
        assert check.passes == 1
        with pytest.raises(fb.errors.DataLoss):
            client.fit("t", fb.Plan(outputs={"x": fb.cols("id").standardize()}))
