"""Workflows that real NVTabular fits, saves and applies on a CPU, and the committed files of both.

`client/python/tests/data/nvtabular` has the rows, and per workflow the folder that `Workflow.save` wrote and the
columns that its `transform` returned. NVTabular needs old versions of NumPy and pandas, so it has a separate
environment:

    python3.11 -m venv nvt
    nvt/bin/pip install numpy==1.24.4 pandas==1.5.3 pyarrow==14.0.2 dask==2023.5.1 distributed==2023.5.1 \
        fsspec==2023.5.0 numba==0.57.1 'scipy<1.12' 'protobuf<4' 'betterproto<2' 'setuptools<70' tqdm packaging pynvml \
        npy-append-array==0.9.16 tensorflow-metadata
    nvt/bin/pip install --no-deps merlin-core==23.8.0 merlin-dataloader==23.8.0 nvtabular==23.8.0
    nvt/bin/python server/tests/harness/src/harness/ops/nvtabular_workflows.py client/python/tests/data/nvtabular
"""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 120
FITTED = 80


def rows() -> pa.Table:
    """Numbers and words with nulls and NaN; the last rows have words and codes that the first ones do not have."""
    draw = np.random.default_rng(11)
    late = np.arange(ROWS) >= FITTED
    words = np.where(late & (draw.random(ROWS) < 0.3), "unseen", draw.choice(["b", "a", "ç", "it's"], ROWS))
    gap = draw.normal(size=ROWS)
    gap[::13] = np.nan
    few = draw.integers(0, 9, ROWS).tolist()
    return pa.table(
        {
            "x": draw.normal(5, 30, ROWS),
            "single": pa.array(draw.normal(size=ROWS), pa.float32()),
            "count": pa.array(draw.integers(0, 50, ROWS)),
            "constant": np.full(ROWS, 3.0),
            "gap": pa.array([None if row % 7 == 0 else value for row, value in enumerate(gap)]),
            "gap_count": pa.array([None if row % 5 == 0 else one for row, one in enumerate(few)]),
            "word": words,
            "gap_word": pa.array([None if row % 6 == 0 else str(word) for row, word in enumerate(words)]),
            "other": draw.choice(["a", "b", "z"], ROWS),
            "code": pa.array(np.where(late, draw.integers(0, 9, ROWS), draw.integers(0, 5, ROWS))),
            "label": pa.array(draw.integers(0, 2, ROWS)),
        }
    )


def workflows(ops: Any) -> dict[str, Any]:
    """The last node of each workflow."""
    numbers = ["x", "count", "gap"] >> ops.Normalize()
    unit = ["x", "count"] >> ops.NormalizeMinMax() >> ops.Rename(postfix="_unit")
    filled = ["gap", "gap_count"] >> ops.FillMissing(0.5) >> ops.Clip(-1, 4) >> ops.Rename(postfix="_filled")
    median = ["gap"] >> ops.FillMedian() >> ops.Normalize() >> ops.Rename(name="gap_median")
    edges = ops.Bucketize({"x": [-20, 0, 5.5, 30], "gap": [-1.0, 0.0, 1.0]})
    buckets = ["x", "gap"] >> edges >> ops.Rename(f=lambda name: f"{name}_bucket")
    same = ["count"] >> ops.Bucketize([10, 20, 30]) >> ops.Categorify() >> ops.Rename(postfix="_index")
    words = ["word", "gap_word", "code", "gap_count"] >> ops.Categorify(freq_threshold=2)
    few = ["word", "code"] >> ops.Categorify(max_size=6, dtype="int32") >> ops.Rename(postfix="_few")
    filled_word = ["gap_word"] >> ops.FillMissing("?") >> ops.Categorify() >> ops.Rename(postfix="_filled")
    joint = [["word", "other"]] >> ops.Categorify(encode_type="joint") >> ops.Rename(postfix="_joint")
    chosen = ["x", "count"] >> ops.Normalize()
    chosen_filled = ["gap", "gap_count"] >> ops.FillMissing(0.5)
    return {
        "numbers": numbers + unit + filled + median + ["label"],
        "floats": ["single"] >> ops.Normalize() >> ops.Clip(max_value=1.5),
        "logs": ["count", "x"] >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.AddTags(["positive"]),
        "buckets": buckets + same,
        "words": words + few + filled_word + joint,
        "chosen": chosen["x"] + chosen_filled["gap_count"],
        "constant": ["constant"] >> ops.NormalizeMinMax(),
        "hashed": ["word"] >> ops.HashBucket(7),
        "function": ["x"] >> ops.LambdaOp(lambda column: column * 2),
        "function_edges": ["x"] >> ops.Bucketize(lambda name: [1, 2, 2 + len(name)]),
        "combined": [["word", "other"]] >> ops.Categorify(encode_type="combo"),
        "oov": ["word"] >> ops.Categorify(freq_threshold=2, num_buckets=3),
    }


def write(folder: Path) -> None:
    """Fit, save and apply every workflow."""
    library = import_module("nvtabular")
    ops = import_module("nvtabular.ops")
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(), folder / "rows/rows.parquet", row_group_size=50)
    frame = pq.read_table(folder / "rows/rows.parquet").to_pandas()
    for name, node in workflows(ops).items():
        workflow = library.Workflow(node)
        workflow.fit(library.Dataset(frame[:FITTED], cpu=True))
        shutil.rmtree(folder / name, ignore_errors=True)
        workflow.save(folder / name / "workflow")
        made = workflow.transform(library.Dataset(frame, cpu=True)).to_ddf().compute()
        pq.write_table(pa.Table.from_pandas(made, preserve_index=False), folder / name / "transformed.parquet")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
