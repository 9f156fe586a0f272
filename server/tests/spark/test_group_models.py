"""The example `group_models` and Spark's applyInPandas of the same function: the same coefficients."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import forebay as fb
from harness.examples import example_module

models = example_module("group_models")

SENSORS = 60
ROWS = 60_000


def test_models_of_groups_are_those_of_apply_in_pandas(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "SENSORS", SENSORS)
    monkeypatch.setattr(models, "ROWS", ROWS)
    file, truth = models.write_readings(tmp_path)
    readings = spark.read.parquet(str(file)).where(models.PLAN.filter)
    schema = "sensor string, load double, heat double, intercept double, rows long"
    # Spark's processes do not find the examples by name.
    cloudpickle.register_pickle_by_value(models)
    found = readings.groupBy("sensor").applyInPandas(models.fit_frame, schema).orderBy("sensor").collect()
    theirs = [models.Fitted(**row.asDict()) for row in found]

    folder = tmp_path / "models"
    folder.mkdir()
    ours = models.from_the_stream(fb.local(readings=file.parent), folder, jobs=1)
    print(f"largest difference from applyInPandas: {models.largest_difference(ours, theirs):.1e}")
    assert len(ours) == SENSORS
    models.check_truth(theirs, truth)
