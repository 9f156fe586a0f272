"""Models that real Spark saved (harness.ops.mllib_pipelines), translated without Spark; its numbers are expected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.errors import UntranslatableStage
from harness.serving import Server

DATA = Path(__file__).parent / "data/mllib"
# The same pipelines, fitted to the same rows and saved by Spark 3.5.7.
DATA_3_5 = Path(__file__).parent / "data/mllib-3.5"
# Outputs that the shards of each pipeline have.
SHARDS = {
    "textbook": ["features", "target"],
    "scalers": ["centred", "unit", "placed", "largest", "robust", "twice"],
    "buckets": ["at_split", "last", "closed", "features"],
    "skips": ["gap_b", "features"],
    "sql": ["features"],
    "numbers": ["features"],
}
# Outputs that differ in the last places of a double: Spark multiplies by reciprocals.
INEXACT = {"textbook", "scalers", "sql"}

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    running = Server({"rows": DATA / "rows"})
    yield running.url
    running.stop()


@pytest.fixture(scope="module")
def connected(url: str) -> Iterator[fb.Client]:
    with fb.connect(url) as opened:
        yield opened


def edited(tmp_path: Path, pipeline: str, stage: str, edit: Edit | None = None) -> Path:
    """A copy of a saved model with a change in the metadata of one stage; the path of the copy."""
    model = tmp_path / "model"
    shutil.copytree(DATA / pipeline / "model", model)
    if edit is not None:
        file = metadata_of(model, stage)
        found = json.loads(file.read_text())
        edit(found)
        file.write_text(json.dumps(found))
    return model


def folder_of(model: Path, stage: str) -> Path:
    (found,) = [model] if not stage else model.glob(f"stages/*_{stage}")
    return found


def metadata_of(model: Path, stage: str) -> Path:
    (found,) = folder_of(model, stage).glob("metadata/part-*")
    return found


def data_of(model: Path, stage: str) -> Path:
    (found,) = folder_of(model, stage).glob("data/part-*")
    return found


def replace_data(model: Path, stage: str, **columns: Any) -> None:
    """Replace columns of a stage's learned values, of which there is one row."""
    file = data_of(model, stage)
    table = pq.read_table(file)
    for name, value in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array([value], table.schema.field(at).type))
    pq.write_table(table, file)


# === Equal to the numbers that Spark wrote ===


@pytest.mark.parametrize("pipeline", list(SHARDS))
def test_doubles_are_those_of_spark(connected: fb.Client, pipeline: str):
    made = fb.from_mllib(
        DATA / pipeline / "model", outputs=SHARDS[pipeline], dtype="FLOAT64", schema=connected.schema("rows")
    )
    found = fb.compare(made.plan, DATA / pipeline / "shards", url=connected, by="id", ulps=4, atol=1e-15)
    assert found.equal, found
    assert found.rows == pq.read_table(DATA / pipeline / "shards").num_rows > 20
    assert [column.name for column in found.columns] == SHARDS[pipeline]
    assert all(column.ulps_max == 0 for column in found.columns) or pipeline in INEXACT


@pytest.mark.parametrize("pipeline", list(SHARDS))
def test_floats_are_those_of_spark_rounded(connected: fb.Client, pipeline: str):
    made = fb.from_mllib(DATA / pipeline / "model", outputs=SHARDS[pipeline], schema=connected.schema("rows"))
    columns = [name for name in SHARDS[pipeline] if name != "twice"]
    found = fb.compare(made.plan, DATA / pipeline / "shards", url=connected, columns=columns)
    assert found.equal, found
    assert {column.status for column in found.columns} == {"equal"}


@pytest.mark.parametrize("pipeline", ["buckets", "skips", "sql"])
def test_types_of_columns_are_rarely_needed(connected: fb.Client, pipeline: str):
    made = fb.from_mllib(DATA / pipeline / "model", outputs=SHARDS[pipeline])
    assert fb.compare(made.plan, DATA / pipeline / "shards", url=connected, by="id")


@pytest.mark.parametrize("pipeline", list(SHARDS))
def test_models_of_spark_3_give_the_same_plans(connected: fb.Client, pipeline: str):
    schema = connected.schema("rows")
    older, newer = (fb.from_mllib(data / pipeline / "model", schema=schema) for data in (DATA_3_5, DATA))
    assert older.plan.to_json() == newer.plan.to_json()
    assert older.differences == newer.differences


def test_a_predictor_names_the_outputs(connected: fb.Client):
    made = fb.from_mllib(DATA / "textbook/model", schema=connected.schema("rows"))
    outputs = made.plan.plan.outputs
    assert list(outputs) == ["features", "target"]
    assert [out.dtype for out in outputs.values()] == ["FLOAT32", "INT32"]
    assert "LogisticRegression_1: a LogisticRegressionModel is not part of a plan" in "\n".join(made.differences)


def test_a_dataset_without_the_label_has_the_features(tmp_path: Path, connected: fb.Client):
    schema = connected.schema("rows")
    model = edited(tmp_path, "textbook", "LogisticRegression_1", params(labelCol="weight", weightCol="id"))
    made = fb.from_mllib(model, schema=schema)
    assert list(made.plan.plan.outputs) == ["features", "id", "target"]
    assert made.plan.plan.outputs["id"].dtype == "AS_STORED"


def test_the_last_columns_are_outputs_without_a_predictor():
    made = fb.from_mllib(DATA / "buckets/model")
    # Others are read by later stages.
    assert list(made.plan.plan.outputs) == ["at_split", "last", "closed", "features"]


def test_one_stage_without_a_pipeline_is_a_model():
    (stage,) = (DATA / "textbook/model/stages").glob("*_StandardScaler_1")
    with pytest.raises(UntranslatableStage, match="column 'raw' as vectors, which no VectorAssembler"):
        fb.from_mllib(stage)
    (stage,) = (DATA / "textbook/model/stages").glob("*_StringIndexer_1")
    made = fb.from_mllib(stage)
    assert made.plan.vocab("target", "label") == [None, "no", "yes"]


def test_a_translation_prints_its_plan_and_differences():
    made = fb.from_mllib(DATA / "skips/model")
    text = repr(made)
    assert made.plan.plan_id in text
    assert "differences from Spark:\n- " in text
    assert "gap_b: an INT32 index here, a double in Spark" in made.differences
    assert any("FLOAT64 keeps Spark's doubles" in line for line in made.differences)


def test_the_plan_can_be_stored_in_a_file(connected: fb.Client):
    made = fb.from_mllib(DATA / "numbers/model", schema=connected.schema("rows"))
    assert fb.FittedPlan.from_json(made.plan.to_json()).to_json() == made.plan.to_json()
    assert not made.plan.plan.needs_fit


def test_unseen_values_are_errors_as_in_spark(connected: fb.Client):
    made = fb.from_mllib(DATA / "scalers/model", outputs=["unit"])
    rows = {"x": [1.0], "constant": [2.5], "single": [0.5]}
    with connected.exchange(made.plan) as exchange:
        assert exchange({**rows, "word": ["a"]})["unit"].shape == (1, 10)
        with pytest.raises(fb.InvalidRequest, match='"word": row 0 is null'):
            exchange({**rows, "word": ["never seen"]})


def test_rows_that_spark_skips_are_filtered():
    made = fb.from_mllib(DATA / "skips/model")
    filter_text = made.plan.plan.filter
    for part in ('"rare" IN (\'', '"count" IS NOT NULL', 'NOT isnan(CAST("gap" AS DOUBLE))'):
        assert part in filter_text, filter_text


def test_labels_of_numbers_without_a_schema_are_reported():
    lines = "\n".join(fb.from_mllib(DATA / "numbers/model").differences)
    assert "StringIndexer_1: labels of 'code' are whole numbers as texts" in lines
    assert "StringIndexer_1: labels of 'level' look like floating-point numbers" in lines


def test_outputs_are_columns_of_the_pipeline_or_of_the_dataset(connected: fb.Client):
    model = DATA / "textbook/model"
    made = fb.from_mllib(model, outputs=["gap_f", "id"], schema=connected.schema("rows"))
    assert [out.dtype for out in made.plan.plan.outputs.values()] == ["FLOAT32", "AS_STORED"]
    with pytest.raises(ValueError, match=r"no column 'feature': did you mean features\?"):
        fb.from_mllib(model, outputs=["feature"], schema=connected.schema("rows"))
    with pytest.raises(TypeError, match="outputs must be a list"):
        fb.from_mllib(model, outputs="features")
    with pytest.raises(ValueError, match="dtype 'INT8' is not one of FLOAT32"):
        fb.from_mllib(model, dtype="INT8")
    with pytest.raises(TypeError, match="expects a fitted pyspark.ml model or the folder"):
        fb.from_mllib(7)


# === Refused by stage ===


@pytest.mark.parametrize(
    ("pipeline", "uid", "words"),
    [
        ("hashed", "FeatureHasher_1", "Murmur3, which no op does: use fb.cols"),
        ("grams", "Tokenizer_1", "no op does the same: remove the stage"),
    ],
)
def test_stages_without_an_equivalent_are_refused_by_uid(pipeline: str, uid: str, words: str):
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_mllib(DATA / pipeline / "model")
    assert caught.value.uid == uid
    assert uid in str(caught.value)


def changed(**fields: Any) -> Edit:
    return lambda found: found.update(fields)


def params(**fields: Any) -> Edit:
    return lambda found: found["paramMap"].update(fields)


@pytest.mark.parametrize(
    ("stage", "edit", "words"),
    [
        ("Bucketizer_1", changed(**{"class": "org.apache.spark.ml.feature.NGram"}), "the op ngram hashes of them"),
        ("Bucketizer_1", changed(**{"class": "com.example.Bucketizer"}), "no op does the same"),
        ("Bucketizer_1", changed(**{"class": "org.apache.spark.ml.Pipeline"}), "it is not fitted"),
        ("Bucketizer_1", params(splits=[1.0, "NaN", 2.0]), "splits of column 'x' must be three or more ascending"),
        ("Bucketizer_1", params(splits=[3.0, 2.0, 1.0]), "three or more ascending"),
        ("Bucketizer_1", params(splits="many"), "parameter splits must be a list of numbers"),
        ("Bucketizer_1", params(inputCol=5), "parameter inputCol must be text"),
        ("Bucketizer_1", params(handleInvalid="ignore"), "handleInvalid is 'ignore'; supported are error, skip, keep"),
        ("Bucketizer_1", params(rounding="up"), "parameter rounding = 'up' is unknown, and may change the result"),
        ("Bucketizer_4", params(inputCols=["x"]), "1 input columns and 2 output columns"),
        ("Bucketizer_4", params(splitsArray=[[0, 1, 2]]), "splits for 1 columns and reads 2"),
        ("OneHotEncoder_1", params(dropLast="yes"), "dropLast must be true or false"),
        ("VectorAssembler_1", params(inputCols=["quantile", 3]), "inputCols must be a list of texts"),
        ("Imputer_1", params(inputCol="id"), "its value for column 'id' must be a finite number, not None"),
    ],
)
def test_a_stage_with_strange_parameters_is_refused(tmp_path: Path, stage: str, edit: Edit, words: str):
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_mllib(edited(tmp_path, "buckets", stage, edit))
    assert caught.value.uid == stage


def vector(*values: float | None) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


@pytest.mark.parametrize(
    ("pipeline", "stage", "columns", "words"),
    [
        ("scalers", "StringIndexer_1", {"labelsArray": [[]]}, "has no labels of column 'word': it was fitted to no"),
        ("scalers", "StringIndexer_1", {"labelsArray": [["a", "a"]]}, "labels of column 'word' are not distinct"),
        ("scalers", "StringIndexer_1", {"labelsArray": [["a", None]]}, "must be a list of texts"),
        ("scalers", "StringIndexer_1", {"labelsArray": []}, "labels for 0 columns and reads 1"),
        ("scalers", "OneHotEncoder_1", {"categorySizes": [-1]}, "whole number of 1 or more"),
        ("scalers", "StandardScaler_1", {"std": vector(1.0)}, "vectors of 1 elements, and column 'plain' has 10"),
        ("scalers", "StandardScaler_1", {"std": vector(*[float("nan")] * 10)}, "std of element 0 is nan"),
        ("scalers", "MaxAbsScaler_1", {"maxAbs": None}, "no vector 'maxAbs'"),
        ("textbook", "Imputer_1", {"gap": float("nan")}, "must be a finite number, not nan"),
    ],
)
def test_a_stage_with_strange_learned_values_is_refused(
    tmp_path: Path, pipeline: str, stage: str, columns: dict[str, Any], words: str
):
    model = edited(tmp_path, pipeline, stage)
    replace_data(model, stage, **columns)
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_mllib(model)
    assert caught.value.uid == stage


def test_labels_must_have_the_type_of_the_column(tmp_path: Path, connected: fb.Client):
    schema = connected.schema("rows")
    model = edited(tmp_path, "scalers", "StringIndexer_1")
    with pytest.raises(UntranslatableStage, match="labels of column 'word' are not of its type int64"):
        fb.from_mllib(model, schema=schema.set(schema.get_field_index("word"), pa.field("word", pa.int64())))
    replace_data(model, "StringIndexer_1", labelsArray=[["0.0", "-0.0"]])
    with pytest.raises(UntranslatableStage, match=r"equal numbers, such as 0\.0 and -0\.0"):
        fb.from_mllib(model, schema=schema.set(schema.get_field_index("word"), pa.field("word", pa.float64())))
    with pytest.raises(UntranslatableStage, match=r"column 'word', which the schema does not have: did you mean"):
        fb.from_mllib(model, schema=pa.schema([("words", pa.string())]))


def test_a_filter_of_too_many_labels_is_refused(tmp_path: Path):
    model = edited(tmp_path, "skips", "StringIndexer_1")
    replace_data(model, "StringIndexer_1", labelsArray=[[f"label {number}" for number in range(10_000)]])
    with pytest.raises(UntranslatableStage, match="bytes, the limit is 65536: set handleInvalid to keep or error"):
        fb.from_mllib(model)


def test_a_wide_encoder_has_a_chain_per_column(tmp_path: Path, connected: fb.Client):
    stages = ["StringIndexer_1", "StringIndexer_2", "OneHotEncoder_1"]
    model = edited(tmp_path, "textbook", "", params(stageUids=stages))
    labels = ["a", *(f"label {number}" for number in range(600))]
    replace_data(model, "StringIndexer_2", labelsArray=[labels, ["a"]])
    replace_data(model, "OneHotEncoder_1", categorySizes=[602, 2])
    made = fb.from_mllib(folder_of(model, "StringIndexer_2"), schema=connected.schema("rows"))
    assert made.plan.cardinalities["word_i"] == {"word": 602}
    made = fb.from_mllib(model, outputs=["word_v"], schema=connected.schema("rows"))
    (batch,) = connected.stream("rows", made.plan)
    words = pq.read_table(DATA / "rows")["word"].to_pylist()
    assert batch["word_v"].shape == (len(words), 601)
    assert batch["word_v"][:, 0].tolist() == [float(word == "a") for word in words]
    assert not batch["word_v"][:, 1:].any()


def test_a_label_of_nan_is_a_value(tmp_path: Path):
    pq.write_table(pa.table({"word": [1.5, float("nan"), 2.0]}), tmp_path / "a.parquet")
    model = edited(tmp_path, "scalers", "StringIndexer_1")
    replace_data(model, "StringIndexer_1", labelsArray=[["NaN", "2.0", "1.5"]])
    (stage,) = model.glob("stages/*_StringIndexer_1")
    with fb.connect(fb.local(nan=tmp_path / "a.parquet")) as client:
        made = fb.from_mllib(stage, schema=client.schema("nan"))
        (batch,) = client.stream("nan", made.plan)
        assert batch["word_i"].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT *, sum(x) AS s FROM __THIS__", "function sum with 1 arguments"),
        ("SELECT *, row_number() OVER (ORDER BY x) AS s FROM __THIS__", r"row_number\(…\) OVER, a window function"),
        ("SELECT *, x AS a FROM __THIS__ GROUP BY x", "'GROUP' after the expressions"),
        ("SELECT *, x AS a FROM other", "FROM other; only FROM __THIS__"),
        ("SELECT *, x + 1 FROM __THIS__", r"\(\"x\" \+ 1\) without a name; add AS name"),
        ("SELECT *, (SELECT 1) AS a FROM __THIS__", "'SELECT' where a value is expected"),
        ("SELECT *, x rlike 'a' AS a FROM __THIS__", "'rlike' after \"x\""),
        ("SELECT *, s.x AS a FROM __THIS__", "qualified name or a field"),
        ("SELECT *, concat('a\\'b') AS a FROM __THIS__", "cannot read"),
        ("SELECT *, CAST(x AS binary) AS a FROM __THIS__", "CAST to binary; supported are double"),
        ("DELETE FROM __THIS__", "expected SELECT and found 'DELETE'"),
        ("SELECT *, " + "(" * 200 + "x" + ")" * 200 + " AS a FROM __THIS__", "nested more than 64 deep"),
        ("SELECT *, " + "log(" * 40 + "x" + ")" * 40 + " AS a FROM __THIS__", "more than 65536 characters"),
        ("SELECT *, 'a" + "a" * 70_000 + "' AS a FROM __THIS__", "characters, the limit is 65536"),
        ("", "parameter statement must be text"),
    ],
)
def test_sql_beyond_simple_expressions_is_refused(tmp_path: Path, statement: str, words: str):
    model = edited(tmp_path, "sql", "SQLTransformer_1", params(statement=statement))
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_mllib(model)
    assert caught.value.uid == "SQLTransformer_1"


# === Damaged models ===


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:40])


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda model: truncate(metadata_of(model, "")), ValueError, "metadata: not JSON, or truncated"),
        (lambda model: truncate(metadata_of(model, "Imputer_1")), ValueError, "_Imputer_1/metadata: not JSON"),
        (lambda model: metadata_of(model, "").write_text("[1]"), ValueError, "must be a JSON object"),
        (lambda model: metadata_of(model, "").write_text("[" * 10**6), ValueError, "not JSON"),
        (lambda model: metadata_of(model, "").write_bytes(b"\xff"), ValueError, "not JSON"),
        (
            lambda model: metadata_of(model, "").write_bytes(b" " * (17 << 20)),
            ValueError,
            "exceeds the limit of 16777216",
        ),
        (lambda model: metadata_of(model, "").unlink(), FileNotFoundError, "metadata: no such folder, or it is empty"),
        (lambda model: shutil.rmtree(model), FileNotFoundError, r"pass the folder that model\.save"),
        (lambda model: shutil.rmtree(folder_of(model, "Imputer_1")), FileNotFoundError, "copy the whole model folder"),
        (
            lambda model: shutil.rmtree(folder_of(model, "Imputer_1") / "data"),
            FileNotFoundError,
            "_Imputer_1/data: no such folder, or it is empty",
        ),
        (lambda model: truncate(data_of(model, "Imputer_1")), ValueError, "not a readable Parquet file"),
        (
            lambda model: pq.write_table(pa.table({"gap": [1.0, 2.0]}), data_of(model, "Imputer_1")),
            ValueError,
            "has 2 rows, and a model has one",
        ),
        (
            lambda model: pq.write_table(pa.table({"gap": pa.array([], pa.float64())}), data_of(model, "Imputer_1")),
            ValueError,
            "has no rows, and a model has one",
        ),
        (
            lambda model: replace_data(
                model, "StandardScaler_1", std={"type": 0, "size": 2**31 - 1, "indices": [0], "values": [1.0]}
            ),
            ValueError,
            "std: not a vector of up to 1048576 elements",
        ),
        (
            lambda model: replace_data(
                model, "StandardScaler_1", std={"type": 0, "size": 15, "indices": [-1], "values": [1.0]}
            ),
            ValueError,
            "std: not a vector",
        ),
    ],
)
def test_a_damaged_model_is_an_error_that_names_the_file(
    tmp_path: Path, damage: Callable[[Path], object], error: type[Exception], words: str
):
    model = edited(tmp_path, "textbook", "")
    damage(model)
    with pytest.raises(error, match=words):
        fb.from_mllib(model)


@pytest.mark.parametrize("uid", ["../../secret", "/etc", "..", "", 7, None])
def test_a_uid_cannot_leave_the_folder(tmp_path: Path, uid: Any):
    model = edited(tmp_path, "textbook", "", params(stageUids=[uid]))
    with pytest.raises(ValueError, match="stageUids must be a list of the stages' uids"):
        fb.from_mllib(model)


def test_pipelines_nest_only_so_deep(tmp_path: Path):
    model = tmp_path / "model"
    here = model
    for _ in range(20):
        (here / "metadata").mkdir(parents=True)
        shutil.copy(metadata_of(DATA / "hashed/model", ""), here / "metadata/part-00000")
        here = here / "stages/0_FeatureHasher_1"
    with pytest.raises(ValueError, match="nested more than 16 deep"):
        fb.from_mllib(model)


@pytest.mark.parametrize("version", ["2.4.8", "5.0.0", "master", ""])
def test_versions_of_another_form_are_errors(tmp_path: Path, version: str):
    model = edited(tmp_path, "skips", "", changed(sparkVersion=version))
    with pytest.raises(ValueError, match=r"reads models of Spark 3 and 4|sparkVersion must be text"):
        fb.from_mllib(model)


def test_other_versions_and_unknown_defaults_are_reported(tmp_path: Path):
    model = edited(tmp_path, "skips", "", changed(sparkVersion="3.4.1"))
    file = metadata_of(model, "VectorAssembler_1")
    found = json.loads(file.read_text())
    found["defaultParamMap"]["blockSize"] = 64
    file.write_text(json.dumps(found))
    lines = fb.from_mllib(model).differences
    assert lines[0] == "the model is of Spark 3.4.1; 3.5 and 4.1 are tested: compare the results"
    assert "VectorAssembler_1: parameter blockSize is unknown, and its default is 64" in lines
    assert not any("are tested" in line for line in fb.from_mllib(DATA / "skips/model").differences)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("hour(ts)", "spark.sql.session.timeZone"),
        ("dayofweek(ts)", "spark.sql.session.timeZone"),
        ("CAST(ts AS date)", "spark.sql.session.timeZone"),
        ("CAST(ts AS string)", "spark.sql.session.timeZone"),
        ("datediff(ts, ts)", "spark.sql.session.timeZone"),
        ("pow(x, -1)", "zero to a negative power is an error here, and Infinity in Spark"),
        ("x + 1", None),
    ],
)
def test_what_depends_on_the_session_of_spark_is_listed(tmp_path: Path, expr: str, words: str | None):
    described = {
        "class": "org.apache.spark.ml.feature.SQLTransformer",
        "timestamp": 1,
        "sparkVersion": "4.1.4",
        "uid": "SQLTransformer_1",
        "paramMap": {"statement": f"SELECT *, {expr} AS h FROM __THIS__"},
        "defaultParamMap": {},
    }
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/part-00000").write_text(json.dumps(described))
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    lines = fb.from_mllib(tmp_path, outputs=["h"], schema=schema).differences
    if words is None:
        assert lines == ()
    else:
        assert any(words in line for line in lines)
