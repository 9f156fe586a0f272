"""Index, one-hot, assemble: an MLlib pipeline as a plan, and three models trained from its stream.

The pipeline's StringIndexer, OneHotEncoder, StandardScaler and VectorAssembler are one output of a plan. Logistic
regression (scikit-learn's `partial_fit`, and torch) and gradient-boosted trees (XGBoost) are trained from the stream,
without a file or a table of features. Each model's accuracy on held-out days must be that of scikit-learn's counterpart
trained on the whole table, within noise.

Requires forebay-server (see `forebay.local`), scikit-learn and xgboost.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
import xgboost
from flights_data import HELD_OUT, LATE_MINUTES, TRAINING, convert_once
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "flights"
CATEGORIES = ["carrier", "origin", "dest"]
NUMBERS = ["dep_delay", "distance", "hour", "month"]

PLAN = fb.Plan(
    filter=TRAINING,
    derive={"late": f"arr_delay > {LATE_MINUTES}"},
    outputs={
        "features": [
            fb.cols(*CATEGORIES).vocab().one_hot(),  # StringIndexer, OneHotEncoder
            fb.cols(*NUMBERS).standardize(),  # StandardScaler
        ],  # VectorAssembler: side by side
        "late": fb.cols("late"),
    },
)

BATCH_ROWS = 2048
EPOCHS = 2
SEED = 7
TREES = 40
DEPTH = 6
TREE_LEARNING_RATE = 0.3

# An accuracy on n rows has a standard error of √(p(1 - p) / n); two models of equal quality differ by less than three.
STANDARD_ERRORS_MAX = 3.0

Array = np.ndarray[Any, Any]
Predict = Callable[[Array], Array]


@dataclass(frozen=True)
class Result:
    """A trained model's accuracy on the held-out days."""

    name: str
    accuracy: float
    rows: int

    @property
    def noise(self) -> float:
        """The difference in accuracy that is attributed to chance."""
        return STANDARD_ERRORS_MAX * math.sqrt(self.accuracy * (1 - self.accuracy) / self.rows)


class Features:
    """Streams of the features of the training and the held-out days, from one fit."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = fb.connect(url)
        self.fitted = self.client.fit(DATASET, PLAN)

    @property
    def width(self) -> int:
        """The number of columns of the feature matrix."""
        with self.client.stream(DATASET, self.fitted, batch_size=BATCH_ROWS) as stream:
            return int(cast(Any, stream.schema.field("features").type).shape[0])

    def training(self, epoch: int) -> fb.Stream:
        """Open a shuffled epoch of the training days."""
        return self.client.stream(DATASET, self.fitted, batch_size=BATCH_ROWS, shuffle=True, seed=SEED, epoch=epoch)

    def scored(self, name: str, predict: Predict) -> Result:
        """Measure the accuracy of a model on the held-out days."""
        correct = rows = 0
        for batch in self.client.stream(DATASET, self.fitted.with_filter(HELD_OUT), batch_size=BATCH_ROWS):
            inputs, late = cast(Array, batch["features"]), cast(Array, batch["late"])
            correct += int((predict(inputs) == (late > 0)).sum())
            rows += len(late)
        return Result(name, correct / rows, rows)


def sgd_from_the_stream(features: Features) -> Result:
    """Train logistic regression by `partial_fit`, one batch at a time."""
    model = SGDClassifier(loss="log_loss", alpha=1e-5, average=True, random_state=SEED)
    for epoch in range(EPOCHS):
        for batch in features.training(epoch):
            model.partial_fit(batch["features"], batch["late"], classes=[0.0, 1.0])
    return features.scored("SGDClassifier.partial_fit", lambda rows: cast(Array, model.predict(rows)) > 0)


def torch_from_the_stream(features: Features) -> Result:
    """Train logistic regression as a linear layer."""
    data = FlightDataset(features.url, DATASET, features.fitted, batch_size=BATCH_ROWS, shuffle=True, seed=SEED)
    torch.manual_seed(SEED)
    model = torch.nn.Linear(features.width, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=EPOCHS * len(data))
    loss_of = torch.nn.BCEWithLogitsLoss()
    for _, batches in data.epochs(EPOCHS):
        for batch in batches:
            optimizer.zero_grad()
            loss_of(model(batch["features"]).squeeze(1), batch["late"]).backward()
            optimizer.step()
            schedule.step()

    @torch.no_grad()
    def predict(rows: Array) -> Array:
        return (model(torch.from_numpy(rows.copy())).squeeze(1) > 0).numpy()

    return features.scored("torch.nn.Linear", predict)


class StreamedBatches(xgboost.DataIter):
    """XGBoost's iterator over an epoch, which it reads several times: to count, to sketch and to bin the columns."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self._features = features
        self._batches: Iterator[fb.Batch] = features.training(0)

    def reset(self) -> None:
        """Start the epoch again."""
        self._batches = self._features.training(0)

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Pass the next batch on; return whether there was one."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        input_data(data=batch["features"], label=batch["late"])
        return True


def trees_from_the_stream(features: Features) -> Result:
    """Train gradient-boosted trees by the histogram method; XGBoost holds one byte per value, its bin."""
    binned = xgboost.QuantileDMatrix(StreamedBatches(features))
    settings = {"objective": "binary:logistic", "max_depth": DEPTH, "eta": TREE_LEARNING_RATE, "tree_method": "hist"}
    model = xgboost.train({**settings, "seed": SEED}, binned, num_boost_round=TREES)
    return features.scored("xgboost.train", lambda rows: model.inplace_predict(rows) > 0.5)


def whole_tables(file: Path) -> tuple[Result, Result]:
    """Train scikit-learn's counterparts on the whole table in memory: logistic regression, boosted trees."""
    flights = pd.read_parquet(file)
    flights = flights[flights["arr_delay"].notna()]
    late = (flights["arr_delay"] > LATE_MINUTES).to_numpy()
    seen = (flights["day"] % 5 != 0).to_numpy()
    inputs = flights[CATEGORIES + NUMBERS]
    print(f"{1 - late[~seen].mean():.2%} of the held-out flights are not late")

    def trained(name: str, model: Any) -> Result:
        model.fit(inputs[seen], late[seen])
        held_out = late[~seen]
        return Result(name, float((model.predict(inputs[~seen]) == held_out).mean()), len(held_out))

    one_hot = ColumnTransformer(
        [("one_hot", OneHotEncoder(handle_unknown="ignore"), CATEGORIES), ("scale", StandardScaler(), NUMBERS)]
    )
    unknown: dict[str, Any] = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    indices = ColumnTransformer([("index", OrdinalEncoder(**unknown), CATEGORIES)], remainder="passthrough")
    settings: dict[str, Any] = {"max_iter": TREES, "max_depth": DEPTH, "learning_rate": TREE_LEARNING_RATE}
    trees = HistGradientBoostingClassifier(**settings, early_stopping=cast(Any, False), random_state=SEED)
    return (
        trained("LogisticRegression", make_pipeline(one_hot, LogisticRegression(max_iter=1000))),
        trained("HistGradientBoosting", make_pipeline(indices, trees)),
    )


def from_the_stream(url: str) -> tuple[Result, Result, Result]:
    """Train all models from the stream: two logistic regressions, boosted trees."""
    features = Features(url)
    print(f"{features.width} columns: {len(NUMBERS)} numbers, one column per category and one for unseen ones")
    return sgd_from_the_stream(features), torch_from_the_stream(features), trees_from_the_stream(features)


def compared(streamed: Result, whole: Result) -> str:
    """Return a line of the table; exit if the accuracies differ by more than noise."""
    difference = streamed.accuracy - whole.accuracy
    if abs(difference) > whole.noise:
        sys.exit(
            f"{streamed.name}: {streamed.accuracy:.2%} differs from {whole.name}'s {whole.accuracy:.2%} by more "
            f"than {whole.noise:.2%}"
        )
    return (
        f"{streamed.name:<26} {streamed.accuracy:>9.2%}   {whole.name:<21} {whole.accuracy:>9.2%} {difference:>+11.2%} "
        f"{whole.noise:>7.2%}"
    )


def main() -> None:
    """Train the models from the stream and on the whole table, and compare them."""
    parser = argparse.ArgumentParser(description="Train an MLlib pipeline's models from a Forebay stream.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    file = convert_once(parser.parse_args().data / DATASET)

    regression, forest = whole_tables(file)
    sgd, linear, trees = from_the_stream(fb.local(flights=file.parent))
    print(f"accuracy on {regression.rows:,} held-out flights:")
    print(f"{'from the stream':<36}   {'on the whole table':<31} {'difference':>11} {'noise':>7}")
    for streamed, whole in ((sgd, regression), (linear, regression), (trees, forest)):
        print(compared(streamed, whole))


if __name__ == "__main__":
    main()
