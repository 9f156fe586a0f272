"""XGBoost: the conformance suite on real matrices, and a model from external memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost

import forebay as fb
from forebay.xgboost import FlightIter
from harness.frameworks.conformance import BATCH_SIZE, PLAN, ROWS, Conformance, Done, Job, Rows
from harness.leaks import nothing_left
from harness.serving import Serve, Server

PARAMETERS = {"objective": "reg:squarederror", "max_depth": 3, "nthread": 1, "seed": 1}


class Recorded(FlightIter):
    """Keeps what XGBoost receives in each pass."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.passes: list[Rows] = []
        super().__init__(*arguments, **options)

    def reset(self) -> None:
        self.passes.append(Rows())
        super().reset()

    def next(self, input_data: Callable[..., Any]) -> bool:
        def record(**given: Any) -> Any:
            self.passes[-1].add(given["label"], given["data"])
            return input_data(**given)

        return super().next(record)


class TestXgboost(Conformance):
    shuffles = False
    resumes = False

    def run(self, job: Job) -> Done:
        # The label is the id, so that the matrix itself says which rows it has.
        with fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options) as data:
            source = Recorded(data, features="dense", label="id")
            matrix = xgboost.QuantileDMatrix(source)
        passes = [rows for rows in source.passes if rows.ids]
        assert len(passes) >= 2
        assert all(rows == passes[0] for rows in passes)
        assert [int(one) for one in matrix.get_label()] == passes[0].ids
        return Done(passes[:1])


def model(matrix: xgboost.DMatrix) -> bytes:
    return bytes(xgboost.train(PARAMETERS, matrix, 5).save_raw("json"))


def test_a_model_from_external_memory_is_that_of_the_table(server: Server, tmp_path: Path):
    with fb.ArrayDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE) as data:
        features, labels = (np.concatenate([batch[name] for batch in data]) for name in ("dense", "label"))
        data.set_epoch(0)
        source = FlightIter(data, features="dense", label="label", cache_prefix=str(tmp_path / "cache"))
        outside = xgboost.ExtMemQuantileDMatrix(source, max_bin=256)
        assert outside.num_row() == ROWS
        streamed = model(outside)
    assert streamed == model(xgboost.QuantileDMatrix(features, labels, max_bin=256))


def test_a_pass_over_changed_files_is_an_error(serve: Serve, tiny: pa.Table, tmp_path: Path):
    pq.write_table(tiny, tmp_path / "a.parquet")
    changing = serve({"tiny": tmp_path})
    with fb.ArrayDataset(changing.url, "tiny", PLAN) as data:
        source = FlightIter(data, features="dense", label="label")
        assert xgboost.QuantileDMatrix(source).num_row() == ROWS
        pq.write_table(tiny.slice(1), tmp_path / "a.parquet")
        with pytest.raises(fb.SnapshotChanged):
            xgboost.QuantileDMatrix(source)


def test_wrong_outputs_are_named(server: Server):
    text = fb.Plan(outputs={"word": fb.cols("word").as_stored(), "id": fb.cols("id")})
    with fb.ArrayDataset(server.url, "tiny", text) as data, nothing_left():
        with pytest.raises(ValueError, match="no output 'dense'; it has word, id"):
            FlightIter(data, features="dense")
        with pytest.raises(TypeError, match="output 'word' is"):
            FlightIter(data, features=["id", "word"])
