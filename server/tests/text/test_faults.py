"""Texts and tokenizers that cannot be used: errors name the cause, the row and what to do; other streams go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, run_to_end
from harness.metrics import scrape
from harness.tokenizers import ids, write


def plan(columns: fb.Columns) -> fb.Plan:
    return fb.Plan(outputs={"o": columns})


def read(client: fb.Client, dataset: str, columns: fb.Columns) -> list[list[int]]:
    batches = client.stream(dataset, plan(columns), batch_size=10)
    return [row for batch in batches for row in batch.data.column("o").to_pylist()]


TEXT = fb.cols("text")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Iterator[Daemon]:
    """A server with little memory, and datasets with faults."""
    folder = tmp_path_factory.mktemp("faults")
    words = ["some words"] * 20
    write(folder / "good" / "a.parquet", words)
    write(folder / "huge" / "a.parquet", [*words[:7], "word " * 20_000_000, *words[7:]])
    write(folder / "long" / "a.parquet", [*words[:7], "word " * 20_000, *words[7:]])
    table = pa.table({"text": pa.array([b"bytes", b"\xff\xfe"], pa.binary()), "n": [1, 2]})
    (folder / "binary").mkdir()
    pq.write_table(table, folder / "binary" / "a.parquet")
    invalid = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\4\0\0\0\6\0\0\0"), pa.py_buffer(b"good\xff\xfe"))
    (folder / "invalid").mkdir()
    pq.write_table(pa.table({"text": invalid}), folder / "invalid" / "a.parquet", use_dictionary=False)
    flags = ["--state", str(tmp_path_factory.mktemp("state")), "--memory-limit-bytes", "1GiB"]
    for name in ("good", "huge", "long", "binary", "invalid"):
        flags += ["--dataset", f"{name}={folder / name}"]
    server = Daemon(*LOOPBACK, *flags, "--tokenizer", f"gpt2={files['gpt2']}", "--tokenizer", f"bert={files['bert']}")
    yield server
    server.stop()


@pytest.fixture
def faulty(small: Daemon, files: dict[str, Path]) -> Iterator[fb.Client]:
    with fb.connect(small.url, retry_seconds=0) as connected:
        yield connected
        # The fault leaves no memory behind, and other streams are not affected.
        expected = ids(Tokenizer.from_file(str(files["bert"])), ["some words"] * 20)
        assert read(connected, "good", TEXT.tokenize("bert")) == expected
    assert scrape(small).value("forebay_memory_reserved_bytes") == 0


def test_a_document_beyond_the_memory_is_refused_with_its_row(faulty: fb.Client):
    with pytest.raises(fb.ForebayError, match="row 7: tokenizing 100000000 bytes of text needs") as failed:
        read(faulty, "huge", TEXT.tokenize("gpt2"))
    assert failed.value.reason == "LIMIT"
    assert 'a.parquet", row group 0' in str(failed.value)
    assert "--memory-limit-bytes, or split the text" in str(failed.value)


def test_a_long_document_within_the_memory_has_its_tokens(faulty: fb.Client, files: dict[str, Path]):
    expected = ids(Tokenizer.from_file(str(files["gpt2"])), ["word " * 20_000])
    assert read(faulty, "long", TEXT.tokenize("gpt2"))[7:8] == expected


def test_a_document_beyond_max_length_is_refused_with_its_row(faulty: fb.Client):
    with pytest.raises(fb.InvalidRequest, match="row 7: the text has [0-9]+ tokens, and max_length is 30") as failed:
        read(faulty, "long", TEXT.tokenize("gpt2", max_length=30, truncation="error"))
    assert failed.value.reason == "INVALID_VALUE"
    assert 'a.parquet", row group 0' in str(failed.value)


def test_bytes_are_not_text(faulty: fb.Client):
    with pytest.raises(fb.InvalidRequest, match=r'column "text" is Binary: bytes are not text .* arrow_cast') as failed:
        read(faulty, "binary", TEXT.tokenize("gpt2"))
    assert failed.value.reason == "INVALID_REQUEST"
    decoded = fb.Plan(outputs={"o": fb.cols("t").tokenize("gpt2")}, derive={"t": "arrow_cast(text, 'Utf8')"})
    with pytest.raises(fb.ForebayError, match="(?i)utf-?8"):
        list(faulty.stream("binary", decoded, batch_size=1))
    with pytest.raises(fb.InvalidRequest, match='column "n" is Int64: derive a column of text'):
        read(faulty, "binary", fb.cols("n").tokenize("gpt2"))


def test_text_that_is_not_utf8_is_refused_with_file_and_row_group(faulty: fb.Client):
    with pytest.raises(fb.ForebayError, match="(?i)utf-?8") as failed:
        read(faulty, "invalid", TEXT.tokenize("gpt2"))
    assert failed.value.reason == "CORRUPT_DATA"
    assert "a.parquet" in str(failed.value)


def changed(files: dict[str, Path], change: Any, name: str = "bert") -> str:
    content = json.loads(files[name].read_text())
    change(content)
    return json.dumps(content)


def damaged(files: dict[str, Path]) -> list[tuple[str, str]]:
    """Contents that are not tokenizers, each with words of its error."""
    whole = files["bert"].read_text()
    return [
        (whole[: len(whole) // 2], "not a tokenizer.json"),
        ("{}", "not a tokenizer.json"),
        (changed(files, lambda c: c["model"].update(type="Telepathy")), "not a tokenizer.json"),
        (changed(files, lambda c: c["model"].update(vocab=3)), "not a tokenizer.json"),
        (changed(files, lambda c: c["model"].update(dropout=0.5), "gpt2"), "its dropout makes tokens random"),
        (changed(files, lambda c: c["model"]["vocab"].update(far=2**31)), '"far" has the id 2147483648'),
        (changed(files, lambda c: c["model"]["vocab"].update(far=2**32)), "not a tokenizer.json"),
        (changed(files, lambda c: c["model"]["vocab"].update(far=-1)), "not a tokenizer.json"),
    ]


def test_a_tokenizer_of_a_plan_that_cannot_be_used_is_refused(faulty: fb.Client, files: dict[str, Path]):
    for content, words in damaged(files):
        with pytest.raises(fb.InvalidRequest, match=words) as failed:
            read(faulty, "good", TEXT.tokenize(content))
        assert "tokenize.json" in str(failed.value)


def test_a_file_that_cannot_be_used_stops_the_start(data: Path, files: dict[str, Path], tmp_path: Path):
    path = tmp_path / "t.json"
    cases = [*damaged(files), ("", "EOF")]
    for content, words in cases:
        path.write_text(content)
        ended = run_to_end("--dataset", f"d={data / 'docs'}", "--tokenizer", f"t={path}", *LOOPBACK)
        assert ended.returncode != 0
        assert words.replace('"', "") in ended.stderr.replace("\\", "").replace('"', ""), ended.stderr
        assert "--tokenizer" in ended.stderr
    path.write_bytes(b"\xff\xfe{}")
    for value, words in [
        (f"t={path}", "not a tokenizer.json"),
        (f"t={tmp_path / 'missing.json'}", "No such file"),
        (f"t={tmp_path}", "directory"),
        ("t", "expected NAME=FILE"),
        (f"a/b={path}", "without slashes"),
    ]:
        ended = run_to_end("--dataset", f"d={data / 'docs'}", "--tokenizer", value, *LOOPBACK)
        assert ended.returncode != 0
        assert words in ended.stderr, ended.stderr
    twice = ["--tokenizer", f"t={files['bert']}", "--tokenizer", f"t={files['gpt2']}"]
    ended = run_to_end("--dataset", f"d={data / 'docs'}", *twice, *LOOPBACK)
    assert "set twice" in ended.stderr


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([{"tokenize": {"tokenizer": "gpt3"}}], 'no tokenizer "gpt3".*gpt2.*--tokenizer NAME=FILE'),
        ([{"tokenize": {}}], "set one of tokenizer"),
        ([{"tokenize": {"tokenizer": "bert", "max_length": 1}}], "max_length is 1, .* adds 2 special .* at least 2"),
        ([{"tokenize": {"tokenizer": "bert", "truncation": "LEFT"}}], "max_length: missing"),
        ([{"first_n": {"n": 1}}, {"tokenize": {"tokenizer": "bert"}}], "must be the first op"),
        ([{"tokenize": {"tokenizer": "bert"}}, {"log1p": {}}, {"attention_mask": {"n": 2}}], "lists of integers"),
        ([{"tokenize": {"tokenizer": "bert"}}, {"attention_mask": {"n": 0}}], "mask.n: must be from 1 to 65536"),
    ],
)
def test_invalid_uses_are_refused_with_the_field(faulty: fb.Client, ops: list[dict[str, Any]], words: str):
    used = fb.Plan.from_dict({"outputs": [{"name": "o", "parts": [{"columns": ["text"], "ops": ops}]}]})
    with pytest.raises(fb.InvalidRequest, match=words) as failed:
        list(faulty.stream("good", used, batch_size=10))
    assert failed.value.reason == "INVALID_REQUEST"
