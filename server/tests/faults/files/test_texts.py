"""Values that expand when decoded: within the memory limit, or rejected naming the flag."""

from __future__ import annotations

import pyarrow as pa
import pytest

from harness.damaged_files import MEMORY_LIMIT_BYTES, Patient, as_stored, raw, stream, through
from harness.parquet.surgery import Parquet, dissect

ROWS = 20_000
LONG = "x" * 1_000_000
# What a writer may say of its texts' lengths, and need not.
SIZE_STATISTICS = 16


def silent(file: Parquet, column: str = "word") -> bytes:
    """The file of a writer that does not say how long its texts are."""
    for group in range(len(file.groups)):
        file.chunk(group, column).remove(SIZE_STATISTICS)
    return file.build()


def refused(patient: Patient, data: bytes, *ways: str) -> None:
    patient.put(data)
    with patient.aftermath() as client:
        for way, (found, text) in patient.ends(client, "word", ways=ways).items():
            assert found == "RESOURCE_EXHAUSTED", f"{way}: {found}: {text[:300]}"
            for word in ("a.parquet", "row group 0", "--memory-limit-bytes"):
                assert word in text, f"{way}: {word!r} is not in: {text[:400]}"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_long_texts_stored_once_in_a_dictionary(patient: Patient, version: str, codec: str):
    """Twenty gigabytes of text in a megabyte, or in a hundred bytes."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array([LONG]))
    options = {"dictionary_pagesize_limit": 1 << 24, "data_page_version": version, "compression": codec}
    # Without a schema of Arrow's the column is one of texts, not of keys.
    refused(patient, silent(dissect(pa.table({"word": words}), options, store_schema=False)), "raw")
    # A condition is decided once for the one value.
    with patient.aftermath() as client:
        assert {found for found, _ in patient.ends(client, "word", ways=("shuffled", "filtered")).values()} == {"OK"}


def test_texts_of_many_columns_exceed_the_limit_together(patient: Patient):
    words = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * 4000]))
    file = dissect(pa.table(dict.fromkeys(["word", *(f"c{n}" for n in range(40))], words)), store_schema=False)
    for column in ("word", *(f"c{n}" for n in range(40))):
        silent(file, column)
    refused(patient, file.build(), "raw")
    # Each of them by itself is no more than many texts are.
    with patient.aftermath() as client:
        assert set(stream(client, "ill", as_stored("word"), batch_size=100)["out"].to_pylist()) == {"x" * 4000}


@pytest.mark.parametrize("limit", [1 << 20, 1 << 24], ids=["given up for plain pages", "kept"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_reads_a_long_text_among_short_ones(patient: Patient, version: str, limit: int):
    """It comes once, so it takes no more than it is, however long the dictionary makes the others look."""
    words = [LONG, None, *(f"w{n // 3}" for n in range(ROWS))]
    table = pa.table({"word": words, "list": [[word, "w1"] for word in words]})
    options = {"dictionary_pagesize_limit": limit, "data_page_version": version}
    patient.serves(silent(dissect(table, options)), table)


def test_prefixes_shared_by_delta_encoding(patient: Patient):
    table = pa.table({"word": [LONG + str(n) for n in range(500)]})
    options = {"use_dictionary": False, "column_encoding": {"word": "DELTA_BYTE_ARRAY"}}
    refused(patient, silent(dissect(table, **options)), "raw", "as stored", "shuffled", "filtered")


def test_reads_shared_prefixes_of_ordinary_length(patient: Patient):
    words = [f"https://example.org/{n // 100:06}/{n % 100}" for n in range(ROWS)]
    table = pa.table({"word": [None if n % 7 == 0 else word for n, word in enumerate(words)]})
    options = {"use_dictionary": False, "column_encoding": {"word": "DELTA_BYTE_ARRAY"}}
    patient.serves(dissect(table, **options).build(), table)


def test_list_of_one_long_run_of_equal_values(patient: Patient):
    count = 50_000_000
    assert 8 * count > MEMORY_LIMIT_BYTES
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.repeat(pa.scalar(0, pa.int64()), count))
    refused(patient, dissect(pa.table({"word": lists})).build(), "raw")


def test_reads_long_texts_that_stay_dictionary_encoded(patient: Patient):
    """Keys are what is streamed, and computed with: the text is there once."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array([LONG]))
    file = dissect(pa.table({"word": words}), dictionary_pagesize_limit=1 << 24, compression="zstd")
    patient.put(silent(file))
    with patient.aftermath() as client:
        assert raw(client, "ill")["word"].combine_chunks().dictionary.to_pylist() == [LONG]
        assert stream(client, "ill", as_stored("word"), batch_size=100)["out"].chunk(0)[0].as_py() == LONG
        plan = through("word", {"hash_bucket": {"buckets": 9}})
        assert len(set(stream(client, "ill", plan, batch_size=100)["out"].to_pylist())) == 1
