"""Wrong arguments fail at once, with the argument's name and what is allowed; what users print is readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

import forebay as fb
import forebay.torch
from forebay.torch import FlightDataset, FlightLoader
from harness.serving import Server

A = fb.cols("a")
PLAN = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
# No server listens there: nothing below may need one.
URL = "grpc://127.0.0.1:1"


def dataset(**options: Any) -> FlightDataset:
    return FlightDataset(URL, "tiny", PLAN, **options)


DATASETS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batchsize": 64}, TypeError, r"FlightDataset has no argument 'batchsize': did you mean batch_size\?"),
    ({"worldsize": 2}, TypeError, r"'worldsize': did you mean world_size\?"),
    ({"suffle": True}, TypeError, r"did you mean shuffle\?"),
    ({"fliter": "a > 1"}, TypeError, r"did you mean filter\?"),
    ({"quux": 1}, TypeError, "'quux': choose one of epochs, prefetch, .*remainder, .*filter, .*rank, world_size"),
    ({"snapshot": "x"}, TypeError, "no option snapshot"),
    ({"batch_size": "64"}, TypeError, "batch_size must be a whole number, not '64'"),
    ({"batch_size": True}, TypeError, "batch_size must be a whole number"),
    ({"batch_size": 2.5}, TypeError, "batch_size must be a whole number"),
    ({"batch_size": -3}, ValueError, "batch_size must be at least 1, not -3"),
    ({"batch_size": 2**64}, ValueError, "batch_size must be at most"),
    ({"remainder": "drop_last"}, ValueError, r"remainder must not be 'drop_last': did you mean drop\?"),
    ({"remainder": 5}, ValueError, "choose one of keep, drop, pad"),
    ({"shuffle": "yes"}, TypeError, "shuffle must be True or False, not 'yes'"),
    ({"with_row_ids": "no"}, TypeError, "with_row_ids must be True or False"),
    ({"seed": -1}, ValueError, "seed must be at least 0, not -1"),
    ({"epoch": -1}, ValueError, "epoch must be at least 0"),
    ({"window_rows": 0}, ValueError, "window_rows must be at least 1, not 0"),
    ({"lanes": -1}, ValueError, "lanes must be at least 0, not -1"),
    ({"rank": 0, "world_size": 0}, ValueError, "world_size must be at least 1, not 0"),
    ({"rank": 5, "world_size": 2}, ValueError, "rank 5 is not one of the 2 ranks, 0 to 1"),
    ({"rank": "0", "world_size": 2}, TypeError, "rank must be a whole number"),
    ({"prefetch": 0}, ValueError, "prefetch must be at least 1"),
    ({"device": "gpu"}, ValueError, 'device must be "cpu" or "cuda".*gpu'),
    ({"retry_seconds": -1}, ValueError, "retry_seconds must be 0 or more"),
]


@pytest.mark.parametrize(("options", "error", "words"), DATASETS)
def test_a_dataset_checks_its_options(options: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        dataset(**options)


def test_options_that_mean_the_same_are_accepted():
    data = dataset(batch_size=64.0, shuffle=1, remainder="DROP", seed=torch.tensor(3).item())
    assert "batch_size=64" in repr(data)
    assert "remainder='drop'" in repr(data)


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: FlightDataset(5, "tiny", PLAN), ValueError, "5 is not a server URL"),  # pyright: ignore
    (lambda: FlightDataset("127.0.0.1:8815", "tiny", PLAN), ValueError, "grpc://127.0.0.1:8815"),
    (lambda: FlightDataset([], "tiny", PLAN), ValueError, "url is empty"),
    (lambda: FlightDataset(URL, "", PLAN), TypeError, "dataset must be the name"),
    (lambda: FlightDataset(URL, "tiny", {"a": 1}), TypeError, "plan must be a Plan"),  # pyright: ignore
    (lambda: fb.connect(URL, retry_seconds="1"), TypeError, "retry_seconds must be a number"),  # pyright: ignore
    (lambda: fb.StreamOptions(remainder="kepe"), ValueError, r"did you mean keep\?"),  # pyright: ignore
    (lambda: fb.StreamOptions(snapshot=5), TypeError, "snapshot must be text"),  # pyright: ignore
    (lambda: A.clip(min="a"), TypeError, "clip: min must be a number, not 'a'"),  # pyright: ignore
    (lambda: A.vocab(min_count=-1), ValueError, "vocab: min_count must be from 0"),
    (lambda: A.hash_bucket(0), ValueError, "hash_bucket: buckets must be from 1"),
    (lambda: A.fill_null("avg"), ValueError, '\'avg\'.*"mean", "median", "mode"'),
    (lambda: fb.output(A, dtype="float"), ValueError, r"dtype 'float' is not one of.*did you mean FLOAT32\?"),
    (lambda: fb.output(A, dtype="flaot32"), ValueError, r"did you mean FLOAT32\?"),
    (lambda: fb.output(A, dtype=torch.float16), ValueError, r"did you mean FLOAT16\?"),  # pyright: ignore
    (lambda: fb.output(A, dtype="long"), ValueError, r"did you mean INT64\?"),
    (lambda: fb.Plan(outputs={}), TypeError, "outputs must map names"),
    (lambda: fb.label(""), TypeError, "label: column"),
    (lambda: fb.label("y", classes="ab"), TypeError, "label: classes must be a list"),
    (lambda: fb.label("y", classes=[]), ValueError, "one or more distinct"),
    (lambda: fb.label("y", classes=["a", "a"]), ValueError, "one or more distinct"),
    (lambda: A.exclude("b"), ValueError, "exclude follows a selection"),
    (lambda: fb.cols.numeric().log1p().exclude("b"), ValueError, "before any op"),
    (lambda: fb.cols.all().exclude(), TypeError, "requires a column name"),
    (lambda: fb.cols.matching("("), ValueError, "not a regular expression"),
    (lambda: fb.cols.of_type(), TypeError, "requires a type"),
    (lambda: fb.cols.of_type(5), TypeError, "of_type expects Arrow types"),  # pyright: ignore
]


LOADERS: list[tuple[Callable[[FlightDataset], Any], type[Exception], str]] = [
    (lambda d: FlightLoader(d, batch_size=8), ValueError, "no batch_size: pass it to the FlightDataset"),
    (lambda d: FlightLoader(d, shuffle=True), ValueError, "no shuffle: pass it to the FlightDataset"),
    (lambda d: FlightLoader(d, sampler=[0]), ValueError, "no sampler: a FlightDataset reads each rank's own rows"),
    (lambda d: FlightLoader(d, drop_last=True), ValueError, 'no drop_last: pass remainder="drop"'),
    # Refused as it is made: the DataLoader that gets it does not say why.
    (
        lambda d: DistributedSampler(d, num_replicas=2, rank=0),
        TypeError,
        r"no DistributedSampler: use DataLoader\(data",
    ),
]


@pytest.mark.parametrize(("wrong", "error", "words"), LOADERS)
def test_a_loader_that_would_shard_shuffle_or_batch_again(
    wrong: Callable[[FlightDataset], Any], error: type[Exception], words: str
):
    with pytest.raises(error, match=words):
        wrong(dataset())


@pytest.mark.parametrize(("wrong", "error", "words"), WRONG)
def test_a_call_checks_its_arguments(wrong: Callable[[], Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        wrong()


CALLS: list[tuple[Callable[[fb.Client], Any], type[Exception], str]] = [
    (lambda c: c.stream("tiny", PLAN, world_sze=2), TypeError, r"stream has no.*did you mean world_size\?"),  # pyright: ignore
    (lambda c: c.stream("tiny", PLAN, rank=2), ValueError, "rank 2 is not one of the 1 ranks"),
    (lambda c: c.stream("tiny", PLAN, start_position=-1), ValueError, "start_position must be at least 0"),
    (lambda c: c.stream("tiny", None), TypeError, "plan must be a Plan"),  # pyright: ignore
    (lambda c: c.replay("tiny", PLAN, step=-1), ValueError, "step must be at least 0"),
    (lambda c: c.explain("tiny", PLAN, row=3), TypeError, r"did you mean rows\?"),  # pyright: ignore
    (lambda c: c.explain("tiny", PLAN, rows=-3), ValueError, "rows must be at least 0"),
]


@pytest.mark.parametrize(("call", "error", "words"), CALLS)
def test_a_client_checks_its_arguments(
    client: fb.Client, call: Callable[[fb.Client], Any], error: type[Exception], words: str
):
    with pytest.raises(error, match=words):
        call(client)


def test_what_users_print_is_readable(server: Server, client: fb.Client):
    plan = fb.Plan(
        filter="id > 3",
        derive={"low": "small < 0"},
        outputs={"d": [fb.cols("x", "unit").standardize(), fb.cols("low")], "w": fb.cols("word").vocab()},
    )
    assert repr(plan).splitlines() == [
        "Plan, to be fitted:",
        "  filter = 'id > 3'",
        "  derive['low'] = small < 0",
        "  d = cols('x', 'unit').standardize() | cols('low')",
        "  w = cols('word').vocab()",
    ]
    fitted = client.fit("tiny", plan, progress=False)
    assert repr(fitted).startswith(f"FittedPlan {fitted.plan_id} of Plan:\n")
    assert "w: INT32 = cols('word').vocab(values=['" in repr(fitted)
    assert repr(fb.cols("a").vocab(values=list("abcdefgh"))) == "cols('a').vocab(values=['a', 'b', 'c', 'd', … 4 more])"
    stream = client.stream("tiny", fitted, batch_size=10)
    batch = next(stream)
    assert repr(batch) == "Batch(<epoch 0, step 0, position 0, 10 rows>, d float[10, 3], w int32[10])"
    assert repr(stream) == "Stream(rank 0 of 1, 10 steps of 10 rows, at epoch 0, position 10, d, w)"
    stream.close()
    data = FlightDataset(server.url, "tiny", fitted, batch_size=10, seed=4)
    assert repr(data).startswith(f"FlightDataset({server.url!r}, 'tiny', ")
    assert "batch_size=10" in repr(data)
    assert "seed=4" in repr(data)
    assert repr(client) == f"Client({server.url!r})"
    assert repr(client.explain("tiny", fitted)).startswith("96 rows in")
    assert repr(client.replay("tiny", fitted, step=0)).startswith("Replay(<epoch 0, step 0")
    assert "96 rows" in repr(client.replay("tiny", fitted, step=0))
    with client.exchange(fitted) as exchange:
        assert server.url in repr(exchange)
    batches = iter(data)
    next(batches)
    assert repr(batches) == "FlightBatches(epoch 0, position 10, 1 batches returned)"
    assert repr(data.epochs(3)) == "Epochs(epoch 0 next, 3 in all)"
    assert repr(FlightLoader(data)) == f"FlightLoader({data!r})"
    assert repr(client.describe("tiny")).startswith("tiny: 100 rows, 6 columns, snapshot ")
    assert repr(client.describe("tiny")["word"]).startswith("column: word\ntype: string\n")
    objects = [fb.Credentials(token="geheim"), fb.StreamOptions(), stream.info, stream.cursor(), client.datasets()]
    objects += [client.plans(), fb.cols, fb.cols.numeric(), fb.Ragged(np.arange(3), np.array([0, 3]))]
    for printed in map(repr, objects):
        assert " object at 0x" not in printed
        assert "geheim" not in printed


def public_classes() -> list[type]:
    named = [getattr(module, name) for module in (fb, forebay.torch) for name in module.__all__]
    return [one for one in named if isinstance(one, type)]


@pytest.mark.parametrize("public", public_classes())
def test_every_public_class_has_a_repr(public: type):
    assert public.__repr__ is not object.__repr__
