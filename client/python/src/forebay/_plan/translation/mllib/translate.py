"""`from_mllib`: a fitted MLlib pipeline as a fitted plan."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pyarrow as pa

from forebay._plan.fitted import FittedPlan
from forebay._plan.names import suggestion
from forebay._plan.outputs import Output, output
from forebay._plan.plan import Plan
from forebay._plan.plan_digest import plan_digest
from forebay._plan.translation import Translation
from forebay._plan.translation.derivations import needed
from forebay._plan.translation.result import checked_dtype
from forebay._plan.translation.symbols import Scalar, Vector
from forebay.errors import UntranslatableStage

from . import categories, numeric, predictors, scalers, sql
from .frame import Frame
from .live import is_live, read_live, spark_version
from .predicted import Symbol
from .saved import read_saved
from .stage import MllibStage

# Versions whose results the tests compare, and those whose models have the same form.
VERSIONS_TESTED = ("3.5", "4.1")
MAJORS_READ = ("3", "4")
COLUMNS = ("inputCol", "inputCols", "outputCol", "outputCols")

Translator = Callable[[Frame, MllibStage], None]

# Translators by class, and the parameters that they know.
TRANSLATORS: dict[str, tuple[Translator, Collection[str]]] = {
    "StringIndexerModel": (categories.string_indexer, (*COLUMNS, "handleInvalid", "stringOrderType")),
    "OneHotEncoderModel": (categories.one_hot_encoder, (*COLUMNS, "handleInvalid", "dropLast")),
    "ImputerModel": (numeric.imputer, (*COLUMNS, "missingValue", "strategy", "relativeError")),
    "Bucketizer": (numeric.bucketizer, (*COLUMNS, "handleInvalid", "splits", "splitsArray")),
    "VectorAssembler": (numeric.vector_assembler, ("inputCols", "outputCol", "handleInvalid")),
    "StandardScalerModel": (scalers.standard_scaler, ("inputCol", "outputCol", "withMean", "withStd")),
    "MinMaxScalerModel": (scalers.min_max_scaler, ("inputCol", "outputCol", "min", "max")),
    "MaxAbsScalerModel": (scalers.max_abs_scaler, ("inputCol", "outputCol")),
    "RobustScalerModel": (
        scalers.robust_scaler,
        ("inputCol", "outputCol", "withCentering", "withScaling", "lower", "upper", "relativeError"),
    ),
    "SQLTransformer": (sql.sql_transformer, ("statement",)),
    "IndexToString": (predictors.index_to_string, ("inputCol", "outputCol", "labels")),
}
FEATURES = "org.apache.spark.ml.feature."
# Classes whose learned values are in the data of a saved model.
WITH_DATA = frozenset(FEATURES + name for name in TRANSLATORS if name.endswith("Model"))

# What to do instead of a stage that is not translated.
INSTEAD = {
    "FeatureHasher": "it hashes name=value by Murmur3, which no op does: use fb.cols(…).hash_bucket(n).one_hot() "
    "and train again",
    "HashingTF": "it hashes by Murmur3, which no op does: use fb.cols(…).hash_bucket(n).multi_hot() and train again",
    "NGram": "it makes texts, and the op ngram hashes of them: use fb.cols(…).ngram(n, buckets=…) and train again",
    "Pipeline": "it is not fitted: pass the PipelineModel that fit returns",
    "CrossValidatorModel": "pass its bestModel",
    "TrainValidationSplitModel": "pass its bestModel",
}


def from_mllib(
    model: Any,
    *,
    outputs: Sequence[str] | None = None,
    dtype: str = "FLOAT32",
    schema: pa.Schema | None = None,
) -> Translation[FittedPlan]:
    """Translate a fitted MLlib pipeline to a plan with the parameters that Spark learned.

    `model` is a fitted ``pyspark.ml`` model, or the folder (a path or URI) that ``model.save`` wrote, which is read
    without Spark and Java. `outputs` are columns of the pipeline to stream; by default those that a predictor reads,
    and those that no later stage reads. `dtype` is that of vectors and numbers; FLOAT64 keeps Spark's doubles. `schema`
    is that of the dataset, ``client.schema(name)``: with it, labels of numbers get the type of their column.

    Raises `UntranslatableStage` for a stage without an equivalent, and ValueError for a damaged model.
    """
    checked_dtype(dtype)
    if is_live(model):
        stages, version = read_live(model), spark_version()
    elif isinstance(model, (str, os.PathLike)):
        stages, version = read_saved(os.fspath(cast("str | os.PathLike[str]", model)), WITH_DATA)
    else:
        raise TypeError(f"from_mllib expects a fitted pyspark.ml model or the folder of a saved one, not {model!r}")
    frame = Frame(schema)
    _check_version(frame, version)
    for stage in stages:
        _translate(frame, stage)
    plan = _plan(frame, _selected(frame, outputs), dtype)
    return Translation(FittedPlan(plan_digest(plan.to_dict()), plan), tuple(frame.differences))


def _check_version(frame: Frame, version: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or match[1] not in MAJORS_READ:
        raise ValueError(
            f"the model was saved by Spark {version}; this package reads models of Spark "
            f"{' and '.join(MAJORS_READ)}: load it there and save it again"
        )
    if match[0] not in VERSIONS_TESTED:
        frame.note(f"the model is of Spark {version}; {' and '.join(VERSIONS_TESTED)} are tested: compare the results")


def _translate(frame: Frame, stage: MllibStage) -> None:
    if predictors.is_predictor(stage):
        predictors.predictor(frame, stage)
        return
    known = TRANSLATORS.get(stage.short_name) if stage.class_name == FEATURES + stage.short_name else None
    if known is None:
        instead = INSTEAD.get(stage.short_name, "no op does the same: remove the stage, or compute its columns before")
        raise stage.refusal(instead)
    translator, params = known
    for name in stage.params:
        if name not in params:
            value = stage.params[name]
            raise stage.refusal(f"parameter {name} = {value!r} is unknown, and may change the result; unset it")
    for name in stage.defaults:
        if name not in params:
            frame.note(f"{stage.uid}: parameter {name} is unknown, and its default is {stage.defaults[name]!r}")
    translator(frame, stage)


def _selected(frame: Frame, outputs: Sequence[str] | None) -> dict[str, Symbol]:
    """Return the columns that become outputs."""
    if outputs is None:
        last = {name: frame.symbols[name] for name in frame.made if name not in frame.consumed}
        found = {**frame.wanted, **last}
        if not found:
            raise ValueError("the pipeline makes no column; choose stored ones with outputs=")
        return found
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a list of names: outputs=[{outputs!r}]")
    if not outputs:
        raise ValueError("outputs is empty: name one or more columns of the pipeline")
    reader = MllibStage("outputs", "from_mllib", {})
    chosen: dict[str, Symbol] = {}
    for name in outputs:
        try:
            chosen[name] = frame.symbol(reader, name)
        except UntranslatableStage as error:
            near = suggestion(name, [*frame.made, *frame.symbols])
            raise ValueError(f"outputs: no column {name!r}: {near}") from error
    return chosen


def _plan(frame: Frame, selected: dict[str, Symbol], dtype: str) -> Plan:
    outputs: dict[str, Output] = {}
    for name, symbol in selected.items():
        if isinstance(symbol, Vector):
            parts = symbol.parts()
            if not parts:
                raise ValueError(f"outputs: {name!r} has no elements")
            outputs[name] = output(parts, dtype=dtype)
            frame.note(f"{name}: a dense {dtype} matrix here, sparse or dense vectors of doubles in Spark")
        else:
            assert isinstance(symbol, Scalar), name
            outputs[name] = _scalar_output(symbol, dtype)
            if symbol.index is not None:
                frame.note(f"{name}: an INT32 index here, a double in Spark")
    if dtype != "FLOAT64" and any(made.dtype == dtype for made in outputs.values()):
        frame.note(f"numbers are {dtype}, and integers that it does not hold are errors; FLOAT64 keeps Spark's doubles")
    return Plan(outputs=outputs, filter=frame.filter or None, derive=needed(frame.derive, outputs))


def _scalar_output(symbol: Scalar, dtype: str) -> Output:
    if symbol.index is not None:
        return output(symbol.part, dtype="INT32")
    if not symbol.part.ops:
        return output(symbol.part.as_stored())
    return output(symbol.part, dtype=dtype)
