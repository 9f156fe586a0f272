"""One model per group: hundreds of scikit-learn models from one grouped request, trained in parallel.

A table has the unsorted readings of 300 sensors, and each sensor has its own slopes. One request groups the rows by
sensor; the processes of a joblib pool each open the groups that they are given, fit a linear model, and write it. The
coefficients must be those that the readings were made with, within noise, and those of pandas' groupby to nine digits.

Requires forebay-server (see `forebay.local`) and scikit-learn.
"""

import argparse
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import measured
from sklearn.linear_model import LinearRegression

import forebay as fb

SENSORS = 300
ROWS = 240_000
NOISE = 0.5
SEED = 11
# The slopes of two sensors; the others' are drawn.
KNOWN_SLOPES = {"known-2.5": 2.5, "known-3.0": 3.0}

PLAN = fb.Plan(
    filter="reading IS NOT NULL",
    outputs={
        "inputs": fb.output(fb.cols("load", "heat"), dtype="float64"),
        "reading": fb.output(fb.cols("reading"), dtype="float64"),
    },
)

# A coefficient differs from its true value by more than five standard errors once in two million.
STANDARD_ERRORS_MAX = 5.0

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fitted:
    """A sensor's model: the slopes of load and heat, and the intercept."""

    sensor: str
    load: float
    heat: float
    intercept: float
    rows: int

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """The slopes and the intercept."""
        return self.load, self.heat, self.intercept


def fit(sensor: str, inputs: Array, reading: Array) -> tuple[LinearRegression, Fitted]:
    """Fit the model of one sensor."""
    model = LinearRegression().fit(inputs, reading)
    load, heat = (float(slope) for slope in model.coef_)
    return model, Fitted(sensor, load, heat, float(cast(Any, model.intercept_)), len(reading))


def fit_group(group: fb.Group, folder: Path) -> Fitted:
    """Read a group, fit its model and write it; runs in a process of the pool."""
    batches = list(group.open())
    inputs = np.concatenate([cast(Array, batch["inputs"]) for batch in batches])
    reading = np.concatenate([cast(Array, batch["reading"]) for batch in batches])
    model, fitted = fit(group.key, inputs, reading)
    joblib.dump(model, folder / f"{group.key}.joblib")
    return fitted


def fit_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Fit the model of one sensor's rows: the function that pandas' groupby and Spark's applyInPandas call."""
    _, fitted = fit(str(rows["sensor"].iloc[0]), rows[["load", "heat"]].to_numpy(), rows["reading"].to_numpy())
    return pd.DataFrame([vars(fitted)])


def write_readings(folder: Path) -> tuple[Path, dict[str, tuple[float, float, float]]]:
    """Write the unsorted table once, and return the file and the true coefficients of each sensor."""
    rng = np.random.default_rng(SEED)
    names = [*KNOWN_SLOPES, *(f"sensor-{number:03}" for number in range(SENSORS - len(KNOWN_SLOPES)))]
    load, heat, intercept = rng.uniform(-4, 4, (3, SENSORS))
    load[: len(KNOWN_SLOPES)] = list(KNOWN_SLOPES.values())
    truth = {name: (load[i], heat[i], intercept[i]) for i, name in enumerate(names)}
    sensor = rng.integers(0, SENSORS, ROWS)
    loads, heats = rng.normal(size=(2, ROWS))
    readings = load[sensor] * loads + heat[sensor] * heats + intercept[sensor] + rng.normal(0, NOISE, ROWS)
    file = folder / "readings" / "0.parquet"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        missing = rng.random(ROWS) < 0.01
        columns: dict[str, Any] = {"load": loads, "heat": heats, "reading": pa.array(readings, mask=missing)}
        table = cast(Any, pa).table({"sensor": np.array(names)[sensor], **columns})
        temporary = file.with_suffix(".tmp")
        pq.write_table(table, temporary, row_group_size=30_000)
        temporary.replace(file)
    return file, truth


def from_the_stream(url: str, folder: Path, jobs: int) -> list[Fitted]:
    """Fit and write the model of every sensor, in parallel, from one grouped request."""
    with fb.connect(url) as client:
        groups = client.groups("readings", PLAN, by="sensor", batch_size=8192)
    work = [joblib.delayed(fit_group)(group, folder) for group in groups]
    return cast("list[Fitted]", joblib.Parallel(n_jobs=jobs, max_nbytes=None)(work))


def from_pandas(file: Path) -> list[Fitted]:
    """Fit the same models with pandas' groupby, from the whole table in memory."""
    table = pd.read_parquet(file)
    table = table[table["reading"].notna()]
    return [
        Fitted(**cast("dict[str, Any]", fit_frame(rows).to_dict("records")[0])) for _, rows in table.groupby("sensor")
    ]


def check_truth(fitted: list[Fitted], truth: dict[str, tuple[float, float, float]]) -> float:
    """Return the largest error in standard errors; exit if it is more than noise."""
    if [one.sensor for one in fitted] != sorted(truth):
        sys.exit("the groups are not the sensors")
    # The inputs have a variance of 1 and are independent: the standard error of each coefficient.
    errors = [
        abs(found - true) * math.sqrt(one.rows) / NOISE
        for one in fitted
        for found, true in zip(one.coefficients, truth[one.sensor], strict=True)
    ]
    if max(errors) > STANDARD_ERRORS_MAX:
        sys.exit(f"a coefficient is {max(errors):.1f} standard errors off")
    return max(errors)


def check_artefacts(fitted: list[Fitted], folder: Path) -> None:
    """Exit unless every artefact predicts what its coefficients say."""
    for one in fitted:
        model = joblib.load(folder / f"{one.sensor}.joblib")
        want = one.load * 0.5 + one.heat * -2.0 + one.intercept
        if not math.isclose(float(model.predict([[0.5, -2.0]])[0]), want, rel_tol=1e-9, abs_tol=1e-9):
            sys.exit(f"the artefact of {one.sensor} is not its model")


def largest_difference(fitted: list[Fitted], others: list[Fitted]) -> float:
    """Return the largest difference between the coefficients of two lists; exit if it is more than rounding."""
    pairs = list(zip(fitted, others, strict=True))
    if any((one.sensor, one.rows) != (other.sensor, other.rows) for one, other in pairs):
        sys.exit("the groups differ")
    differences = [
        abs(a - b) for one, other in pairs for a, b in zip(one.coefficients, other.coefficients, strict=True)
    ]
    if max(differences) > 1e-9:
        sys.exit(f"coefficients differ by {max(differences):.1e}")
    return max(differences)


def main() -> None:
    """Fit the models from the stream and with pandas, check and compare them."""
    parser = argparse.ArgumentParser(description="Train one model per group from a grouped Forebay stream.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the table and the models")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that fit models")
    arguments = parser.parse_args()
    file, truth = write_readings(arguments.data)
    models = arguments.data / "models"
    models.mkdir(exist_ok=True)

    url = fb.local(readings=file.parent)
    fitted, streamed = measured(lambda: from_the_stream(url, models, arguments.jobs))
    whole, in_memory = measured(lambda: from_pandas(file))
    worst = check_truth(fitted, truth)
    check_artefacts(fitted, models)
    difference = largest_difference(fitted, whole)

    print(f"{len(fitted)} models of {sum(one.rows for one in fitted):,} rows in {models.name}/")
    by_sensor = {one.sensor: one for one in fitted}
    for sensor, slope in KNOWN_SLOPES.items():
        one = by_sensor[sensor]
        error = NOISE / math.sqrt(one.rows)
        print(f"{sensor}: slope {one.load:.3f} of {one.rows:,} rows, made with {slope} (standard error {error:.3f})")
    print(f"largest error: {worst:.1f} standard errors; largest difference from pandas: {difference:.0e}")
    print(f"from the stream, {arguments.jobs} processes {streamed.wall:>7.2f} s {streamed.cpu:>7.2f} s CPU")
    print(f"pandas' groupby, one process   {in_memory.wall:>7.2f} s {in_memory.cpu:>7.2f} s CPU")


if __name__ == "__main__":
    main()
