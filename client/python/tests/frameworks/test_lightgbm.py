"""LightGBM: the conformance suite on real datasets, rows by index, and a model from a stream."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pytest

import forebay as fb
from forebay.lightgbm import FlightSequence
from harness.frameworks.conformance import BATCH_SIZE, PLAN, ROWS, Conformance, Done, Job, Rows
from harness.serving import Server

PARAMETERS = {"objective": "regression", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "min_data_in_bin": 1}


class Recorded(FlightSequence):
    """Keeps the ranges that LightGBM reads to construct a dataset."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.ranges: list[Any] = []
        super().__init__(*arguments, **options)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            self.ranges.append(np.array(found))
        return found


class TestLightgbm(Conformance):
    shuffles = False
    resumes = False

    def run(self, job: Job) -> Done:
        with fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options) as data:
            source = Recorded(data, features="dense", label="id")
            dataset = lightgbm.Dataset(source, source.labels(), params=PARAMETERS).construct()
            source.close()
        assert dataset.num_data() == ROWS
        rows = Rows()
        rows.add(dataset.get_label(), np.concatenate(source.ranges))
        return Done([rows])


def test_a_model_is_that_of_the_table(server: Server):
    with fb.ArrayDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE) as data:
        features, labels = (np.concatenate([batch[name] for batch in data]) for name in ("dense", "label"))
        data.set_epoch(0)
        source = FlightSequence(data, features="dense", label="label")
        streamed = lightgbm.train(PARAMETERS, lightgbm.Dataset(source, source.labels()), 5)
    whole = lightgbm.train(PARAMETERS, lightgbm.Dataset(features.astype(np.float64), labels), 5)
    assert np.array_equal(streamed.predict(features), whole.predict(features))
    assert np.ptp(streamed.predict(features)) > 0


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_by_index_are_those_of_the_epoch(server: Server, shuffle: bool):
    with fb.ArrayDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE, shuffle=shuffle, epoch=3) as data:
        whole = np.concatenate([batch["dense"] for batch in data])
        data.set_epoch(3)
        rows = FlightSequence(data, features="dense")
        assert len(rows) == ROWS
        for index in (99, 0, 63, 64, 8, -1, np.int32(17)):
            assert np.array_equal(rows[index], whole[index])
        for index in (slice(0, 100), slice(3, 70), slice(16, 24), slice(98, 300), slice(5, 5), slice(90, 10, -7)):
            assert np.array_equal(rows[index], whole[index]), index
        assert np.array_equal(rows[[5, 77, 5]], whole[[5, 77, 5]])
        with pytest.raises(IndexError, match="no row 100 of 100"):
            rows[100]
        with pytest.raises(ValueError, match="label="):
            rows.labels()
        rows.close()
