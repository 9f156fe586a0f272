"""SIGHUP: functions come and go under a running server, and plans in use keep theirs."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.udf.pool import Functions
from harness.udf.table import table


def reloads(server: Daemon) -> float:
    return scrape(server).value("forebay_config_reloads_total", status="ok")


def reload(server: Daemon, file: Path, text: str) -> None:
    before = reloads(server)
    file.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    assert poll(lambda: reloads(server) > before), server.lines


def test_functions_are_added_and_removed(data: Path, functions: Functions, tmp_path: Path):
    file, base = tmp_path / "forebay.toml", f'dataset = ["t={data}"]\nstate = "{tmp_path / "state"}"\n'
    file.write_text(base)
    server = Daemon(*LOOPBACK, "--config", str(file))
    try:
        plan = fb.Plan(
            outputs={"n": fb.output(fb.cols("text").udf("length"), dtype="INT64")}, filter="text IS NOT NULL"
        )
        with fb.connect(server.url) as client:
            with pytest.raises(fb.InvalidRequest, match='no function "length"'):
                client.stream("t", plan, batch_size=100)
            reload(server, file, base + f'udf = ["length=unix:{functions.path}"]\n')
            stream = client.stream("t", plan, batch_size=100)
            first = np.asarray(next(stream)["n"])
            reload(server, file, base)
            # The running stream has the function, a new one does not.
            rest = [np.asarray(batch["n"]) for batch in stream]
            expected = [len(text) for text in table()["text"].to_pylist() if text is not None]
            assert np.concatenate([first, *rest]).tolist() == expected
            with pytest.raises(fb.InvalidRequest, match='no function "length"'):
                client.stream("t", plan, batch_size=100)
    finally:
        server.stop()
