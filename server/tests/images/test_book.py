"""The example of the page about images."""

from __future__ import annotations

import numpy as np
import pytest

from harness.daemon import Daemon
from harness.documents import example


def test_images_example(daemon: Daemon, capsys: pytest.CaptureFixture[str]):
    code = example("images-plan")
    assert "grpc://127.0.0.1:8815" in code
    names: dict[str, object] = {}
    exec(compile(code.replace("grpc://127.0.0.1:8815", daemon.url), "example", "exec"), names)
    assert "(64, 224, 224, 3) uint8" in capsys.readouterr().out
    assert np.asarray(names["batch"]["label"]).max() == 2  # type: ignore[index]
