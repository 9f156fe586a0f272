"""Workflows that real NVTabular saved (harness.ops.nvtabular_workflows); what its `transform` returned is expected."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._plan.translation import Translation
from forebay.errors import UntranslatableStage

DATA = Path(__file__).parent / "data/nvtabular"
SINGLE_ULP = 2.0**-23


@pytest.fixture(scope="module")
def client() -> Iterator[fb.Client]:
    with fb.connect(fb.local(rows=DATA / "rows")) as opened:
        yield opened


def columns_of(client: fb.Client, made: Translation[fb.FittedPlan]) -> dict[str, Any]:
    """The translated columns by name."""
    batches = list(client.stream("rows", made.plan, batch_size=50))
    return {name: np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in made.plan.plan.outputs}


def expected(workflow: str) -> dict[str, Any]:
    table = pq.read_table(DATA / workflow / "transformed.parquet")
    return {name: table[name].to_pandas().to_numpy() for name in table.column_names}


# === Equal to the columns that NVTabular returned ===


@pytest.mark.parametrize("workflow", ["numbers", "buckets", "words", "chosen", "constant"])
def test_columns_are_those_of_nvtabular(client: fb.Client, workflow: str):
    made = fb.from_nvtabular(DATA / workflow / "workflow", dtype="FLOAT64", schema=client.schema("rows"))
    found, wanted = columns_of(client, made), expected(workflow)
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name].reshape(-1), values, err_msg=name)
        assert found[name].dtype == values.dtype, name


@pytest.mark.parametrize("workflow", ["numbers", "buckets", "constant"])
def test_types_of_columns_are_rarely_needed(client: fb.Client, workflow: str):
    found = columns_of(client, fb.from_nvtabular(DATA / workflow / "workflow", dtype="FLOAT64"))
    for name, values in expected(workflow).items():
        np.testing.assert_array_equal(found[name].reshape(-1), values, err_msg=name)


@pytest.mark.parametrize("workflow", ["floats", "logs"])
def test_float32_columns_differ_by_ulps(client: fb.Client, workflow: str):
    made = fb.from_nvtabular(DATA / workflow / "workflow", schema=client.schema("rows"))
    found, wanted = columns_of(client, made), expected(workflow)
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name].reshape(-1), values, rtol=2 * SINGLE_ULP, atol=SINGLE_ULP)
    assert "float32" in "\n".join(made.differences)


def test_columns_can_be_outputs_side_by_side(client: fb.Client):
    made = fb.from_nvtabular(
        DATA / "numbers/workflow",
        outputs={"dense": ["gap", "x_unit", "x"], "label": ["label"]},
        schema=client.schema("rows"),
    )
    found, wanted = columns_of(client, made), expected("numbers")
    dense = np.column_stack([wanted[name] for name in ("gap", "x_unit", "x")]).astype(np.float32)
    np.testing.assert_array_equal(found["dense"], dense)
    np.testing.assert_array_equal(found["label"], wanted["label"])
    assert "dense: FLOAT32 here, float64 in NVTabular" in "\n".join(made.differences)
    with pytest.raises(ValueError, match=r"no column 'x_units': did you mean x_unit\?"):
        fb.from_nvtabular(DATA / "numbers/workflow", outputs={"dense": ["x_units"]})
    with pytest.raises(TypeError, match="'dense' must be a list of columns"):
        fb.from_nvtabular(DATA / "numbers/workflow", outputs={"dense": "x_unit"})


def test_indices_are_those_of_embeddings(client: fb.Client):
    made = fb.from_nvtabular(
        DATA / "words/workflow", outputs={"cats": ["gap_word", "word"]}, schema=client.schema("rows")
    )
    (batch,) = client.stream("rows", made.plan)
    rows = pq.read_table(DATA / "rows")
    is_null = np.array([word is None for word in rows["gap_word"].to_pylist()])
    is_unseen = np.array([word == "unseen" for word in rows["word"].to_pylist()])
    found = np.asarray(batch["cats"])
    assert found.dtype == np.int64
    assert set(found[is_null, 0]) == {1}
    assert set(found[is_unseen, 1]) == {2}
    assert found[~is_null & ~is_unseen].min() == 3
    assert fb.FittedPlan.from_json(made.plan.to_json()).plan_id == made.plan.plan_id
    assert "no differences" in repr(made) or "differences from NVTabular:\n- " in repr(made)


def test_what_differs_is_listed():
    lines = "\n".join(fb.from_nvtabular(DATA / "words/workflow").differences)
    assert "categories of 'gap_count' are floating-point numbers, as pandas reads integers with nulls" in lines
    lines = "\n".join(fb.from_nvtabular(DATA / "constant/workflow").differences)
    assert "'constant' was constant: 0.5 for every value here, NaN for 0 in NVTabular" in lines


# === Refused by node ===


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        ("hashed", r"stage 2: word \(HashBucket\): its hash differs from that of hash_bucket"),
        ("function", r"\(UDF\): it is a function, which is not run: write it in SQL"),
        ("function_edges", r"\(Bucketize\): boundaries are a function, which is not run"),
        ("combined", r"\(Categorify\): encode_type 'combo' is not supported"),
        ("oov", "num_buckets hashes unknown values, differently on CPU and GPU"),
    ],
)
def test_operators_without_an_equivalent_are_refused(workflow: str, words: str):
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_nvtabular(DATA / workflow / "workflow")
    assert caught.value.class_name.startswith(("nvtabular.ops.", "merlin.dag.ops."))


# === Damaged and hostile folders ===


class Hostile:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def copied(tmp_path: Path, workflow: str = "words") -> Path:
    folder = tmp_path / "workflow"
    shutil.copytree(DATA / workflow / "workflow", folder)
    return folder


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_runs_nothing(tmp_path: Path, protocol: int):
    folder, made = copied(tmp_path), tmp_path / "made"
    data = pickle.dumps(Hostile(made), protocol)
    (folder / "workflow.pkl").write_bytes(data)
    with pytest.raises(ValueError, match="opcode|names (posix|nt).mkdir, which a workflow does not need"):
        fb.from_nvtabular(folder)
    assert not made.exists()
    # The pickle does what it says where it is loaded.
    pickle.loads(data)
    assert made.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not the pickle of a workflow"),
        (b"\x80\x04.", "not the pickle of a workflow"),
        (b"\x80\x04cos\nsystem\n(Vtrue\ntR.", "opcode UNICODE at byte"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", r"names os.system, which a workflow does not need"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", r"names builtins.eval"),
        (b"\x80\x04\x82\x01.", "opcode EXT1 at byte 2"),
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f", "not the pickle of a workflow"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "the object at byte 3 has number 2147483647"),
        (b"\x80\x04]" + b"\x94" * 10 + b"K\x01b.", "not the pickle of a workflow"),
        (b"\x80\x04N.", "expected a Workflow with attributes"),
        (pickle.dumps({"graph": 1}, 4), "expected a Workflow with attributes"),
        (b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b".", "not the pickle of a workflow|expected a Workflow"),
    ],
)
def test_a_strange_pickle_is_an_error(tmp_path: Path, data: bytes, words: str):
    folder = copied(tmp_path)
    (folder / "workflow.pkl").write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        fb.from_nvtabular(folder)
    assert str(folder / "workflow.pkl") in str(caught.value)


def test_a_truncated_pickle_is_an_error_at_any_length(tmp_path: Path):
    folder = copied(tmp_path, "buckets")
    data = (folder / "workflow.pkl").read_bytes()
    for length in range(0, len(data) - 1, 97):
        (folder / "workflow.pkl").write_bytes(data[:length])
        with pytest.raises(ValueError, match="not the pickle of a workflow"):
            fb.from_nvtabular(folder)


@pytest.mark.filterwarnings("ignore:invalid escape:DeprecationWarning")
def test_a_changed_byte_never_leaves_the_reader(tmp_path: Path):
    folder = copied(tmp_path, "buckets")
    data = (folder / "workflow.pkl").read_bytes()
    draw = np.random.default_rng(3)
    for position in draw.integers(0, len(data), 400):
        changed = bytearray(data)
        changed[position] ^= int(draw.integers(1, 256))
        (folder / "workflow.pkl").write_bytes(bytes(changed))
        # Some bytes mean nothing; an error of another class would end the test.
        with contextlib.suppress(ValueError, FileNotFoundError):
            fb.from_nvtabular(folder)


def metadata(**versions: str) -> str:
    return json.dumps({"versions": versions})


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda folder: shutil.rmtree(folder), FileNotFoundError, r"pass the folder that workflow\.save"),
        (lambda folder: (folder / "workflow.pkl").unlink(), FileNotFoundError, "workflow.pkl: no such file"),
        (lambda folder: (folder / "metadata.json").unlink(), FileNotFoundError, "metadata.json: no such file"),
        (lambda folder: (folder / "metadata.json").write_text("[1"), ValueError, "not the metadata of a workflow"),
        (lambda folder: (folder / "metadata.json").write_text("[1]"), ValueError, "not the metadata of a workflow"),
        (
            lambda folder: (folder / "metadata.json").write_text(metadata(nvtabular="23.06.00")),
            ValueError,
            "saved by NVTabular 23.06.00; this package reads 23.08",
        ),
        (lambda folder: (folder / "workflow.pkl").write_bytes(b" " * (17 << 20)), ValueError, "the limit is 16777216"),
        (
            lambda folder: (folder / "categories/unique.word.parquet").unlink(),
            FileNotFoundError,
            "unique.word.parquet: no such file",
        ),
        (
            lambda folder: (folder / "categories/unique.word.parquet").write_bytes(b"PAR1"),
            ValueError,
            "unique.word.parquet: not a readable Parquet file",
        ),
        (
            lambda folder: pq.write_table(pa.table({"word": ["a", None]}), folder / "categories/unique.word.parquet"),
            ValueError,
            "values must be distinct, without null and NaN",
        ),
        (
            lambda folder: pq.write_table(pa.table({"words": ["a"]}), folder / "categories/unique.word.parquet"),
            ValueError,
            "has no column 'word'",
        ),
    ],
)
def test_a_damaged_folder_is_an_error_that_names_the_file(
    tmp_path: Path, damage: Callable[[Path], object], error: type[Exception], words: str
):
    folder = copied(tmp_path)
    damage(folder)
    with pytest.raises(error, match=words):
        fb.from_nvtabular(folder)


def test_a_recorded_path_cannot_leave_the_folder(tmp_path: Path):
    folder = copied(tmp_path)
    data = (folder / "workflow.pkl").read_bytes()
    # The recorded folder no longer exists: only the file's name counts.
    assert b"data/words/workflow/categories/unique.word.parquet" in data
    assert fb.from_nvtabular(folder).plan.plan_id == fb.from_nvtabular(DATA / "words/workflow").plan.plan_id


def test_bad_arguments_are_errors():
    with pytest.raises(TypeError, match="expects the folder of a saved workflow, not 7"):
        fb.from_nvtabular(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dtype 'INT8' is not one of FLOAT32"):
        fb.from_nvtabular(DATA / "words/workflow", dtype="INT8")
    with pytest.raises(ValueError, match="outputs is empty"):
        fb.from_nvtabular(DATA / "words/workflow", outputs={})
