"""Tokens equal those of the Python package one by one, in every output form and order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from tokenizers import __version__ as version

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.tokenizers import DOCUMENTS, GROUP_ROWS, TOKENIZERS, every_character, ids

Lists = list[list[int]]


def lists_of(batches: Any, name: str = "o") -> Lists:
    return [row for batch in batches for row in batch.data.column(name).to_pylist()]


def plan(columns: fb.Columns, **more: Any) -> fb.Plan:
    return fb.Plan(outputs={"o": columns}, **more)


def padded(lists: Lists, n: int, value: int) -> Lists:
    return [[*row[:n], *[value] * (n - len(row))] for row in lists]


def test_the_package_has_the_version_of_the_crate():
    lock = (Path(__file__).parents[3] / "Cargo.lock").read_text()
    crate = lock.split('name = "tokenizers"\nversion = "')[1].split('"')[0]
    assert version.rpartition(".")[0] == crate.rpartition(".")[0]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("special", [True, False])
def test_every_token_of_every_model(client: fb.Client, files: dict[str, Path], name: str, special: bool):
    expected = ids(Tokenizer.from_file(str(files[name])), DOCUMENTS, add_special_tokens=special)
    text = fb.cols("text")
    named = text.tokenize(name, add_special_tokens=special)
    inline = text.tokenize(files[name], add_special_tokens=special)
    for columns in (named, inline):
        assert lists_of(client.stream("docs", plan(columns), batch_size=64)) == expected
    for dataset in ("large", "words"):
        assert lists_of(client.stream(dataset, plan(named), batch_size=640)) == expected


@pytest.mark.parametrize("name", ["gpt2", "gpt2-split", "llama3", "o200k", "bert", "t5", "words"])
def test_every_character(client: fb.Client, files: dict[str, Path], name: str):
    expected = ids(Tokenizer.from_file(str(files[name])), every_character())
    got = lists_of(client.stream("characters", plan(fb.cols("text").tokenize(name)), batch_size=64))
    assert len(got) == len(expected)
    differing = [row for row, (one, other) in enumerate(zip(got, expected, strict=True)) if one != other]
    assert differing == []


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_a_million_spaces_do_not_end_the_matches_of_a_pattern(client: fb.Client, files: dict[str, Path], name: str):
    """An engine with a limit of backtracks stops here, and has other tokens."""
    expected = ids(Tokenizer.from_file(str(files[name])), [" " * 1_200_000 + "end"])
    assert lists_of(client.stream("spaces", plan(fb.cols("text").tokenize(name)), batch_size=1)) == expected


@pytest.mark.parametrize("truncation", ["right", "left"])
@pytest.mark.parametrize("name", ["gpt2", "llama2", "bert", "t5"])
def test_truncation(client: fb.Client, files: dict[str, Path], name: str, truncation: Any):
    tokenizer = Tokenizer.from_file(str(files[name]))
    for length in (2, 3, 17, 1000):
        for special in (True, False):
            options: Any = {"max_length": length, "truncation": truncation, "add_special_tokens": special}
            columns = fb.cols("text").tokenize(name, **options)
            assert lists_of(client.stream("docs", plan(columns), batch_size=99)) == ids(tokenizer, DOCUMENTS, **options)


def test_the_forms_of_lists(client: fb.Client, files: dict[str, Path]):
    tokens = ids(Tokenizer.from_file(str(files["bert"])), DOCUMENTS)
    text = fb.cols("text").tokenize("bert")
    outputs = {
        "tokens": text.pad(16),
        "mask": text.attention_mask(16),
        "first": text.first_n(5),
        "filled": text.first_n(4, value=9),
        "all": text,
        "stored": text.as_stored(),
        "hot": fb.output(text.multi_hot(400), dtype="UINT8"),
        "hashed": text.ngram(2, buckets=50),
    }
    batches = list(client.stream("docs", fb.Plan(outputs=outputs), batch_size=50))
    schema = batches[0].data.schema
    assert schema.field("tokens").type.value_type == schema.field("mask").type.value_type == pa.int32()
    assert schema.field("all").type.value_type == schema.field("stored").type.value_type == pa.int32()

    def rows(name: str) -> Lists:
        return [row for batch in batches for row in np.asarray(batch[name]).tolist()]

    assert rows("tokens") == padded(tokens, 16, 0)
    assert rows("mask") == padded([[1] * len(row) for row in tokens], 16, 0)
    assert lists_of(batches, "first") == [row[:5] for row in tokens]
    assert rows("filled") == padded(tokens, 4, 9)
    assert lists_of(batches, "all") == lists_of(batches, "stored") == tokens
    assert rows("hot") == [[int(token in set(row)) for token in range(400)] for row in tokens]
    assert [len(row) for row in lists_of(batches, "hashed")] == [max(0, len(row) - 1) for row in tokens]


def test_attention_mask_is_that_of_the_package(client: fb.Client, files: dict[str, Path]):
    tokenizer = Tokenizer.from_file(str(files["t5"]))
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(length=12)
    text = fb.cols("text").tokenize("t5", max_length=12)
    batches = list(client.stream("docs", fb.Plan(outputs={"o": text.attention_mask(12)}), batch_size=50))
    got = np.concatenate([np.asarray(batch["o"]) for batch in batches])
    np.testing.assert_array_equal(got, [found.attention_mask for found in tokenizer.encode_batch(DOCUMENTS)])


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_document_once_on_every_number_of_ranks(client: fb.Client, files: dict[str, Path], world: int):
    expected = ids(Tokenizer.from_file(str(files["llama3"])), DOCUMENTS)
    columns = {"o": fb.cols("text").tokenize("llama3"), "n": fb.cols("n").as_stored()}
    found = []
    for rank in range(world):
        options: Any = {"batch_size": 16, "shuffle": True, "seed": 3, "lanes": 4, "world_size": world, "rank": rank}
        for batch in client.stream("docs", fb.Plan(outputs=columns), **options):
            found += zip(batch.data.column("n").to_pylist(), batch.data.column("o").to_pylist(), strict=True)
    assert sorted(found) == list(enumerate(expected))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
def test_resume_and_replay_have_the_bytes(client: fb.Client, shuffle: bool, is_packed: bool):
    text = fb.cols("text").tokenize("gpt2")
    form = fb.output(text, pack=fb.Pack(128, separator=0)) if is_packed else text
    used = fb.Plan(outputs={"o": form})
    options: Any = {"batch_size": 16, "shuffle": shuffle, "seed": 5}
    batches = list(client.stream("docs", used, **options))
    for step in (1, 5, len(batches) - 1):
        rest = list(client.stream("docs", used, start_position=step * 16, **options))
        assert all(one.data.equals(other.data) for one, other in zip(rest, batches[step:], strict=True))
    replayed = client.replay("docs", used, rank=0, step=3, **options)
    assert replayed.batch.data.equals(batches[3].data)


def test_packed_documents(client: fb.Client, files: dict[str, Path]):
    tokens = ids(Tokenizer.from_file(str(files["gpt2"])), DOCUMENTS)
    expected: list[int] = []
    for start in range(0, len(tokens), GROUP_ROWS):
        group = [token for row in tokens[start : start + GROUP_ROWS] for token in [*row, 0]]
        expected += [*group, *[1] * (-len(group) % 256)]
    pack = fb.Pack(256, separator=0, padding=1)
    used = fb.Plan(outputs={"o": fb.output(fb.cols("text").tokenize("gpt2"), pack=pack)})
    stream = client.stream("docs", used, batch_size=10)
    assert stream.info.rows == len(expected) // 256
    got = np.concatenate([np.asarray(batch["o"]) for batch in stream])
    assert got.ravel().tolist() == expected


def test_nulls(client: fb.Client):
    text = fb.cols("text")
    with pytest.raises(fb.InvalidRequest, match="row 1 is null; fill nulls with fill_null") as failed:
        lists_of(client.stream("nulls", plan(text.tokenize("bert")), batch_size=2))
    assert failed.value.reason == "INVALID_VALUE"
    filled = lists_of(client.stream("nulls", plan(text.fill_null(text="").tokenize("bert")), batch_size=2))
    assert filled[1] == [2, 3]
    assert len(filled) == 3
    kept = lists_of(client.stream("nulls", plan(text.tokenize("bert"), filter="text IS NOT NULL"), batch_size=2))
    assert kept == [filled[0], filled[2]]
    stored = lists_of(client.stream("nulls", plan(text.tokenize("bert").as_stored()), batch_size=2))
    assert stored == [filled[0], None, filled[2]]


def test_derived_columns_exchanges_and_random_access(client: fb.Client, files: dict[str, Path]):
    tokenizer = Tokenizer.from_file(str(files["bert"]))
    used = plan(fb.cols("loud").tokenize("bert").pad(8), derive={"loud": "concat('very ', text)"})
    expected = padded(ids(tokenizer, ["very " + text for text in DOCUMENTS]), 8, 0)
    got = [row for batch in client.stream("docs", used, batch_size=64) for row in np.asarray(batch["o"]).tolist()]
    assert got == expected
    with client.exchange(used) as exchange:
        answered = exchange.batch(pa.record_batch({"text": pa.array(DOCUMENTS[:40])}))
    assert answered["o"].to_pylist() == expected[:40]
    taken = client.take("docs", used, [300, 2, 2])
    assert np.asarray(taken["o"]).tolist() == [expected[300], expected[2], expected[2]]


def test_a_vocabulary_of_tokens_is_learned(client: fb.Client, files: dict[str, Path]):
    tokens = ids(Tokenizer.from_file(str(files["bert"])), DOCUMENTS)
    fitted = client.fit("docs", plan(fb.cols("text").tokenize("bert").vocab(min_count=100)))
    counted = np.unique(np.concatenate([np.unique(row) for row in tokens if row]), return_counts=True)
    assert len(counted[0]) > 0
    learned = fitted.plan.to_dict()["outputs"][0]["parts"][0]["ops"][1]["vocab"]["values"]["integers"]  # type: ignore[index]
    occurrences = np.bincount(np.concatenate([np.asarray(row, int) for row in tokens]))
    assert sorted(map(int, learned)) == [token for token, count in enumerate(occurrences) if count >= 100]


def test_a_digest_is_part_of_the_plan(client: fb.Client, files: dict[str, Path]):
    fitted = client.fit("docs", plan(fb.cols("text").tokenize("bert")))
    op = fitted.plan.to_dict()["outputs"][0]["parts"][0]["ops"][0]["tokenize"]  # type: ignore[index]
    assert op["tokenizer"] == "bert"
    assert len(op["digest"]) == 32
    again = fb.Plan.from_json(fitted.to_json())
    assert lists_of(client.stream("docs", again, batch_size=100)) == lists_of(
        client.stream("docs", plan(fb.cols("text").tokenize("bert")), batch_size=100)
    )


def test_another_number_of_threads_has_the_bytes(data: Path, files: dict[str, Path], client: fb.Client, tmp_path: Path):
    used = plan(fb.cols("text").tokenize("t5"))
    flags = ["--dataset", f"docs={data / 'docs'}", "--tokenizer", f"t5={files['t5']}", "--state", str(tmp_path)]
    server = Daemon(*LOOPBACK, *flags, "--cpu-threads", "7")
    try:
        with fb.connect(server.url) as other:
            assert lists_of(other.stream("docs", used, batch_size=70)) == lists_of(
                client.stream("docs", used, batch_size=70)
            )
    finally:
        server.stop()
