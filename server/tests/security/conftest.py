"""A secured server, one for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.flight as fl
import pytest

from harness.secured import Secured
from harness.serving import Serve


@pytest.fixture(scope="module")
def secured(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(serve, tmp_path_factory.mktemp("secured"))


@pytest.fixture
def client(secured: Secured) -> Iterator[fl.FlightClient]:
    with secured.client() as client:
        yield client
