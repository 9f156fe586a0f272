"""What a fitted plan says about what it learned."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from harness.serving import Serve

PLAN = fb.Plan(
    outputs={
        "dense": fb.cols("x", "unit").fill_null("mean").standardize().clip(-3, 3),
        "cats": [
            fb.cols("word").vocab(oov_buckets=2),
            fb.cols("small").vocab(max_size=4),
            fb.cols("x").bucketize(quantiles=4),
            fb.cols("word").cross("small", buckets=50),
            fb.cols("unit").hash_bucket(9),
            fb.cols("small").positive_mod(5),
        ],
        "label": fb.label("small", classes=list(range(-5, 5))),
        "raw": fb.cols("word").as_stored(),
    }
)


@pytest.fixture
def fitted(client: fb.Client) -> fb.FittedPlan:
    return client.fit("tiny", PLAN, progress=False)


def test_describe_lists_what_each_op_learned(fitted: fb.FittedPlan, tiny: pa.Table):
    lines = fitted.describe().splitlines()
    assert lines[0] == f"plan {fitted.plan_id}"
    assert lines[1].split() == ["output", "column", "op", "parameters"]
    x = tiny["x"].to_numpy()
    (standardize,) = [line for line in lines if line.split()[1:3] == ["x", "standardize"]]
    assert standardize.split(maxsplit=3)[3] == f"mean={x.mean():.6g}, std={x.std():.6g}"
    (vocab,) = [line for line in lines if line.split()[1:3] == ["word", "vocab"]]
    assert "3 values ['" in vocab
    assert vocab.endswith("oov_buckets=2")
    # An interactive session shows lines too.
    assert repr(fitted.describe()) == fitted.describe()


def test_a_vocabulary_lists_the_value_of_each_index(client: fb.Client, fitted: fb.FittedPlan, tiny: pa.Table):
    words = [word for word in tiny["word"].to_pylist() if word is not None]
    vocab = fitted.vocab("cats", "word")
    assert vocab[0] is None
    counts = Counter(words)
    assert vocab[1:] == sorted(counts, key=lambda word: (-counts[word], word))
    (batch,) = client.stream("tiny", fitted)
    assert [vocab[i] for i in batch["cats"][:, 0]] == tiny["word"].to_pylist()
    small = fitted.vocab("cats", "small")
    assert len(small) == 5
    known = [value if value in small else None for value in tiny["small"].to_pylist()]
    assert [small[i] for i in batch["cats"][:, 1]] == known


def test_a_plan_of_a_file_is_sent_as_it_is(client: fb.Client, serve: Serve, tiny_folder: Path, fitted: fb.FittedPlan):
    # Another server, which does not know the id.
    other = serve({"tiny": tiny_folder})
    read = fb.FittedPlan.from_json(fitted.to_json())
    assert json.loads(read.plan_text()) == json.loads(fitted.plan_text()) == fitted.plan.to_dict()
    with fb.connect(other.url) as connected:
        for plan in (read, fitted, read.with_filter("x > 0")):
            batches = list(connected.stream("tiny", plan, batch_size=7))
            expected = list(client.stream("tiny", plan, batch_size=7))
            assert [batch["cats"].tolist() for batch in batches] == [batch["cats"].tolist() for batch in expected]
            assert batches


def test_values_of_a_vocabulary_keep_their_type():
    plan = fb.Plan(
        outputs={
            "o": [
                fb.cols("d").vocab(values=[Decimal("1.50"), Decimal("2")]),
                fb.cols("f").vocab(values=[0.5]),
                fb.cols("i").vocab(values=[2**63 + 1]),
            ]
        }
    )
    fitted = fb.FittedPlan("0" * 32, plan)
    assert fitted.vocab("o", "d") == [None, Decimal("1.50"), Decimal("2")]
    assert fitted.vocab("o", "f") == [None, 0.5]
    assert fitted.vocab("o", "i") == [None, 2**63 + 1]


def test_unknown_vocabularies_are_errors_with_near_names(fitted: fb.FittedPlan):
    for output, column, words in (
        ("cat", "word", r"no output 'cat': did you mean cats\?"),
        ("cats", "wrd", r"column 'wrd': did you mean word\?"),
        ("cats", "unit", "column 'unit': choose one of word, small"),
        ("dense", "x", "none of its columns has one"),
    ):
        with pytest.raises(KeyError, match=words):
            fitted.vocab(output, column)


def test_cardinalities_are_the_sizes_of_embeddings(client: fb.Client, fitted: fb.FittedPlan):
    assert fitted.cardinalities == {
        "cats": {"word": 6, "small": 5, "x": 4, "word x small": 50, "unit": 9, "small.positive_mod": 5},
        "label": {"small": 10},
    }
    (batch,) = client.stream("tiny", fitted)
    cats = torch.from_numpy(batch["cats"].astype(np.int64))
    sizes = fitted.cardinalities["cats"].values()
    embeddings = [torch.nn.Embedding(size, 2) for size in sizes]
    assert [embed(column).shape for embed, column in zip(embeddings, cats.unbind(1), strict=True)] == [(100, 2)] * 6


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        (fb.cols("a").vocab(values=["x"]), 2),
        (fb.cols("a").vocab(values=["x"], oov_buckets=3).fill_null(9), 10),
        (fb.cols("a").hash_bucket(7).fill_null(3), 7),
        (fb.cols("a").hash_bucket(7).pad(3, value=7), 8),
        (fb.cols("a").ngram(2, buckets=11).first_n(4, value=0), 11),
        (fb.cols("a").bucketize([0.0, 1.0]), 3),
        (fb.cols("a").sigrid_hash(max_value=12), 12),
        (fb.cols("a").map_id({5: 1, 6: 8}), 9),
        (fb.cols("a").map_id({5: 1}, default=20), 21),
        (fb.cols("a").vocab(values=["x"]).one_hot(), None),
        (fb.cols("a").standardize(mean=0.0, std=1.0), None),
    ],
)
def test_cardinalities_follow_from_the_ops(columns: fb.Columns, count: int | None):
    found = fb.FittedPlan("0" * 32, fb.Plan(outputs={"o": columns})).cardinalities
    assert found == ({} if count is None else {"o": {"a": count}})


def test_columns_of_a_lookup_have_names_of_their_own():
    plan = fb.Plan(outputs={"o": fb.cols("a").lookup("t", "k", ["u", "v"]).hash_bucket(5)})
    assert fb.FittedPlan("0" * 32, plan).cardinalities == {"o": {"a.u": 5, "a.v": 5}}


def test_the_frame_has_a_row_per_op(fitted: fb.FittedPlan, tiny: pa.Table):
    frame = fitted.to_frame()
    assert list(frame.columns[:3]) == ["output", "column", "op"]
    chosen: Any = frame[(frame["column"] == "unit") & (frame["op"] == "standardize")]
    assert chosen["output"].tolist() == ["dense"]
    assert chosen["mean"].tolist() == pytest.approx([tiny["unit"].to_numpy().astype(np.float64).mean()])
    words: Any = frame[(frame["column"] == "word") & (frame["op"] == "vocab")]
    assert [None, *words["values"].iloc[0]] == fitted.vocab("cats", "word")


def test_the_frame_without_pandas_is_an_error_with_a_remedy(fitted: fb.FittedPlan, monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def importing(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'")
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ImportError, match=r"pip install pandas, or use describe\(\)"):
        fitted.to_frame()


def test_outputs_of_tokens_have_no_cardinality():
    outputs = {
        "tokens": fb.cols("text").tokenize("gpt2").pad(8),
        "mask": fb.cols("text").tokenize("gpt2").attention_mask(8),
        "cats": fb.cols("word").hash_bucket(10).pad(3, value=12),
    }
    assert fb.FittedPlan("0" * 32, fb.Plan(outputs=outputs)).cardinalities == {"cats": {"word": 13}}
