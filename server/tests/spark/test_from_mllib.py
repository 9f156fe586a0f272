"""Live MLlib models, translated as their saved form is, and the committed files written again by this Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.ml import PipelineModel
from pyspark.sql import DataFrame, SparkSession

import forebay as fb
from harness.ops.mllib_pipelines import DATA, PIPELINES, REFUSED, fitted, write, write_rows
from harness.serving import Server

REGENERATE = os.environ.get("FOREBAY_REGENERATE") == "1"
# One pipeline keeps the markers and checksums that Spark writes next to its files.
COMPLETE = "textbook"


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    if REGENERATE:
        write_rows(DATA / "rows")
    return spark.read.parquet(str(DATA / "rows"))


@pytest.fixture(scope="module")
def models(frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[PipelineModel, Path]]:
    """Every pipeline: the live model, and the folder with its saved form and its shards."""
    root = tmp_path_factory.mktemp("mllib")
    stages = {name: (made, columns) for name, (made, columns) in PIPELINES.items()}
    stages |= {name: (made, []) for name, made in REFUSED.items()}
    found: dict[str, tuple[PipelineModel, Path]] = {}
    for name, (made, columns) in stages.items():
        model = fitted(made, frame)
        write(model, frame, columns, root / name)
        found[name] = model, root / name
        if REGENERATE:
            ignored = shutil.ignore_patterns() if name == COMPLETE else shutil.ignore_patterns(".*.crc", "_SUCCESS")
            shutil.rmtree(DATA / name, ignore_errors=True)
            shutil.copytree(root / name, DATA / name, ignore=ignored)
    return found


@pytest.fixture(scope="module")
def client(frame: DataFrame) -> Iterator[fb.Client]:
    running = Server({"rows": DATA / "rows"})
    with fb.connect(running.url) as connected:
        yield connected
    running.stop()


@pytest.mark.parametrize("pipeline", list(PIPELINES))
def test_a_live_model_is_translated_as_its_saved_form(
    models: dict[str, tuple[PipelineModel, Path]], client: fb.Client, pipeline: str
):
    model, folder = models[pipeline]
    for schema in (None, client.schema("rows")):
        live, saved = (fb.from_mllib(one, schema=schema) for one in (model, folder / "model"))
        assert live.plan.to_json() == saved.plan.to_json()
        assert live.differences == saved.differences


@pytest.mark.parametrize("pipeline", list(PIPELINES))
def test_the_committed_files_are_those_of_this_spark(
    models: dict[str, tuple[PipelineModel, Path]], client: fb.Client, pipeline: str
):
    _, folder = models[pipeline]
    schema = client.schema("rows")
    fresh, committed = (fb.from_mllib(root / "model", schema=schema) for root in (folder, DATA / pipeline))
    assert fresh.plan.to_json() == committed.plan.to_json()
    assert fresh.differences == committed.differences
    # Tables with NaN do not equal each other; their text does.
    rows = [repr(pq.read_table(root / "shards").to_pylist()) for root in (folder, DATA / pipeline)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("pipeline", list(PIPELINES))
def test_fresh_shards_equal_the_plan(models: dict[str, tuple[PipelineModel, Path]], client: fb.Client, pipeline: str):
    model, folder = models[pipeline]
    made = fb.from_mllib(model, outputs=PIPELINES[pipeline][1], dtype="FLOAT64", schema=client.schema("rows"))
    found = fb.compare(made.plan, folder / "shards", url=client, by="id", ulps=4, atol=1e-15)
    assert found, found


@pytest.mark.parametrize("pipeline", list(REFUSED))
def test_a_live_model_is_refused_as_its_saved_form(models: dict[str, tuple[PipelineModel, Path]], pipeline: str):
    messages: list[str] = []
    for one in (models[pipeline][0], models[pipeline][1] / "model"):
        with pytest.raises(fb.errors.UntranslatableStage) as caught:
            fb.from_mllib(one)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
