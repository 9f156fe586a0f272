"""Fraud among card payments: features of earlier payments, risks as they were known, balanced classes.

One payment in a hundred is a fraud. What tells it apart is mostly how it differs from the payments of the card before
it. The plan computes means, deviations and pauses of the last payments, joins the risk of the merchant as it was known
at the time, and learns from the time before the split; an epoch has as many frauds as other payments. Asserted:

- every feature of the later payments is that of pandas (shift, rolling, merge_asof) over the whole table;
- half of the rows of an epoch are frauds;
- a run that is killed within a step resumes with the rows and, to the bit, the losses and weights of another one;
- of the payments that the model ranks highest, more are frauds than of a model without earlier payments.

Requires forebay-server (see `forebay.local`), torch and pandas.
"""

import argparse
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from resuming import Batch, Run, check, check_equal, in_process, train_steps
from torch import nn

import forebay as fb
from forebay.torch import FlightDataset

LAST = 7
BATCH_ROWS = 256
EPOCHS = 3
BEGINNING = pd.Timestamp("2025-01-01", tz="UTC")
TRAIN_UNTIL, GAP = "2025-05-01", "1 day"
MERCHANTS = 200
# Features are float32: a relative difference of some units in the last place.
FLOAT32_DIFFERENCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Job(Run):
    """A run of training, and where it reads."""

    url: str
    plan: str
    width: int


def payments(cards: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return payments, sorted by card and time, and the risks of merchants by the time from which they are known."""
    random = np.random.default_rng(3)
    counts = random.integers(20, 60, cards)
    card = np.repeat(np.arange(cards), counts)
    rows = len(card)
    # A card has its own amounts and pauses.
    typical, spread = random.normal(3.5, 0.8, cards)[card], random.uniform(0.1, 0.4, cards)[card]
    pause = random.exponential(180 * 86_400 / counts[card])
    fraud = random.random(rows) < 0.01
    amount = np.exp(typical + spread * random.normal(size=rows) + np.where(fraud, random.choice([-1.5, 1.5], rows), 0))
    pause = np.where(fraud, pause * 0.02, pause) + 1
    times = pd.Series(pause).groupby(card).cumsum()
    merchant = random.integers(0, MERCHANTS, rows)
    frame = pd.DataFrame(
        {
            "card": card.astype(np.int32),
            "ts": (BEGINNING + pd.to_timedelta(times.to_numpy(), unit="s")).floor("us").as_unit("us"),
            "merchant": merchant.astype(np.int32),
            "amount": np.round(amount, 2),
            "fraud": fraud,
        }
    )
    changes = 5
    risk = pd.DataFrame(
        {
            "merchant": np.repeat(np.arange(MERCHANTS, dtype=np.int32), changes),
            "valid_from": np.tile(
                pd.DatetimeIndex(BEGINNING + pd.to_timedelta(np.arange(changes) * 30, unit="D")).as_unit("us"),
                MERCHANTS,
            ),
            "risk": random.random(MERCHANTS * changes),
        }
    )
    return frame, risk


def plan(*, with_earlier: bool) -> fb.Plan:
    """Return the plan, with features of earlier payments or without."""
    amount = fb.cols("amount").log1p()
    features = [amount.standardize(), fb.cols("risk").fill_null(0.5)]
    if with_earlier:
        features += [
            amount.lag().fill_null(0).standardize(),
            amount.rolling("mean", LAST).standardize(),
            amount.rolling("std", LAST).fill_null(0).standardize(),
            fb.cols("amount").rolling("count", LAST).standardize(),
            fb.cols("ts").diff().fill_null(0).log1p().standardize(),
        ]
    return fb.Plan(
        join=[fb.join("risk", on="merchant", columns=["risk"], as_of=("ts", "valid_from"))],
        history={"by": "card", "order": "ts"},
        outputs={"features": fb.output(features, dtype="FLOAT32"), "fraud": fb.label("fraud")},
    )


def expected(frame: pd.DataFrame, risk: pd.DataFrame, fitted: fb.FittedPlan) -> np.ndarray:
    """Return the features of all payments by pandas, scaled as the plan has learned."""
    amount = np.log1p(frame["amount"])
    of_card = amount.groupby(frame["card"])

    def rolled(stat: str) -> pd.Series:
        return getattr(of_card.rolling(LAST, min_periods=1), stat)().reset_index(level=0, drop=True)

    by_time = frame.reset_index().sort_values("ts", kind="stable")
    joined = pd.merge_asof(
        by_time, risk.sort_values("valid_from"), left_on="ts", right_on="valid_from", by="merchant"
    ).set_index("index")
    pause = frame.groupby("card")["ts"].diff().dt.total_seconds().fillna(0)
    columns = [
        amount,
        joined["risk"].reindex(frame.index).fillna(0.5),
        of_card.shift(1).fillna(0),
        rolled("mean"),
        rolled("std").fillna(0),
        rolled("count"),
        np.log1p(pause),
    ]
    scalers = [part.ops[-1] for part in fitted.plan.outputs["features"].parts]
    for place, scaler in enumerate(scalers):
        if scaler.name == "standardize":
            learned: Any = scaler
            columns[place] = (columns[place] - learned.mean) / learned.std
    return np.stack([column.to_numpy(float) for column in columns], axis=1)


class Model(nn.Module):
    """A small network over the features of a payment."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logit of a fraud."""
        return self.layers(features)[:, 0]

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return nn.functional.binary_cross_entropy_with_logits(self(batch["features"]), batch["fraud"].float())


def train(job: Job) -> None:
    """Train on balanced payments, from the checkpoint if there is one."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = Model(job.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = FlightDataset(
        job.url,
        "payments",
        fb.FittedPlan.from_json(job.plan),
        batch_size=BATCH_ROWS,
        shuffle=True,
        seed=7,
        balance="fraud",
    )
    train_steps(job, model, optimizer, data, model.loss, "features")


def precision(job: Job, batch: dict[str, np.ndarray]) -> float:
    """Return the share of frauds among as many payments as there are frauds: those of the highest logits."""
    model = Model(job.width)
    model.load_state_dict(torch.load(job.weights))
    with torch.no_grad():
        logits = model(torch.from_numpy(batch["features"])).numpy()
    frauds = batch["fraud"].astype(bool)
    highest = np.argsort(-logits, kind="stable")[: frauds.sum()]
    return float(frauds[highest].mean())


def write(folder: Path, frame: pd.DataFrame) -> str:
    """Write a table as a dataset; return its folder."""
    folder.mkdir()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "0.parquet", row_group_size=10_000)
    return str(folder)


def main() -> None:
    """Compare features with pandas, then train without and with a kill, and without earlier payments."""
    parser = argparse.ArgumentParser(description="Find frauds by the earlier payments of a card.")
    parser.add_argument("--cards", type=int, default=2_000, help="cards (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        frame, risk = payments(options.cards)
        url = fb.local(payments=write(folder / "payments", frame), risk=write(folder / "risk", risk))
        fits: dict[bool, fb.FittedPlan] = {}
        later: dict[bool, dict[str, np.ndarray]] = {}
        with fb.connect(url) as client:
            for with_earlier in (True, False):
                training, validation = plan(with_earlier=with_earlier).split(
                    by_time="ts", train_until=TRAIN_UNTIL, gap=GAP
                )
                fits[with_earlier] = client.fit("payments", training)
                known = client.fit("payments", validation)
                (batch,) = client.stream("payments", known, batch_size=len(frame), with_row_ids=True)
                later[with_earlier] = {name: np.array(batch[name]) for name in ("features", "fraud", "__row_id")}
            steps = client.stream("payments", fits[True], batch_size=BATCH_ROWS, balance="fraud").info.steps
        found, rows = later[True]["features"], later[True]["__row_id"]
        wanted = expected(frame, risk, fits[True])[rows]
        difference = np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)
        check(difference.max() < FLOAT32_DIFFERENCE, f"features differ from those of pandas by {difference.max():.1e}")
        share = frame["fraud"].mean()
        print(f"{len(frame):,} payments of {options.cards:,} cards, {share:.2%} of them frauds")
        print(f"features: {found.shape[1]} of {len(rows):,} later payments, as pandas computes them")

        def job(name: str, *, with_earlier: bool = True, killed_step: int | None = None) -> Job:
            width = later[with_earlier]["features"].shape[1]
            fitted = fits[with_earlier].to_json()
            return Job(folder=folder / name, url=url, plan=fitted, width=width, epochs=EPOCHS, killed_step=killed_step)

        whole, without = job("whole"), job("without", with_earlier=False)
        for one in (whole, without):
            check(in_process(train, one) == 0, "training failed")
        frauds, drawn = classes(url, fits[True])
        check(abs(frauds - drawn / 2) <= 1, f"{frauds} frauds of {drawn} drawn payments")
        print(f"an epoch: {drawn:,} payments, {frauds:,} of them frauds, in {steps} steps")

        killed = job("killed", killed_step=steps + steps // 2)
        check(in_process(train, killed) == -signal.SIGKILL, "the training was not killed")
        saved = killed.saved_steps()
        resumed = replace(killed, killed_step=None)
        check(in_process(train, resumed) == 0, "resuming failed")
        again = check_equal(resumed, whole) - saved
        print(
            f"killed within step {killed.killed_step}, resumed after step {saved}: "
            f"{again} steps with equal rows and losses"
        )

        by_chance = float(later[True]["fraud"].mean())
        with_earlier, alone = precision(whole, later[True]), precision(without, later[False])
        check(with_earlier > alone, "earlier payments did not help")
        print(f"frauds among the payments ranked highest: {with_earlier:.0%} with earlier payments,", end=" ")
        print(f"{alone:.0%} without, {by_chance:.0%} by chance")


def classes(url: str, fitted: fb.FittedPlan) -> tuple[int, int]:
    """Return the frauds of a balanced epoch, and all of its rows."""
    with fb.connect(url) as client:
        batches = client.stream("payments", fitted, batch_size=4096, shuffle=True, seed=7, balance="fraud")
        drawn = np.concatenate([np.asarray(batch["fraud"]) for batch in batches])
    return int(drawn.sum()), len(drawn)


if __name__ == "__main__":
    main()
