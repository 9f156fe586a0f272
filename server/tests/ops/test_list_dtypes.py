"""The dtype of an output of stored lists that names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay as fb
from harness.serving import Serve


def test_lists_of_integers_stay_integers(serve: Serve, tmp_path: Path):
    """As an embedding needs them: `input_ids` of a tokenizer that were stored."""
    ids = [[1, 2], [3], [], [4, 5, 6]]
    columns = {name: pa.array(ids, pa.list_(kind)) for name, kind in (("int16", pa.int16()), ("int32", pa.int32()))}
    columns |= {"int64": pa.array([[2**40], [], [1], [2]], pa.large_list(pa.int64()))}
    columns |= {"float": pa.array(ids, pa.list_(pa.float64())), "n": pa.array([1, 2, 3, 4], pa.int32())}
    pq.write_table(pa.table(columns), tmp_path / "ids.parquet")
    pad = {name: fb.cols(name).pad(3, -1) for name in columns if name != "n"}
    outputs: dict[str, Any] = {
        **pad,
        "both": fb.cols("int16", "int32").pad(2),
        "wide": [fb.cols("int32").pad(1), fb.cols("int64").last_n(1, value=0)],
        "kept": fb.cols("int32").first_n(2),
        "indices": [fb.cols("int32").pad(1), fb.cols("n").hash_bucket(9)],
        "large value": fb.cols("int32").pad(1, 2**31),
        "half": fb.cols("int32").pad(1, 0.5),
        "scaled": fb.cols("int32").pad(1).standardize(mean=0, std=1),
        "list": fb.cols("int32"),
        "number": fb.cols("n"),
        "named": fb.output(fb.cols("int32").pad(1), dtype="float32"),
    }
    with fb.connect(serve({"ids": str(tmp_path / "ids.parquet")}).url) as client:
        batch = next(client.stream("ids", fb.Plan(outputs=outputs)))
        kinds = {
            name: np.asarray(batch[name].values if name in ("kept", "list") else batch[name]).dtype for name in outputs
        }
        integers = {"int16", "int32", "both", "indices"}
        wide = {"int64", "wide", "large value"}
        want = {name: np.int32 if name in integers else np.int64 if name in wide else np.float32 for name in outputs}
        assert kinds == want
        assert np.asarray(batch["int32"]).tolist() == [[1, 2, -1], [3, -1, -1], [-1, -1, -1], [4, 5, 6]]
        assert np.asarray(batch["int64"])[:, 0].tolist() == [2**40, -1, 1, 2]
        # A fit keeps the rule, and its id is that of its JSON.
        fitted = client.fit("ids", fb.Plan(outputs={"int32": pad["int32"]}))
        assert fb.FittedPlan.from_json(fitted.to_json()).plan_id == fitted.plan_id
        assert np.asarray(next(client.stream("ids", fitted))["int32"]).dtype == np.int32
