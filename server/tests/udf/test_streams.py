"""Columns of Python functions against the functions themselves, called on the whole table: equal to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import info
from harness.udf import functions as declared
from harness.udf.functions import length, letters, powers, ratio, slug
from harness.udf.pool import Functions
from harness.udf.table import ROWS, table

ORDERS: list[dict[str, Any]] = [{}, {"shuffle": True, "seed": 3, "window_rows": 512, "lanes": 4}]


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[fb.Client]:
    with fb.connect(daemon.url) as connected:
        yield connected


def outputs(**chains: fb.Columns) -> fb.Plan:
    return fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), **chains})


def rows(client: fb.Client, plan: fb.Plan, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Every row of a stream, sorted by id."""
    batches = list(client.stream("t", plan, **{"batch_size": 777, **options}))
    columns = {name: np.concatenate([plain(batch[name]) for batch in batches]) for name in batches[0]}
    order = np.argsort(columns["id"])
    return {name: values[order] for name, values in columns.items()}


def plain(values: Any) -> np.ndarray[Any, Any]:
    return values if isinstance(values, np.ndarray) else np.array(values.to_pylist(), object)


def column(name: str) -> pa.Array[Any]:
    return table()[name].combine_chunks()


def calls(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_udf_calls_total", status="ok")


@pytest.mark.parametrize("order", ORDERS, ids=["file order", "shuffled"])
def test_every_kind_of_result_equals_the_function_on_the_whole_table(client: fb.Client, order: dict[str, Any]):
    padded = fb.cols("text").udf("letters").pad(4, -1)
    plan = outputs(
        number=fb.output(fb.cols("text").udf("length"), dtype="INT64"),
        two=fb.cols("x").udf("ratio", "y"),
        matrix=fb.cols("x").udf("powers"),
        text=fb.cols("text").udf("slug").as_stored(),
        padded=fb.output(padded, dtype="INT64"),
        hashed=fb.cols("text").udf("slug").hash_bucket(1000),
    )
    found = rows(client, plan, **order)
    x, y = np.asarray(column("x")), np.asarray(column("y")).astype(np.float64)
    assert found["number"].tolist() == length(column("text")).to_pylist()
    assert found["two"].tobytes() == ratio(x, y).tobytes()
    assert found["matrix"].tobytes() == powers(x).tobytes()
    assert found["text"].tolist() == slug(column("text")).to_pylist()
    expected = [(values + [-1] * 4)[:4] for values in letters(column("text")).to_pylist()]
    assert found["padded"].tolist() == expected
    stored = table().append_column("slugs", slug(column("text")))
    known = dict(zip(stored["slugs"].to_pylist(), found["hashed"].tolist(), strict=True))
    assert [known[value] for value in stored["slugs"].to_pylist()] == found["hashed"].tolist()
    assert len(set(known.values())) > 300


@pytest.mark.parametrize("order", ORDERS, ids=["file order", "shuffled"])
def test_ranks_and_resumed_streams_have_the_bytes_of_the_whole_epoch(client: fb.Client, order: dict[str, Any]):
    plan = fb.Plan(filter="id % 3 = 1", outputs={"o": fb.cols("x").udf("powers"), "id": fb.cols("id")})
    options = {"batch_size": 500, **order}
    whole = [batch.data for batch in client.stream("t", plan, **options)]
    again = [batch.data for batch in client.stream("t", plan, **options)]
    assert all(one.equals(other) for one, other in zip(whole, again, strict=True))
    resumed = [batch.data for batch in client.stream("t", plan, start_position=2_000, **options)]
    assert all(one.equals(other) for one, other in zip(whole[4:], resumed, strict=True))
    ranks = [[b["id"] for b in client.stream("t", plan, rank=rank, world_size=2, **options)] for rank in (0, 1)]
    ids = sorted(int(value) for rank in ranks for batch in rank for value in batch)
    assert ids == [row for row in range(ROWS) if row % 3 == 1]


def test_arguments_may_be_derived_and_filters_apply_before(client: fb.Client):
    plan = fb.Plan(
        filter="small < 50",
        derive={"part": "CAST(small AS DOUBLE) / 3", "plus": "y + 1"},
        outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), "o": fb.cols("part").udf("ratio", "plus")},
    )
    found = rows(client, plan)
    small, y = np.asarray(column("small")), np.asarray(column("y"))
    kept = small < 50
    expected = ratio(small[kept] / 3, (y[kept] + np.float32(1)).astype(np.float64))
    assert found["o"].tobytes() == expected.tobytes()


def test_a_fit_learns_from_the_results(client: fb.Client):
    plan = outputs(
        scaled=fb.cols("text").udf("length").standardize(),
        words=fb.cols("text").udf("slug").vocab(min_count=2),
    )
    fitted = client.fit("t", plan)
    lengths = np.asarray(length(column("text"))).astype(np.float64)
    scale = fitted.plan.outputs["scaled"].parts[0].ops[1].to_dict()
    assert scale["mean"] == pytest.approx(lengths.mean(), rel=1e-12)
    assert scale["std"] == pytest.approx(lengths.std(), rel=1e-12)
    found = rows(client, fitted)
    slugs = slug(column("text")).to_pylist()
    vocabulary = [None, *fitted.vocab("words", "text")[1:]]
    assert [vocabulary[index] for index in found["words"]] == slugs
    assert fitted.plan.outputs["words"].parts[0].ops[0].to_dict()["digest"] == slug.digest()
    # Kept, as nothing changed.
    assert client.fit("t", plan).plan_id == fitted.plan_id


def test_the_second_epoch_comes_from_the_cache_without_a_call(client: fb.Client, daemon: Daemon):
    plan = outputs(o=fb.cols("x").udf("powers").clip(0, 1e6))
    first, made = rows(client, plan, shuffle=True), calls(daemon)
    second = rows(client, plan, shuffle=True, epoch=1, seed=9)
    assert calls(daemon) == made
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_groups_and_mixtures_call_functions(client: fb.Client, daemon: Daemon):
    plan = outputs(o=fb.output(fb.cols("text").udf("length"), dtype="INT64"))
    lengths = length(column("text")).to_pylist()
    with fl.connect(daemon.url) as plain:
        request = {"dataset": "t", "plan": plan.to_dict(), "group_by": "small", "batch_size": 1000}
        found = info(plain, request)
        assert len(found.endpoints) == 100
        group = plain.do_get(found.endpoints[7].ticket).read_all()
    ids = group["id"].to_pylist()
    assert len(ids) == len(range(7, ROWS, 100))
    assert group["o"].to_pylist() == [lengths[row] for row in ids]
    odd = fb.Plan(filter="id % 2 = 1", outputs=plan.outputs)
    mixture = fb.mix([{"dataset": "t", "weight": 1, "plan": odd}, {"dataset": "t", "weight": 2, "plan": plan}])
    mixed = list(client.stream(mixture, plan, batch_size=500, shuffle=True))
    assert sum(len(batch["o"]) for batch in mixed) > ROWS
    for batch in mixed:
        assert batch["o"].tolist() == [lengths[row] for row in batch["id"].tolist()]


def test_an_exchange_has_the_bytes_of_the_stream(client: fb.Client):
    plan = outputs(two=fb.cols("x").udf("ratio", "y").clip(0, 100), n=fb.cols("text").udf("length"))
    found = rows(client, plan)
    with client.exchange(plan) as exchange:
        answered = exchange.batch(table().to_batches()[0].slice(0, 9_000))
    assert np.asarray(answered["two"]).tobytes() == found["two"][:9_000].tobytes()
    assert np.asarray(answered["n"]).tobytes() == found["n"][:9_000].tobytes()


def test_a_replay_has_the_bytes_of_the_step(client: fb.Client):
    plan = outputs(o=fb.cols("x").udf("powers"))
    batches = list(client.stream("t", plan, batch_size=512, shuffle=True))
    replayed = client.replay("t", plan, rank=0, step=3, batch_size=512, shuffle=True)
    assert replayed.batch.data.equals(batches[3].data)


def test_explain_metrics_headers_and_log_name_the_stage(client: fb.Client, daemon: Daemon):
    plan = outputs(o=fb.cols("x").udf("ratio", "y"))
    assert client.explain("t", plan, batch_size=100).udfs == ("ratio(x, y)",)
    before = calls(daemon)
    spent = sum(batch.header.stage_seconds.udf for batch in client.stream("t", plan, batch_size=3_333))
    after = scrape(daemon)
    assert spent > 0
    assert after.value("forebay_udf_calls_total", status="ok") > before
    assert after.value("forebay_udf_seconds_count") >= after.value("forebay_udf_calls_total", status="ok")
    assert after.value("forebay_stage_seconds_total", stage="udf") > 0
    assert any('"udf_seconds":0.' in line or "udf_seconds=0." in line for line in daemon.lines)


def test_a_chunk_is_divided_among_the_processes(client: fb.Client):
    found = rows(client, outputs(process=fb.output(fb.cols("id").udf("process"), dtype="INT64")))
    assert len(set(found["process"].tolist())) == 2


def test_another_source_is_another_plan_and_the_earlier_plan_is_refused(data: Path, tmp_path: Path):
    text = Path(declared.__file__).read_text()
    path = tmp_path / "udf.sock"
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "changing.py").write_text(text)
    (tmp_path / "second" / "changing.py").write_text(text + "\n# Another comment.\n")
    plan = outputs(o=fb.cols("text").udf("length"))
    server = Daemon(*LOOPBACK, "--dataset", f"t={data}", "--state", str(tmp_path / "s"), "--udf", f"length=unix:{path}")
    try:
        with fb.connect(server.url) as client:
            with Functions(["changing:length"], path, processes=1, folder=tmp_path / "first"):
                first = client.fit("t", plan)
                rows(client, first)
            with Functions(["changing:length"], path, processes=1, folder=tmp_path / "second"):
                # The compiled plan is in memory: the call itself is refused.
                with pytest.raises(fb.FailedPrecondition, match='function "length" has changed') as changed:
                    rows(client, first)
                assert changed.value.reason == "UDF_FAILED"
                second = client.fit("t", plan)
                assert second.plan_id != first.plan_id
                assert rows(client, second)["o"].tolist() == length(column("text")).to_pylist()
    finally:
        server.stop()


def test_other_columns_than_the_function_declares_are_rejected_by_name(client: fb.Client):
    for chain, words in [
        (fb.cols("text").udf("lenght"), 'no function "lenght": did you mean "length"'),
        (fb.cols("id").udf("length"), 'argument "text" of function "length" is Utf8, and column "id" is Int64'),
        (fb.cols("x").udf("ratio"), r"has 2 argument\(s\) \(part: Float64, whole: Float64\), and the op has 1"),
        (fb.cols("x").udf("ratio", "z"), 'no column "z"'),
        (fb.cols("text").udf("length", "x"), r"has 1 argument\(s\)"),
        (fb.cols("text").udf("slug").log1p(), r"ops\[1\].log1p"),
        (fb.cols("stamp").udf("process"), "is Timestamp"),
    ]:
        with pytest.raises(fb.InvalidRequest, match=words):
            rows(client, outputs(o=chain))


def test_a_column_of_the_name_of_a_result_is_rejected(tmp_path: Path, functions: Functions):
    pq.write_table(table().append_column("length(text)", column("id")), tmp_path / "part.parquet")
    server = Daemon(*LOOPBACK, "--dataset", f"t={tmp_path}", "--state", str(tmp_path / "s"), *functions.flag("length"))
    try:
        with fb.connect(server.url) as client, pytest.raises(fb.InvalidRequest, match="rename the column"):
            rows(client, outputs(o=fb.cols("text").udf("length")))
    finally:
        server.stop()


def test_taken_rows_have_the_results_of_the_stream(client: fb.Client):
    plan = outputs(
        length=fb.output(fb.cols("text").udf("length"), dtype="INT64"), slug=fb.cols("text").udf("slug").vocab()
    )
    for chosen in (plan, plan.with_filter("id % 3 = 1")):
        fitted = client.fit("t", chosen)
        expected = rows(client, fitted, with_row_ids=True)
        numbers = expected["__row_id"][[5, 0, 300, 5, 17]]
        taken = client.take("t", fitted, numbers)
        for name in ("id", "length", "slug"):
            assert taken[name].tolist() == expected[name][[5, 0, 300, 5, 17]].tolist(), name
