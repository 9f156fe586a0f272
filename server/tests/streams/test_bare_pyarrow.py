"""A client without the forebay package: only pyarrow, json and NumPy."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.serving import Serve, Server

PLAN = {
    "filter": "gappy IS NOT NULL",
    "derive": [{"name": "big", "expr": "x > 3"}],
    "outputs": [
        {
            "name": "dense",
            "dtype": "FLOAT32",
            "parts": [{"columns": ["x", "gappy"], "ops": [{"standardize": {}}, {"clip": {"min": -2, "max": 2}}]}],
        },
        {"name": "word", "dtype": "INT32", "parts": [{"columns": ["word"], "ops": [{"vocab": {"min_count": 2}}]}]},
        {"name": "label", "parts": [{"columns": ["big"]}]},
    ],
}


@pytest.fixture
def flight(server: Server):
    with fl.connect(server.url) as client:
        yield client


def get_info(client: fl.FlightClient, **request: object) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request)))


def put(client: fl.FlightClient) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("tiny"), pa.schema([("a", pa.int32())]))
    writer.close()


def fit(client: fl.FlightClient) -> dict[str, object]:
    action = fl.Action("fit", json.dumps({"dataset": "tiny", "plan": PLAN}).encode())
    updates = [json.loads(result.body.to_pybytes()) for result in client.do_action(action)]
    assert all("progress" in update for update in updates[:-1])
    return updates[-1]["result"]


def test_list(flight: fl.FlightClient, tiny: pa.Table):
    infos = {info.descriptor.path[0].decode(): info for info in flight.list_flights()}
    assert set(infos) == {"tiny", "flights"}
    assert infos["tiny"].total_records == 100
    assert infos["tiny"].total_bytes > 0
    assert infos["tiny"].schema.equals(tiny.schema)


def test_raw_table(flight: fl.FlightClient, tiny: pa.Table):
    descriptor = fl.FlightDescriptor.for_path("tiny")
    info = flight.get_flight_info(descriptor)
    assert len(info.endpoints) == 1
    assert flight.get_schema(descriptor).schema.equals(tiny.schema)
    assert flight.do_get(info.endpoints[0].ticket).read_all().equals(tiny)


def test_fit_then_stream(flight: fl.FlightClient, tiny: pa.Table):
    fitted = fit(flight)
    rows = tiny.to_pandas().dropna(subset=["gappy"])
    info = get_info(flight, dataset="tiny", plan_id=fitted["plan_id"], batch_size=16, world_size=2, with_row_ids=True)
    assert info.total_records == len(rows)
    assert len(info.endpoints) == 2
    epoch = json.loads(info.app_metadata)
    assert epoch["plan_id"] == fitted["plan_id"]
    assert epoch["rows"] == len(rows)

    dense, words, labels, ids = [], [], [], []
    for rank, endpoint in enumerate(info.endpoints):
        share = json.loads(endpoint.app_metadata)
        assert share["rank"] == rank
        headers = []
        for chunk in flight.do_get(endpoint.ticket):
            headers.append(json.loads(chunk.app_metadata.to_pybytes()))
            assert headers[-1]["rows"] == chunk.data.num_rows
            dense.append(chunk.data.column("dense").to_numpy_ndarray())
            words.append(chunk.data.column("word").to_numpy())
            labels.append(chunk.data.column("label").to_numpy())
            ids.append(chunk.data.column("__row_id").to_numpy())
        assert len(headers) == share["steps"]
        assert [h["last"] for h in headers] == [False] * (len(headers) - 1) + [True]
        assert [h["step"] for h in headers] == list(range(len(headers)))
        assert [h["position"] for h in headers] == [32 * step for step in range(len(headers))]

    values = rows[["x", "gappy"]].to_numpy()
    scaled = ((values - values.mean(0)) / values.std(0)).clip(-2, 2)
    assert np.allclose(np.concatenate(dense), scaled, rtol=1e-6, atol=1e-7)
    counts = rows["word"].value_counts()
    order = sorted(counts.index, key=lambda word: (-counts[word], word.encode()))
    index = {word: place + 1 for place, word in enumerate(order) if counts[word] >= 2}
    assert np.array_equal(np.concatenate(words), [index.get(word, 0) for word in rows["word"]])
    assert np.array_equal(np.concatenate(labels), (rows["x"] > 3).to_numpy().astype(np.float32))
    assert np.array_equal(np.concatenate(ids), rows.index.to_numpy())


def test_unfitted_plan_error_names_the_fit_action(flight: fl.FlightClient):
    with pytest.raises(pa.ArrowInvalid, match="precondition failed.*fit"):
        get_info(flight, dataset="tiny", plan=PLAN)


def test_unknown_dataset_error_suggests_similar_names(flight: fl.FlightClient):
    with pytest.raises(KeyError, match='not found.*"tony".*"tiny"'):
        flight.get_flight_info(fl.FlightDescriptor.for_path("tony"))
    with pytest.raises(KeyError, match='not found.*"tony".*"tiny"'):
        get_info(flight, dataset="tony", plan=PLAN)


def test_lists_actions_and_rejects_others_as_unimplemented(flight: fl.FlightClient):
    assert "fit" in {action.type for action in flight.list_actions()}
    with pytest.raises((NotImplementedError, pa.ArrowInvalid)):
        list(flight.do_action(fl.Action("dance", b"{}")))
    with pytest.raises(NotImplementedError, match="never written"):
        put(flight)


def test_unix_socket_needs_no_options(serve: Serve, tiny_folder: object, tiny: pa.Table):
    server = serve({"tiny": tiny_folder}, unix=True)
    assert server.url.startswith("grpc+unix:///")
    with fl.connect(server.url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_path("tiny"))
        assert client.do_get(info.endpoints[0].ticket).read_all().equals(tiny)
