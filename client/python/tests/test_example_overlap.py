"""The example overlap.py with less data: equal rows and losses in both ways, and the structure of what it measures."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import forebay as fb
from harness.examples import EXAMPLES, example_module, run_example

ROWS = 60_000
BATCHES = -(-ROWS // 8_192)
JOBS = {"file order, waits": False, "shuffled, waits": True, "shuffled, torch": True}


@pytest.fixture
def example() -> Any:
    return example_module("overlap")


@dataclass
class Ran:
    """What the example printed and wrote."""

    printed: str
    rounds: list[dict[str, Any]]
    picture: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("overlap")
    raw, picture = folder / "raw.json", folder / "timeline.svg"
    drawn = ["--picture", picture] if importlib.util.find_spec("matplotlib") else []
    printed = run_example("overlap.py", "--rows", str(ROWS), "--rounds", "2", "--json", raw, *drawn)
    return Ran(printed, json.loads(raw.read_text())["rounds"], picture)


def digest(rows: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(rows.astype(np.int64).tobytes()).hexdigest()


def test_both_ways_train_on_the_rows_of_the_epoch_in_its_order(ran: Ran, example: Any, tmp_path: Path):
    assert "rows and losses are equal in all 2 rounds" in ran.printed
    example.write_events(tmp_path / "events", ROWS)
    ids = fb.Plan(outputs={"label": fb.cols("label")})
    with fb.connect(fb.local(events=tmp_path / "events")) as client:
        for number, found in enumerate(ran.rounds):
            assert set(found) == set(JOBS)
            for name, shuffle in JOBS.items():
                order = {"batch_size": 8_192, "shuffle": shuffle, "seed": 7, "epoch": number}
                stream = client.stream("events", ids, **order, with_row_ids=True)
                rows = np.concatenate([batch["__row_id"] for batch in stream])
                assert (rows == np.arange(ROWS)).all() != shuffle
                assert found[name]["apart"]["rows_sha256"] == digest(rows)
                assert found[name]["together"]["rows_sha256"] == digest(rows)


def test_steps_follow_each_other_and_the_preparation(ran: Ran):
    for name, found in ran.rounds[-1].items():
        apart, together = found["apart"], found["together"]
        assert apart["steps"][0][0] >= apart["preparation_seconds"] > 0
        longer = max(apart["preparation_seconds"], apart["seconds"] - apart["preparation_seconds"])
        assert found["ratio"] == pytest.approx(together["seconds"] / longer, rel=0.01)
        assert len(set(found["losses"])) == (BATCHES if name == "shuffled, torch" else 0)
        for epoch in (apart, together):
            assert len(epoch["steps"]) == BATCHES
            flat = [time for step in epoch["steps"] for time in step]
            assert flat == sorted(flat)
            assert epoch["seconds"] >= flat[-1]
            assert epoch["busy"][-1][0] >= flat[-1]
            assert all(cores >= 0 for _, cores in epoch["busy"])


def test_a_different_row_or_loss_ends_the_example(example: Any):
    def epoch(rows: list[int], loss: float) -> Any:
        return example.Epoch(rows=[torch.tensor(rows)], losses=[loss])

    example.check_equal("job", epoch([1, 2], 0.5), epoch([1, 2], 0.5))
    with pytest.raises(SystemExit, match="job: the rows"):
        example.check_equal("job", epoch([1, 2], 0.5), epoch([2, 1], 0.5))
    with pytest.raises(SystemExit, match="job: the losses"):
        example.check_equal("job", epoch([1, 2], 0.5), epoch([1, 2], math.nextafter(0.5, 1)))


def test_the_picture_has_both_timelines(ran: Ran):
    pytest.importorskip("matplotlib", reason="part of the test requirements; absent only where someone left it out")
    text = ran.picture.read_text()
    for name in (">one after the other: ", ">one computation: ", ">training: steps<", ">seconds<"):
        assert name in text


def test_neighbouring_steps_are_one_bar(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib", reason="part of the test requirements; absent only where someone left it out")
    # Ahead of the module of grafana/ with this name.
    monkeypatch.syspath_prepend(str(EXAMPLES))
    merged = example_module("pictures").merged
    assert merged([(0, 1), (1.1, 2), (3, 4)], gap=0.2) == [(0, 2), (3, 4)]
