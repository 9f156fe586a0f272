"""A server without features: an error names the feature that it lacks. `make test` builds it for these tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.daemon import LOOPBACK, Daemon, run_to_end
from harness.serving import Server, info


def missing(feature: str) -> str:
    return f"this forebay-server was built without its feature `{feature}`; `make build` builds it with every feature"


@pytest.mark.parametrize(
    ("feature", "flags"),
    [
        ("lake", ["--dataset", "t=delta+TABLE"]),
        ("lake", ["--dataset", "t=iceberg+TABLE@snapshot=3"]),
        ("lake", ["--dataset", "t=iceberg+TABLE/metadata/v1.metadata.json"]),
        ("otlp", ["--dataset", "t=TABLE", "--otlp-endpoint", "http://127.0.0.1:4317"]),
        ("text", ["--dataset", "t=TABLE", "--tokenizer", "words=TABLE/tokenizer.json"]),
    ],
)
def test_a_setting_that_needs_a_feature_names_it(tmp_path: Path, feature: str, flags: list[str]):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    (tmp_path / "tokenizer.json").write_text("{}")
    ended = run_to_end(*[flag.replace("TABLE", str(tmp_path)) for flag in flags])
    assert ended.returncode == 2
    assert missing(feature) in ended.stderr


@pytest.mark.parametrize(
    ("feature", "op"),
    [
        ("text", {"tokenize": {"json": '{"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}}'}}),
        ("images", {"decode_image": {"height": 2, "width": 2}}),
    ],
)
def test_an_op_that_needs_a_feature_names_it(server: Server, feature: str, op: dict[str, object]):
    plan = {"outputs": [{"name": "o", "parts": [{"columns": ["word"], "ops": [op]}]}]}
    with fl.connect(server.url) as client, pytest.raises(pa.ArrowException) as raised:
        info(client, {"dataset": "tiny", "plan": plan})
    error = translate(raised.value)
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    assert missing(feature) in str(error)


def test_a_server_without_cuda_computes_on_the_cpu(tiny_folder: Path):
    daemon = Daemon(*LOOPBACK, "--dataset", f"tiny={tiny_folder}", "--device", "cuda:0")
    lines = [line for line in daemon.lines if "cuda:0" in line]
    daemon.stop()
    assert [missing("cuda") in line for line in lines] == [True]
