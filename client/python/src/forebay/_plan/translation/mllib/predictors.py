"""Models that predict: no part of a plan, but they name the features and the label to stream."""

from __future__ import annotations

from .frame import Frame
from .predicted import Predicted
from .stage import MllibStage

PACKAGES = ("classification", "regression", "clustering", "recommendation")
SINGLE = ("labelCol", "weightCol")
WRITTEN = ("predictionCol", "rawPredictionCol", "probabilityCol", "leafCol", "topicDistributionCol")


def is_predictor(stage: MllibStage) -> bool:
    """Whether the stage is a model that predicts."""
    return any(stage.class_name.startswith(f"org.apache.spark.ml.{package}.") for package in PACKAGES)


def predictor(frame: Frame, stage: MllibStage) -> None:
    """Leave out a model that predicts; what it reads becomes an output."""
    if stage.has("featuresCol"):
        frame.wanted[stage.text("featuresCol")] = frame.vector(stage, stage.text("featuresCol"))
    for name in SINGLE:
        # A dataset to predict has no label.
        if stage.has(name) and frame.has(stage.text(name)):
            frame.wanted[stage.text(name)] = frame.scalar(stage, stage.text(name))
    for name in WRITTEN:
        if stage.has(name):
            frame.symbols[stage.text(name)] = Predicted(stage.uid)
    frame.note(f"{stage.uid}: a {stage.short_name} is not part of a plan; train a model from the stream")


def index_to_string(frame: Frame, stage: MllibStage) -> None:
    """Leave out the text of a predicted index."""
    read = stage.text("inputCol")
    found = frame.symbols.get(read)
    if not isinstance(found, Predicted):
        raise stage.refusal(f"turns the index {read!r} into text; read the column that it was made of")
    frame.symbols[stage.text("outputCol")] = Predicted(found.uid)
    frame.note(f"{stage.uid}: the text of a prediction is not part of a plan")
