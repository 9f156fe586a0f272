"""A fit on a cluster gives the bytes of the embedded engine's, and those of a server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.cluster import Cluster
from harness.daemon import poll
from harness.object_store import Store, s3_server
from harness.prepare_fit import fit
from harness.serving import Server
from harness.serving import fit as fit_on_server


def output(name: str, column: str, *ops: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "parts": [{"columns": [column], "ops": list(ops)}], **more}


VOCAB: dict[str, Any] = {"vocab": {}}
# Each statistic, on columns of several types, with nulls.
PLANS: dict[str, dict[str, Any]] = {
    "means, deviations and bounds": {
        "outputs": [
            output("x", "x", {"fill_null": {"stat": "MEAN"}}, {"standardize": {}}, dtype="FLOAT64"),
            output("id", "id", {"min_max": {}}, dtype="FLOAT64"),
            output("k", "k", {"max_abs": {}}, dtype="FLOAT64"),
            output("tenth", "tenth", {"standardize": {}}, dtype="FLOAT64"),
        ]
    },
    "medians and quantiles": {
        "outputs": [
            output("x", "x", {"robust": {}}, dtype="FLOAT64"),
            output("edges", "x", {"bucketize": {"quantiles": 7}}),
            output("id", "id", {"bucketize": {"quantiles": 100}}),
            output("k", "k", {"fill_null": {"stat": "MEDIAN"}}, dtype="FLOAT64"),
        ]
    },
    "vocabularies, counts and modes": {
        "outputs": [
            output("s", "s", VOCAB),
            output("often", "s", {"vocab": {"min_count": 750, "max_size": 20}}),
            output("k", "k", {"vocab": {"max_size": 50}}),
            output("x", "x", {"count_encode": {}}, dtype="INT64"),
            output("filled", "s", {"fill_null": {"stat": "MODE"}}, VOCAB),
            output("price", "price", {"vocab": {"min_count": 3}}),
        ]
    },
    "shared vocabularies": {
        "outputs": [
            output("s", "s", {"fill_null": {"stat": "MODE"}}, {"vocab": {"shared": "words", "min_count": 2}}),
            output("word", "s", {"vocab": {"shared": "words", "min_count": 2}}),
            output("k", "k", {"vocab": {"shared": "numbers"}}),
            output("id", "id", {"positive_mod": {"modulus": 50}}, {"vocab": {"shared": "numbers"}}),
            output("own", "id", {"positive_mod": {"modulus": 9}}, VOCAB),
        ]
    },
    "means of a label": {
        "outputs": [
            output("s", "s", {"target_mean": {"label": "x"}}, dtype="FLOAT64"),
            output("k", "k", {"target_mean": {"label": "id", "folds": 0, "smoothing": 0}}, dtype="FLOAT64"),
            output("price", "price", {"target_mean": {"label": "x", "folds": 3, "seed": 9}}, dtype="FLOAT64"),
        ]
    },
    "several passes, a filter and derived columns": {
        "filter": "id % 3 = 1 AND day = 2 AND (x IS NULL OR x > -80)",
        "derive": [{"name": "sum", "expr": "x + k"}, {"name": "late", "expr": "__row_id > 25000"}],
        "outputs": [
            output("s", "s", {"fill_null": {"stat": "MODE"}}, VOCAB),
            output(
                "sum", "sum", {"fill_null": {"stat": "MEDIAN"}}, {"standardize": {}}, {"max_abs": {}}, dtype="FLOAT64"
            ),
            output("x", "x", {"standardize": {}}, {"bucketize": {"quantiles": 4}}),
            output("target", "s", {"target_mean": {"label": "late"}}, dtype="FLOAT64"),
        ],
    },
    "no questions": {"outputs": [output("x", "x", {"fill_null": {"value": 0}}, dtype="FLOAT64")]},
}


@pytest.fixture(scope="session")
def rows(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The facts, with two columns more."""
    folder = tmp_path_factory.mktemp("fit ü") / "t"
    random = np.random.default_rng(1)
    for file in sorted(inputs["facts"].rglob("*.parquet")):
        table = pq.ParquetFile(file).read()
        cents = pa.array(random.integers(0, 4000, len(table)).astype(np.int32)).cast(pa.decimal128(12, 0))
        table = table.append_column("price", cents.cast(pa.decimal128(12, 2)))
        table = table.append_column("tenth", pa.array(random.normal(0, 0.1, len(table))))
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / file.parent.name / file.name, row_group_size=3_000)
    return {"t": folder}


@pytest.mark.parametrize("name", PLANS)
def test_both_engines_and_a_server_learn_the_same_plan(
    name: str, cluster: Cluster, rows: dict[str, Path], tmp_path: Path
):
    here, there = fit(PLANS[name], tmp_path, rows), fit(PLANS[name], tmp_path, rows, *cluster.flags)
    assert here.code == 0, here.error
    assert there.code == 0, there.error
    assert there.stdout == here.stdout
    server = Server(rows)
    try:
        result = fit_on_server(fl.FlightClient(server.url), "t", PLANS[name])[-1]["result"]
    finally:
        server.stop()
    assert {**json.loads(here.stdout), "cached": None} == {**result, "cached": None}


def test_a_sample_is_the_same_rows_on_both_engines(cluster: Cluster, rows: dict[str, Path], tmp_path: Path):
    plan, sample = PLANS["means, deviations and bounds"], ("--sample", "0.1", "--sample-seed", "7")
    here, there = fit(plan, tmp_path, rows, *sample), fit(plan, tmp_path, rows, *sample, *cluster.flags)
    assert here.stdout == there.stdout != fit(plan, tmp_path, rows).stdout


def test_executors_run_the_passes_and_keep_no_data(cluster: Cluster, rows: dict[str, Path], tmp_path: Path):
    assert fit(PLANS["several passes, a filter and derived columns"], tmp_path, rows, *cluster.flags).code == 0
    assert cluster.run_tasks(), cluster.log
    assert poll(lambda: not cluster.shuffled()), cluster.shuffled()


def test_quantiles_are_exact_for_any_number_of_values(cluster: Cluster, tmp_path: Path):
    # More distinct values than one process counts.
    values = np.random.default_rng(3).permutation(1_300_000) / 8
    (tmp_path / "in").mkdir()
    for part in range(2):
        pq.write_table(pa.table({"v": values[part::2]}), tmp_path / "in" / f"{part}.parquet", row_group_size=200_000)
    plan = {"outputs": [output("v", "v", {"bucketize": {"quantiles": 1000}})]}
    run = fit(plan, tmp_path, {"t": tmp_path / "in"}, *cluster.flags)
    assert run.code == 0, run.error
    edges = json.loads(run.stdout)["plan"]["outputs"][0]["parts"][0]["ops"][0]["bucketize"]["boundaries"]
    assert edges == np.quantile(values, np.arange(1, 1000) / 1000).tolist()


def test_a_bucket_is_fitted_by_the_executors(tmp_path: Path):
    plan = {"outputs": [output("day", "day", VOCAB), output("id", "id", {"standardize": {}}, dtype="FLOAT64")]}
    with s3_server() as endpoint:
        bucket = Store(endpoint, "fits")
        for part in range(3):
            file = tmp_path / "a.parquet"
            pq.write_table(pa.table({"id": range(part * 1000, part * 1000 + 1000)}), file)
            bucket.put(f"in/day={part}/a b.parquet", file.read_bytes())
        running = Cluster(tmp_path / "cluster")
        try:
            here = fit(plan, tmp_path, {"t": bucket.url("in/")})
            there = fit(plan, tmp_path, {"t": bucket.url("in/")}, *running.flags)
        finally:
            running.stop()
    assert there.code == 0, there.error
    assert there.stdout == here.stdout


REFUSED: dict[str, dict[str, Any]] = {
    "plan.outputs[0].parts[0].ops[0].lookup: a fit on a cluster has no tables of other datasets": {
        "outputs": [
            output(
                "n",
                "k",
                {"lookup": {"table": "t", "key": "id", "columns": ["x"]}},
                {"standardize": {}},
                dtype="FLOAT64",
            )
        ]
    },
    "plan.outputs[0].parts[0].ops[0].standardize.by: a fit on a cluster has no statistics of groups": {
        "outputs": [output("x", "x", {"standardize": {"by": ["s"]}}, dtype="FLOAT64")]
    },
    "column": {"outputs": [output("y", "y", {"standardize": {}}, dtype="FLOAT64")]},
    "learns from numbers": {"outputs": [output("s", "s", {"standardize": {}}, dtype="FLOAT64")]},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_plan_that_cannot_be_fitted_is_refused_by_name(
    words: str, cluster: Cluster, rows: dict[str, Path], tmp_path: Path
):
    run = fit(REFUSED[words], tmp_path, rows, *cluster.flags)
    assert run.code == 2, run.stdout
    assert words in run.error


def test_a_value_that_fails_on_an_executor_is_named(cluster: Cluster, rows: dict[str, Path], tmp_path: Path):
    plan = {
        "derive": [{"name": "q", "expr": "1 / (id - 17)"}],
        "outputs": [output("q", "q", {"standardize": {}}, dtype="FLOAT64")],
    }
    here, there = fit(plan, tmp_path, rows), fit(plan, tmp_path, rows, *cluster.flags)
    assert (here.code, there.code) == (1, 1)
    words = 'derived column "q": "1 / (id - 17)" failed on the data: '
    assert words in here.error
    assert words in there.error


def test_an_unknown_dataset_is_named_with_a_similar_one(rows: dict[str, Path], tmp_path: Path):
    run = fit(PLANS["no questions"], tmp_path, rows, dataset="tt")
    assert run.code == 2
    assert 'no --dataset is named "tt": did you mean "t"?' in run.error


def test_a_result_is_written_at_once(rows: dict[str, Path], tmp_path: Path):
    plan, out = PLANS["no questions"], tmp_path / "fitted.json"
    run = fit(plan, tmp_path, rows, "--out", str(out))
    assert (run.code, run.stdout) == (0, "")
    assert out.read_text() == fit(plan, tmp_path, rows).stdout
    assert fit(plan, tmp_path, rows, "--out", str(tmp_path / "none" / "f.json")).code == 1
