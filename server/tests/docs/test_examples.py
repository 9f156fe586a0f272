"""The named Python examples of the book run as written, except for the data's path and the server's URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forebay._plan.translation.mllib.sql_expression import REWRITTEN, SAME
from forebay._plan.translation.mllib.translate import TRANSLATORS
from forebay._plan.translation.nvtabular.translate import TRANSLATORS as OPERATORS
from forebay._plan.translation.sklearn.translate import COMPOSERS
from forebay._plan.translation.sklearn.translate import TRANSLATORS as ESTIMATORS
from harness.documents import BOOK, ROOT, example, examples
from harness.serving import Server

# Executed by client/python/tests/frameworks/test_book.py.
FRAMEWORKS = {
    "frameworks",
    "stateful",
    "accelerate",
    "lightning",
    "transformers",
    "datasets",
    "jax",
    "grain",
    "ray",
    "ray-train",
    "pyg",
    "dali",
    "sklearn",
    "xgboost",
    "lightgbm",
    "arrow",
}
EXECUTED = {
    "split",
    "plain",
    "from-mllib",
    "from-sklearn",
    "torch",
    "resume",
    "serving",
    "exploring",
    "exploring-plain",
    "random-access",
    "random-access-plain",
    "secure-plain",
    "secure-torch",
    "udf-functions",
    "udf-plan",
    "text-plan",
    "images-plan",
}


def test_every_example_is_executed() -> None:
    # Others execute the secured ones (test_security_settings.py), plain and torch (test_readmes.py), and those of
    # functions (test_udf_examples.py), text (text/test_book.py) and images (images/test_book.py).
    assert set(examples()) == EXECUTED | FRAMEWORKS


def test_every_op_of_a_plan_is_in_the_table_once() -> None:
    found = re.search(r"<!-- ops -->\n(.*?)<!-- /ops -->", (BOOK / "reference/ops.md").read_text(), re.DOTALL)
    assert found, "ops.md has no table of ops"
    first = [line.split("|")[1] for line in found[1].splitlines()[2:]]
    named = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    message = re.search(r"oneof op \{(.*?)\}", (ROOT / "proto/forebay/v1/plan.proto").read_text(), re.DOTALL)
    assert message
    assert sorted(named) == sorted(re.findall(r"(\w+) = \d+;", message[1]))


def test_the_plain_example_is_short() -> None:
    assert len([line for line in example("plain").splitlines() if line.strip()]) <= 25


def test_split_example(flights_folder: Path) -> None:
    code = example("split").replace("data/flights", str(flights_folder))
    assert str(flights_folder) in code
    names: dict[str, Any] = {}
    exec(compile(code, "example", "exec"), names)
    assert names["training"].stats()["rows"] == 3 * (327_346 - names["seen"])
    assert 0 < names["seen"] < 327_346 / 2


def test_resume_example(flights_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = example("resume").replace("data/flights", str(flights_folder))
    assert str(flights_folder) in code
    names: dict[str, Any] = {}
    exec(compile(code, "example", "exec"), names)
    assert names["state"]["position"] == 1024
    assert "row_group" in capsys.readouterr().out


def test_from_mllib_example(capsys: pytest.CaptureFixture[str]) -> None:
    saved = ROOT / "client/python/tests/data/mllib"
    code = example("from-mllib")
    paths = {"data/rows": "rows", "models/clicks": "textbook/model", "old/features": "textbook/shards"}
    for written, folder in paths.items():
        assert written in code
        code = code.replace(written, str(saved / folder))
    exec(compile(code, "example", "exec"), {})
    page = (BOOK / "guides/from-spark.md").read_text()
    shown = re.search(r"<!-- output: from-mllib -->\n```text\n(.*?)```", page, re.DOTALL)
    assert shown
    assert capsys.readouterr().out == shown[1]


def test_from_sklearn_example(flights_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = example("from-sklearn").replace("data/flights", str(flights_folder))
    assert str(flights_folder) in code
    names: dict[str, Any] = {}
    exec(compile(code, "example", "exec"), names)
    expected = names["pipeline"].transform(pq.read_table(flights_folder).slice(0, 1024).to_pandas())
    np.testing.assert_array_equal(names["features"], expected.toarray().astype(np.float32))
    page = (BOOK / "guides/from-sklearn.md").read_text()
    shown = re.search(r"<!-- output: from-sklearn -->\n```text\n(.*?)```", page, re.DOTALL)
    assert shown
    assert capsys.readouterr().out == shown[1]


def test_every_translated_estimator_and_operator_is_in_the_book() -> None:
    page = (BOOK / "guides/from-sklearn.md").read_text()
    assert [name for name in [*ESTIMATORS, *COMPOSERS] if name not in page] == []
    assert [name for name in OPERATORS if name.partition(".")[2] not in page] == []


def test_every_translated_stage_and_function_is_in_the_book() -> None:
    page = (BOOK / "guides/from-spark.md").read_text()
    for name in [*SAME, *REWRITTEN]:
        assert f"`{name}`" in page, name
    for name in TRANSLATORS:
        assert name in page or name == "IndexToString", name


def test_exploring_examples(server: Server, flights: pa.Table) -> None:
    names: dict[str, Any] = {}
    for name in ("exploring", "exploring-plain"):
        code = example(name).replace("grpc://127.0.0.1:8815", server.url)
        assert server.url in code
        exec(compile(code, "example", "exec"), names)
    january = flights.to_pandas().query("month == 1")
    assert (names["nulls"], names["median"]) == (january["dep_delay"].isna().sum(), january["dep_delay"].median())
    counts = january["origin"].value_counts()
    assert names["weights"] == pytest.approx(
        {origin: len(january) / 3 / counts[origin] for origin in sorted(counts.index)}
    )
    assert list(names["frame"].index) == ["carrier", "dep_delay", "origin"]
    assert names["first"].equals(flights.select(["carrier", "dep_delay"]).slice(0, 5))
    assert [column["name"] for column in names["columns"]] == ["carrier", "dep_delay"]
    assert names["rows"].equals(flights.select(["dep_delay", "carrier"]).slice(0, 5))


def test_random_access_examples(server: Server, flights: pa.Table) -> None:
    names: dict[str, Any] = {}
    for name in ("random-access", "random-access-plain"):
        code = example(name).replace("grpc://127.0.0.1:8815", server.url)
        assert server.url in code
        exec(compile(code, "example", "exec"), names)
    rows = flights.to_pandas()
    passing = rows[rows["dep_delay"].notna()]
    distances = (passing["distance"] - passing["distance"].mean()) / passing["distance"].std(ddof=0)
    ids = names["ids"]
    assert np.allclose(names["worst"]["x"][:, 0], distances[ids[[41, 300]]], rtol=1e-5)
    assert names["raw"]["tail"].to_pylist() == rows["tailnum"][ids[:3]].tolist()
    carriers = passing["carrier"].iloc[:328_000:1000]
    assert names["evaluation"]["carrier"].shape == (len(carriers),)
    assert len(set(zip(names["evaluation"]["carrier"].tolist(), carriers, strict=True))) == carriers.nunique()
    assert names["rows"].equals(names["again"])
    assert names["rows"]["x"].to_pylist() == rows["distance"][[300000, 7, 300000]].tolist()


def test_serving_example(server: Server) -> None:
    code = example("serving").replace("grpc://127.0.0.1:8815", server.url)
    assert server.url in code
    names: dict[str, Any] = {}
    exec(compile(code, "example", "exec"), names)
    assert names["features"].shape == (2, 2)
    assert names["features"].dtype.name == "float32"
    # The longer the delay and the flight, the larger the number.
    assert (names["features"][0] < names["features"][1]).tolist() == [True, False]
