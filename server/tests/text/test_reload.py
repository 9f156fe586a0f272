"""SIGHUP reads the files of tokenizers again; plans of an earlier file are refused, streams in progress keep theirs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.tokenizers import DOCUMENTS, ids


def reload(server: Daemon, status: str = "ok") -> None:
    def count() -> float:
        return scrape(server).value("forebay_config_reloads_total", status=status)

    before = count()
    server.process.send_signal(signal.SIGHUP)
    assert poll(lambda: count() > before), server.lines


def test_a_changed_file_is_another_tokenizer(data: Path, files: dict[str, Path], tmp_path: Path):
    path = tmp_path / "words.json"
    path.write_bytes(files["gpt2"].read_bytes())
    flags = ["--dataset", f"docs={data / 'docs'}", "--state", str(tmp_path / "state"), "--tokenizer", f"words={path}"]
    server = Daemon(*LOOPBACK, *flags)
    plan = fb.Plan(outputs={"o": fb.cols("text").tokenize("words")})
    earlier, later = (ids(Tokenizer.from_file(str(files[name])), DOCUMENTS) for name in ("gpt2", "t5"))
    try:
        with fb.connect(server.url, retry_seconds=0) as client:

            def read(used: fb.Plan | fb.FittedPlan) -> list[list[int]]:
                batches = client.stream("docs", used, batch_size=100)
                return [row for batch in batches for row in batch.data.column("o").to_pylist()]

            fitted = client.fit("docs", plan)
            assert read(plan) == read(fitted) == earlier
            # Read, but not yet part of the configuration.
            running = client.stream("docs", plan, batch_size=100)
            first = next(running).data.column("o").to_pylist()
            path.write_bytes(files["t5"].read_bytes())
            assert read(fitted) == earlier
            reload(server)
            assert [*first, *(row for batch in running for row in batch.data.column("o").to_pylist())] == earlier
            with pytest.raises(fb.FailedPrecondition, match='the file of tokenizer "words" has changed') as failed:
                read(fitted)
            assert failed.value.reason == "TOKENIZER_CHANGED"
            assert "restore the earlier file and reload the server, or fit the plan again" in str(failed.value)
            assert read(plan) == later
            assert client.fit("docs", plan).plan_id != fitted.plan_id
            # A damaged file leaves the previous tokenizer in effect.
            path.write_text("{")
            reload(server, "failed")
            assert read(plan) == later
            assert any("not a tokenizer.json" in line for line in server.lines)
            path.write_bytes(files["gpt2"].read_bytes())
            reload(server)
            assert read(fitted) == earlier
    finally:
        server.stop()
