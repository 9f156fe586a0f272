"""`client.exchange`: a plan's outputs for rows in memory, as NumPy arrays."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.daemon import poll
from harness.proxy import Proxy
from harness.serving import Serve, Server

PLAN = fb.Plan(
    filter="x > 0",
    derive={"big": "x > 3"},
    outputs={
        "dense": fb.cols("x", "gappy").fill_null("mean").standardize(),
        "word": fb.cols("word").vocab(),
        "label": fb.cols("big"),
        "text": fb.cols("word").as_stored(),
    },
)
COLUMNS = ["x", "gappy", "word"]


@pytest.fixture(scope="module")
def fitted(server: Server) -> fb.FittedPlan:
    with fb.connect(server.url) as client:
        return client.fit("tiny", PLAN, progress=False)


@pytest.fixture
def exchange(client: fb.Client, fitted: fb.FittedPlan) -> Iterator[fb.Exchange]:
    with client.exchange(fitted) as opened:
        yield opened


def assert_features(found: dict, expected: dict) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        if isinstance(values, pa.Array):
            assert found[name].equals(values)
        else:
            assert found[name].dtype == values.dtype
            assert found[name].shape == values.shape
            assert found[name].tobytes() == values.tobytes()


def test_batches_tables_and_arrays_give_the_features_of_a_stream(
    client: fb.Client, exchange: fb.Exchange, fitted: fb.FittedPlan, tiny: pa.Table
):
    (streamed,) = client.stream("tiny", fitted, batch_size=1000)
    expected = {name: streamed[name] for name in streamed}
    table = tiny.select(COLUMNS)
    assert_features(exchange(table), expected)
    assert_features(exchange(tiny), expected)
    assert_features(exchange(table.combine_chunks().to_batches()[0]), expected)
    arrays = {"x": tiny["x"].to_numpy(), "gappy": tiny["gappy"], "word": tiny["word"].to_pylist()}
    assert_features(exchange(arrays), expected)
    assert expected["dense"].shape[1] == 2


def test_features_are_views_of_the_received_memory(exchange: fb.Exchange):
    features = exchange({"x": np.ones(1000), "gappy": np.ones(1000), "word": ["c"] * 1000})
    assert not features["dense"].flags.owndata
    assert not features["dense"].flags.writeable


def test_schema_sets_types_that_arrays_leave_open(client: fb.Client, fitted: fb.FittedPlan):
    schema = pa.schema({"x": pa.float64(), "gappy": pa.float64(), "word": pa.string()})
    rows = {"word": [None], "gappy": [None], "x": [3], "more": [1]}
    with client.exchange(fitted, schema=schema) as typed:
        assert typed(rows)["dense"].shape == (1, 2)
        assert typed(rows)["word"].tolist() == [0]
        assert typed(pa.table(rows))["label"].tolist() == [0.0]
        with pytest.raises(ValueError, match="lacks gappy, word"):
            typed({"x": [1.0]})
    with client.exchange(fitted) as untyped, pytest.raises(fb.FailedPrecondition, match="schema drift"):
        untyped(rows)


def test_reopens_for_other_columns_and_survives_an_error(exchange: fb.Exchange):
    rows = {"x": [1.0], "gappy": [2.0], "word": ["c"]}
    first = exchange(rows)
    with pytest.raises(fb.InvalidRequest, match="gappy"):
        exchange({"x": [1.0], "word": ["c"]})
    assert_features(exchange(rows), first)
    assert_features(exchange({**rows, "extra": [1]}), first)
    assert exchange({"x": [-1.0], "gappy": [2.0], "word": ["c"]})["dense"].shape == (0, 2)


def test_plans_are_sent_by_id_or_inline(client: fb.Client, fitted: fb.FittedPlan):
    rows = {"x": [1.0], "gappy": [2.0], "word": ["c"]}
    with client.exchange(fitted.plan_id) as by_id, client.exchange(fitted.plan) as whole:
        assert_features(by_id(rows), whole(rows))
    with client.exchange(PLAN) as unfitted, pytest.raises(fb.NotFitted):
        unfitted(rows)
    with pytest.raises(fb.NotFound), client.exchange("ab") as unknown:
        unknown(rows)
    with pytest.raises(TypeError):
        client.exchange(3)  # type: ignore[arg-type]


def test_threads_can_share_an_exchange(exchange: fb.Exchange):
    def ask(number: int) -> bool:
        x = np.full(5, 1.0 + number)
        alone = exchange({"x": x, "gappy": x, "word": ["c"] * 5})
        return bool(alone["label"].tolist() == [float(1.0 + number > 3)] * 5)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(200)))


def test_closed_exchange_raises(client: fb.Client, fitted: fb.FittedPlan):
    rows = {"x": [1.0], "gappy": [2.0], "word": ["c"]}
    with client.exchange(fitted) as opened:
        opened(rows)
    with pytest.raises(fb.ForebayError, match="closed"):
        opened(rows)
    opened.close()


def test_close_ends_a_waiting_call(serve: Serve, tiny_folder: Path, fitted: fb.FittedPlan):
    server = serve({"tiny": tiny_folder})
    rows = {"x": [1.0], "gappy": [2.0], "word": ["c"]}
    with fb.connect(server.url) as client, client.exchange(fitted) as exchange:
        exchange(rows)
        server.process.send_signal(signal.SIGSTOP)
        assert poll(lambda: Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(exchange, rows)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            exchange.close()
            with pytest.raises(fb.ForebayError):
                waiting.result(10)


def test_changed_metadata_does_not_reopen_the_exchange(exchange: fb.Exchange):
    rows = pa.RecordBatch.from_pydict({"x": [1.0], "gappy": [2.0], "word": ["c"]})
    first = exchange(rows.replace_schema_metadata({"pandas": "1 row"}))
    call = exchange._call
    assert_features(exchange(rows.replace_schema_metadata({"pandas": "2 rows"})), first)
    assert exchange._call is call


def test_fails_over_to_another_replica_when_the_connection_breaks(
    serve: Serve, tiny_folder: Path, fitted: fb.FittedPlan
):
    first, second = serve({"tiny": tiny_folder}), serve({"tiny": tiny_folder})
    proxy = Proxy(first.url)
    rows = {"x": [1.0, 4.0], "gappy": [2.0, None], "word": ["c", "ab"]}
    # No server has fitted the plan: it is sent inline where its id is unknown.
    with fb.connect([proxy.url, second.url], retry_seconds=20) as client, client.exchange(fitted) as exchange:
        before = exchange(rows)
        proxy.refuse()
        assert_features(exchange(rows), before)
        assert_features(exchange(rows), before)
    with fb.connect(second.url, retry_seconds=0) as client, client.exchange(fitted) as exchange:
        exchange(rows)
        second.stop()
        with pytest.raises((fb.Unavailable, fb.BrokenStream)):
            exchange(rows)
    assert threading.active_count() < 50
