"""The examples of Python functions in the book, on WAV files that are generated here."""

from __future__ import annotations

import importlib
import io
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.documents import example
from harness.udf.pool import Functions

RATE, CLIPS = 16_000, 40


def tone(hertz: float) -> bytes:
    """A WAV file of one second of a sine."""
    samples = 0.5 * np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((samples * 2**15).astype("<i2").tobytes())
    return file.getvalue()


def test_udf_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tones = [190.0 * (1 + number) for number in range(CLIPS)]
    clips = pa.table(
        {
            "wav": pa.array([tone(hertz) for hertz in tones], pa.binary()),
            "title": [f"Clip No. {number % 3}!" for number in range(CLIPS)],
            "peak": [0.5] * CLIPS,
            "limit": [float(1 + number) for number in range(CLIPS)],
            "seconds": [1] * CLIPS,
        }
    )
    (tmp_path / "data").mkdir()
    pq.write_table(clips, tmp_path / "data" / "clips.parquet", row_group_size=16)
    (tmp_path / "features.py").write_text(example("udf-functions"))
    path = tmp_path / "features.sock"
    names = ("slug", "share", "log_mel")
    with Functions([f"features:{name}" for name in names], path, folder=tmp_path) as functions:
        flags = ["--dataset", f"clips={tmp_path}/data", "--state", str(tmp_path / "state"), *functions.flag(*names)]
        server = Daemon(*LOOPBACK, *flags)
        try:
            code = example("udf-plan").replace("grpc://127.0.0.1:8815", server.url)
            assert server.url in code
            found: dict[str, Any] = {}
            exec(compile(code, "example", "exec"), found)
        finally:
            server.stop()
    first = found["first"]
    assert first["sound"].shape == (16, 98 * 40)
    assert first["sound"].dtype == np.float32
    assert set(first["name"].to_pylist()) <= {f"clip-no-{number}-" for number in range(3)}
    assert set(first["label"].tolist()) <= {1, 2, 3}
    monkeypatch.syspath_prepend(str(tmp_path))
    features = importlib.import_module("features")
    try:
        check_bands(features, tones)
        # Each row of the batch is the function of a clip.
        expected = {spectrum.tobytes() for spectrum in features.log_mel(clips["wav"].combine_chunks())}
        assert len(expected) == CLIPS
        assert {row.tobytes() for row in first["sound"]} <= expected
    finally:
        del sys.modules["features"]


def check_bands(features: Any, tones: list[float]) -> None:
    """The loudest band of a tone is the one whose triangle is highest at its frequency, by the definition of mel."""

    def mel(hertz: Any) -> Any:
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    edges = np.linspace(0, mel(RATE / 2), 42)
    spectra = features.log_mel(pa.array([tone(hertz) for hertz in tones], pa.binary())).reshape(len(tones), 98, 40)
    for hertz, spectrum in zip(tones, spectra, strict=True):
        nearest = int(np.argmin(abs(edges[1:-1] - mel(hertz))))
        assert abs(int(spectrum.mean(axis=0).argmax()) - nearest) <= 1, hertz
