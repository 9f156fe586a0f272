"""The example of the page about text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from harness.daemon import Daemon
from harness.documents import example
from harness.tokenizers import DOCUMENTS, ids


def test_text_example(daemon: Daemon, files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    code = example("text-plan")
    assert "grpc://127.0.0.1:8815" in code
    names: dict[str, object] = {}
    exec(compile(code.replace("grpc://127.0.0.1:8815", daemon.url), "example", "exec"), names)
    assert "(32, 512)" in capsys.readouterr().out
    batch = names["batch"]
    rows, mask = np.asarray(batch["input_ids"]), np.asarray(batch["attention_mask"])  # type: ignore[index]
    known = {tuple(row) for row in ids(Tokenizer.from_file(str(files["gpt2"])), DOCUMENTS, max_length=512)}
    assert all(tuple(row[: marks.sum()]) in known for row, marks in zip(rows.tolist(), mask, strict=True))
