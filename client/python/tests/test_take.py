"""`Client.take`: rows by their numbers, of any sequence of integers, with the values of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import forebay as fb
from harness.serving import Serve

PLAN = fb.Plan(
    filter="small <> 0",
    outputs={
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "x": fb.cols("x", "unit").standardize(),
        "word": fb.output(fb.cols("word"), dtype="as_stored"),
    },
)
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})


def test_rows_are_those_of_a_stream(client: fb.Client, tiny: pa.Table) -> None:
    with client.stream("tiny", PLAN, batch_size=100, with_row_ids=True) as stream:
        (whole,) = list(stream)
    passing = whole["__row_id"]
    places = np.random.default_rng(5).integers(0, len(passing), 150)
    for taken in (
        client.take("tiny", PLAN, passing[places], with_row_ids=True),
        client.take("tiny", PLAN, positions=places, with_row_ids=True),
    ):
        assert taken["id"].tolist() == tiny["id"].to_numpy()[passing[places]].tolist()
        assert taken["x"].tobytes() == whole["x"][places].tobytes()
        assert taken["word"].to_pylist() == [whole["word"][int(place)].as_py() for place in places]
        assert taken["__row_id"].tolist() == passing[places].tolist()
        assert taken.header.rows == 150


@pytest.mark.parametrize(
    "numbers",
    [
        [7, 3, 7],
        (7, 3, 7),
        np.array([7, 3, 7], np.int8),
        np.array([7, 3, 7], np.uint64),
        pa.array([7, 3, 7], pa.uint16()),
        pa.chunked_array([[7], [3, 7]]),
        torch.tensor([7, 3, 7]),
        pd.Series([7, 3, 7]),
    ],
    ids=lambda numbers: type(numbers).__name__,
)
def test_numbers_may_be_any_integers(client: fb.Client, numbers: Any) -> None:
    assert client.take("tiny", IDS, numbers)["id"].tolist() == [7, 3, 7]
    assert client.take("tiny", IDS, positions=numbers)["id"].tolist() == [7, 3, 7]


@pytest.mark.parametrize(
    "none", [[], np.array([], np.float64), pa.array([], pa.null())], ids=["list", "NumPy", "Arrow"]
)
def test_no_numbers_are_no_rows(client: fb.Client, none: Any) -> None:
    taken = client.take("tiny", IDS, none, with_row_ids=True)
    assert (list(taken), taken["id"].shape, taken["id"].dtype) == (["id", "__row_id"], (0,), np.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, TypeError, "either row_ids or positions"),
        ({"row_ids": [1], "positions": [1]}, TypeError, "either row_ids or positions"),
        ({"row_ids": [1, -1]}, fb.InvalidRequest, r"row_ids\[1\] must be at least 0, not -1"),
        ({"row_ids": [1, 1.5]}, TypeError, r"row_ids\[1\] must be a whole number, not 1.5"),
        ({"row_ids": [True]}, TypeError, r"row_ids\[0\]"),
        ({"row_ids": "12"}, TypeError, "row_ids must be a list or an array of integers"),
        ({"row_ids": 5}, TypeError, "row_ids must be a list or an array of integers, not 5"),
        (
            {"positions": np.array([0.5])},
            TypeError,
            "positions must be a one-dimensional array of integers, not float64",
        ),
        ({"positions": np.zeros((2, 2), int)}, TypeError, r"not int64 \(2, 2\)"),
        ({"row_ids": pa.array(["a"])}, TypeError, "row_ids must be integers, not string"),
        ({"row_ids": pa.array([1, None])}, fb.InvalidRequest, "row_ids must not have nulls"),
        ({"row_ids": [5, 100]}, fb.InvalidRequest, r"row_ids\[1\]: 100 is not below 100"),
        ({"row_ids": np.zeros(65_537, int)}, fb.ResourceExhausted, "65537 rows, the limit is 65536"),
        ({"row_ids": [1], "snapshot": "0" * 32}, fb.SnapshotChanged, "snapshot changed"),
    ],
)
def test_wrong_numbers_are_refused(
    client: fb.Client, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.take("tiny", IDS, **arguments)


def test_mixtures_are_refused(client: fb.Client) -> None:
    with pytest.raises(TypeError, match="dataset must be the name of a dataset"):
        client.take(fb.mix({"tiny": 1.0, "flights": 1.0}), IDS, [1])  # pyright: ignore[reportArgumentType]


def test_a_dropped_row_is_named(client: fb.Client, tiny: pa.Table) -> None:
    dropped = int(np.flatnonzero(tiny["small"].to_numpy() == 0)[0])
    with pytest.raises(fb.InvalidRequest, match=rf"row_ids\[0\]: row {dropped} does not pass the plan's filter"):
        client.take("tiny", PLAN, [dropped])


def test_replay_and_take_give_the_same_rows(client: fb.Client) -> None:
    replay = client.replay("tiny", PLAN, step=2, batch_size=9, shuffle=True, seed=4)
    taken = client.take("tiny", PLAN, replay.rows["row_id"], snapshot=replay.snapshot)
    assert taken.data.equals(replay.batch.data)
    assert taken.header.checksum == replay.batch.header.checksum


def test_rows_arrive_through_the_ring_and_outlive_it(tiny_folder: Path, serve: Serve) -> None:
    with fb.connect(serve({"tiny": tiny_folder}, unix=True).url) as client:
        taken = [client.take("tiny", IDS, [row, 99 - row]) for row in range(20)]
    assert {batch.transport for batch in taken} == {"ring"}
    assert [batch["id"].tolist() for batch in taken] == [[row, 99 - row] for row in range(20)]


def test_another_replica_takes_over(tiny_folder: Path, serve: Serve) -> None:
    first, second = serve({"tiny": tiny_folder}), serve({"tiny": tiny_folder})
    with fb.connect([first.url, second.url]) as client:
        assert client.take("tiny", PLAN, [5])["id"].tolist() == [5]
        first.process.kill()
        assert client.take("tiny", PLAN, [6])["id"].tolist() == [6]
        assert client.url == second.url
