"""Random walks through the client (client_driver.py), each from a seed that a failure reports.

FOREBAY_DRIVER_SEED=n runs that one again, FOREBAY_DRIVER_SEEDS=n the first n, FOREBAY_DRIVER_STEPS=n steps of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.restartable import Restartable
from harness.trainers.client_driver import Driver, write_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    # Python swallows an exception raised in a finalizer, and warns.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEEDS_DEFAULT, STEPS_DEFAULT = 8, 25


def seeds() -> list[int]:
    if one := os.environ.get("FOREBAY_DRIVER_SEED"):
        return [int(one)]
    return list(range(int(os.environ.get("FOREBAY_DRIVER_SEEDS", SEEDS_DEFAULT))))


@pytest.fixture(scope="module")
def restartable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    folder = tmp_path_factory.mktemp("driver")
    write_rows(folder / "rows")
    server = Restartable({"rows": folder / "rows"}, Path(folder / "state"))
    yield server
    server.kill()


@pytest.mark.parametrize("seed", seeds())
def test_every_loop_continues_the_epoch(restartable: Restartable, seed: int):
    steps = int(os.environ.get("FOREBAY_DRIVER_STEPS", STEPS_DEFAULT))
    Driver(seed, restartable).run(steps)
