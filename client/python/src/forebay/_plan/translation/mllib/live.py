"""Reads a fitted model of a running PySpark session through its public attributes. Imports no pyspark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, cast

import numpy as np

from .stage import MllibStage

# Learned values by class: the attribute of each.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "StringIndexerModel": ("labelsArray",),
    "OneHotEncoderModel": ("categorySizes",),
    "StandardScalerModel": ("mean", "std"),
    "MinMaxScalerModel": ("originalMin", "originalMax"),
    "MaxAbsScalerModel": ("maxAbs",),
    "RobustScalerModel": ("median", "range"),
}


def is_live(model: object) -> bool:
    """Whether this is an object of pyspark.ml."""
    return type(model).__module__.startswith("pyspark.ml") and hasattr(model, "uid")


def read_live(model: Any) -> list[MllibStage]:
    """Return the stages of a model."""
    if type(model).__name__ == "PipelineModel":
        return [stage for one in model.stages for stage in read_live(one)]
    class_name = f"org.apache.spark.{type(model).__module__.removeprefix('pyspark.')}.{type(model).__name__}"
    every = model.extractParamMap()
    params = {param.name: value for param, value in every.items() if model.isSet(param)}
    defaults = {param.name: value for param, value in every.items() if not model.isSet(param)}
    return [MllibStage(model.uid, class_name, params, defaults, _learned(model))]


def spark_version() -> str:
    """Return the version of the PySpark that made the model."""
    return str(import_module("pyspark").__version__)


def _learned(model: Any) -> dict[str, Any]:
    name = type(model).__name__
    if name == "ImputerModel":
        return dict(model.surrogateDF.first().asDict())
    return {attribute: _plain(getattr(model, attribute)) for attribute in ATTRIBUTES.get(name, ())}


def _plain(value: Any) -> Any:
    """Return a vector as an array of float64, and lists as lists."""
    to_array: Callable[[], Any] | None = getattr(value, "toArray", None)
    if to_array is not None:
        return np.array(to_array(), np.float64)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in cast("Iterable[Any]", value)]
    return value
