"""scikit-learn: the conformance suite through `partial_fit` of real estimators."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

import forebay as fb
from forebay.sklearn import batches, partial_fit
from harness.frameworks.conformance import BATCH_SIZE, PLAN, Conformance, Done, Job, Rows
from harness.serving import Server


class Recorded(StandardScaler):
    """Keeps the batches, whose labels are the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[Any, Any]] = []

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Recorded:  # noqa: N803
        self.received.append((np.array(y), np.array(X)))
        return super().partial_fit(X)


class TestSklearn(Conformance):
    def run(self, job: Job) -> Done:
        with fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options) as data:
            if job.state is not None:
                data.load_state_dict(job.state)
            if job.stop_after is not None:
                rows = Rows()
                for features, ids in islice(batches(data, features="dense", label="id"), job.stop_after):
                    rows.add(ids, features)
                return Done([rows], data.state_dict())
            found = [Rows() for _ in range(job.epochs)]
            estimator = partial_fit(Recorded(), data, features="dense", label="id", epochs=job.epochs)
        steps = -(-len(estimator.received) // job.epochs)
        for step, (ids, features) in enumerate(estimator.received):
            found[step // steps].add(ids, features)
        return Done(found)


def test_a_model_is_that_of_the_same_batches(server: Server):
    def estimator() -> SGDClassifier:
        return SGDClassifier(random_state=0)

    plan = fb.Plan(outputs={"dense": PLAN.outputs["dense"], "even": fb.cols("even")}, derive={"even": "small % 2 = 0"})
    with fb.ArrayDataset(server.url, "tiny", plan, batch_size=BATCH_SIZE, shuffle=True) as data:
        streamed = partial_fit(estimator(), data, features="dense", label="even", classes=[0, 1], epochs=2)
        data.set_epoch(0)
        direct = estimator()
        for _, epoch in data.epochs(2):
            for batch in epoch:
                direct.partial_fit(batch["dense"], batch["even"], classes=[0, 1])
    assert np.array_equal(streamed.coef_, direct.coef_)
    assert streamed.coef_.any()
