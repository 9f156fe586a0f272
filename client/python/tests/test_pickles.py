"""What a DataLoader's worker receives by pickle: clients, datasets, batches and replays."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Server

PLAN = fb.Plan(
    outputs={
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "pair": fb.cols("x", "unit").standardize(),
        "word": fb.cols("word").as_stored(),
    }
)


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_client_connects_again(server: Server):
    with fb.connect(server.url) as client:
        fitted = client.fitted("tiny", PLAN)
        with copied(client) as other:
            assert other.url == client.url
            assert other.fitted("tiny", PLAN) == fitted
            rows = [pair.take("tiny", PLAN, positions=[5, 3])["id"].tolist() for pair in (client, other)]
            assert rows == [[5, 3], [5, 3]]
        assert client.schema("tiny") is not None
    with pytest.raises(fb.Unavailable, match="closed"):
        copied(client).schema("tiny")


def test_an_array_dataset_keeps_its_epoch_and_position(server: Server):
    with fb.ArrayDataset(server.url, "tiny", PLAN, batch_size=16, shuffle=True, seed=3) as data:
        list(data)
        batches = iter(data)
        next(batches)
        with copied(data) as other:
            assert other.state_dict() == data.state_dict()
            assert other.epoch == data.epoch == 1
            found = [batch["id"].tolist() for batch in other]
        del batches
        assert found == [batch["id"].tolist() for batch in data]


def test_batches_and_replays_have_the_same_values(server: Server):
    with fb.connect(server.url) as client:
        batches = list(client.stream("tiny", PLAN, batch_size=30))
        for batch in batches:
            other = copied(batch)
            assert other.data.equals(batch.data)
            assert (other.header, list(other)) == (batch.header, list(batch))
            assert other["pair"].tolist() == batch["pair"].tolist()
        replay = client.replay("tiny", PLAN, step=1, batch_size=30)
        for other in (copied(replay), copied(replay)):
            assert other.rows.equals(replay.rows)
            assert other.batch.data.equals(batches[1].data)
        assert copied(replay).batch["id"].tolist() == replay.batch["id"].tolist()


def test_a_dataset_that_has_sampled_its_loop(server: Server):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=16)
    loop = iter(data)
    next(loop)
    next(iter(data))
    assert copied(data).state_dict() == data.state_dict()
