"""Packed outputs: every token once, in sequences that are the same on every rank and after every resume."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server, info

LENGTH, SEPARATOR, PADDING = 64, 7, 5
GROUP_ROWS = (150, 1, 331, 40, 89)
COLUMNS = ("tokens", "document_ids", "position_ids")

Tokens = list[int]
Sequences = tuple[tuple[int, ...], ...]


def made_documents(rows: int, seed: int = 0) -> list[Tokens]:
    """Documents of 0 to 299 tokens; those of one row group are all empty."""
    random = np.random.default_rng(seed)
    found = [random.integers(10, 2**31 - 1, random.integers(0, 300)).tolist() for _ in range(rows)]
    start = sum(GROUP_ROWS[:3])
    found[start : start + GROUP_ROWS[3]] = [[]] * GROUP_ROWS[3]
    return found


DOCUMENTS = made_documents(sum(GROUP_ROWS))


def write(path: Path, documents: Sequence[Tokens | None], kind: pa.DataType | None = None) -> None:
    table = pa.table(
        {
            "tokens": pa.array(documents, kind or pa.list_(pa.int32())),
            "n": np.arange(len(documents)),
            "half": [float(row) if row % 2 else None for row in range(len(documents))],
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, table.schema) as writer:
        start = 0
        for rows in GROUP_ROWS:
            writer.write_table(table.slice(start, rows), row_group_size=rows)
            start += rows


def packed(
    groups: Sequence[Sequence[tuple[int, Tokens]]], length: int, separator: int | None, padding: int
) -> dict[str, list[Tokens]]:
    """The sequences of row groups of numbered documents, one token at a time."""
    columns: dict[str, list[Tokens]] = {name: [] for name in (*COLUMNS, "__row_id")}
    for group in groups:
        current: list[tuple[int, int, int, int]] = []

        def close(current: list[tuple[int, int, int, int]]) -> None:
            rest = [(padding, -1, 0, 0)] * (length - len(current))
            for place, name in enumerate(COLUMNS):
                columns[name].append([entry[place] for entry in (*current, *rest)])
            columns["__row_id"].append([current[0][3]])
            current.clear()

        for row, document in group:
            number, start = (current[-1][1] + 1 if current else 0), len(current)
            for token in [*document, *([] if separator is None else [separator])]:
                if len(current) == length:
                    close(current)
                    number, start = 0, 0
                current.append((token, number, len(current) - start, row))
            if len(current) == length:
                close(current)
        if current:
            close(current)
    return columns


def groups_of(documents: Sequence[Tokens], keep: Any = None) -> list[list[tuple[int, Tokens]]]:
    starts = np.cumsum((0, *GROUP_ROWS)).tolist()
    found = []
    for start, end in itertools.pairwise(starts):
        found.append([(row, documents[row]) for row in range(start, end) if keep is None or keep(row)])
    return found


def plan_of(length: int = LENGTH, separator: int | None = SEPARATOR, **more: Any) -> fb.Plan:
    pack = fb.Pack(length, separator=separator, padding=PADDING)
    return fb.Plan(outputs={"tokens": fb.output(fb.cols("tokens"), pack=pack)}, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("packed")
    write(folder / "docs" / "a.parquet", DOCUMENTS)
    write(folder / "more" / "a.parquet", made_documents(sum(GROUP_ROWS), seed=1))
    write(folder / "nulls" / "a.parquet", [*DOCUMENTS[:-1], None])
    large = [[token + 2**40 for token in document] for document in DOCUMENTS]
    write(folder / "large" / "a.parquet", large, pa.large_list(pa.int64()))
    server = Server({name: folder / name for name in ("docs", "more", "nulls", "large")})
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as client:
        yield client


def rows_of(batches: Any, columns: Sequence[str] = COLUMNS) -> list[tuple[Any, ...]]:
    """The rows of batches, each with the values of all columns."""
    found: list[tuple[Any, ...]] = []
    for batch in batches:
        # Sequences of one token are numbers.
        arrays = {name: np.asarray(batch[name]) for name in columns}
        values = [(a.reshape(len(a), -1) if name in COLUMNS else a).tolist() for name, a in arrays.items()]
        found += [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in zip(*values, strict=True)]
    return found


def expected_rows(expected: dict[str, list[Tokens]]) -> list[tuple[Any, ...]]:
    return [tuple(map(tuple, row)) for row in zip(*(expected[name] for name in COLUMNS), strict=True)]


@pytest.mark.parametrize("length", [1, 2, 64, 1000, 65_536])
@pytest.mark.parametrize("separator", [None, SEPARATOR])
def test_sequences_in_file_order(client: fb.Client, length: int, separator: int | None):
    got = rows_of(client.stream("docs", plan_of(length, separator), batch_size=37 if length > 2 else 4096))
    assert got == expected_rows(packed(groups_of(DOCUMENTS), length, separator, PADDING))


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 50, 100_000])
def test_every_sequence_once_in_shuffled_order(client: fb.Client, world: int, window: int):
    expected = sorted(expected_rows(packed(groups_of(DOCUMENTS), LENGTH, SEPARATOR, PADDING)))
    options: dict[str, Any] = {
        "batch_size": 16,
        "shuffle": True,
        "lanes": 4,
        "world_size": world,
        "window_rows": window,
    }
    epochs = []
    for epoch in (0, 1):
        got = [
            row
            for rank in range(world)
            for row in rows_of(client.stream("docs", plan_of(), rank=rank, epoch=epoch, seed=11, **options))
        ]
        assert sorted(got) == expected
        epochs.append(got)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("shuffle", [False, True])
def test_resume_and_world_size_keep_the_bytes(client: fb.Client, shuffle: bool):
    options: dict[str, Any] = {"batch_size": 16, "shuffle": shuffle, "seed": 5}
    stream = client.stream("docs", plan_of(), **options)
    whole = rows_of(stream)
    for step in (1, 7, len(whole) // 16):
        rest = client.stream("docs", plan_of(), start_position=step * 16, **options)
        assert rows_of(rest) == whole[step * 16 :]
    if shuffle:
        # Global step s has the same rows at every world size that divides the lanes.
        ranks = [
            [set(rows_of([batch])) for batch in client.stream("docs", plan_of(), rank=rank, world_size=2, **options)]
            for rank in (0, 1)
        ]
        for step, pair in enumerate(zip(*ranks, strict=False)):
            assert pair[0] | pair[1] == set(whole[step * 32 : (step + 1) * 32])


def test_lengths_are_known_before_the_first_batch(client: fb.Client):
    expected = len(packed(groups_of(DOCUMENTS), LENGTH, SEPARATOR, PADDING)["tokens"])
    stream = client.stream("docs", plan_of(), batch_size=10)
    assert (stream.info.rows, stream.info.steps) == (expected, -(-expected // 10))
    explained = client.explain("docs", plan_of(), batch_size=10)
    assert "sequences" in str(explained)


def test_filter_sample_and_derived_columns(client: fb.Client):
    got = rows_of(client.stream("docs", plan_of(filter="half IS NOT NULL AND n > 20"), batch_size=32))
    kept = groups_of(DOCUMENTS, lambda row: row % 2 == 1 and row > 20)
    assert got == expected_rows(packed(kept, LENGTH, SEPARATOR, PADDING))
    sampled = rows_of(client.stream("docs", plan_of(), batch_size=32, sample=0.3, sample_seed=9))
    ids = client.stream(
        "docs", fb.Plan(outputs={"n": fb.cols("n").as_stored()}), batch_size=1000, sample=0.3, sample_seed=9
    )
    rows = {row for batch in ids for row in np.asarray(batch["n"]).tolist()}
    kept = groups_of(DOCUMENTS, lambda row: row in rows)
    assert sampled == expected_rows(packed(kept, LENGTH, SEPARATOR, PADDING))


def test_row_ids_and_replay_name_the_first_document(client: fb.Client):
    expected = packed(groups_of(DOCUMENTS), LENGTH, SEPARATOR, PADDING)
    found = rows_of(client.stream("docs", plan_of(), batch_size=50, with_row_ids=True), (*COLUMNS, "__row_id"))
    assert [row[:3] for row in found] == expected_rows(expected)
    assert [row[3] for row in found] == [row[0] for row in expected["__row_id"]]
    by_row = {row[:3]: row[3] for row in found}
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 2}
    batches = list(client.stream("docs", plan_of(), **options))
    replay = client.replay("docs", plan_of(), step=3, **options)
    assert replay.rows["row_id"].to_pylist() == [by_row[row] for row in rows_of([batches[3]])]


def test_tokens_beyond_int32(client: fb.Client):
    pack = fb.Pack(LENGTH, separator=2**50)
    plan = fb.Plan(outputs={"tokens": fb.output(fb.cols("tokens"), dtype="INT64", pack=pack)})
    large = [[token + 2**40 for token in document] for document in DOCUMENTS]
    got = rows_of(client.stream("large", plan, batch_size=100))
    assert got == expected_rows(packed(groups_of(large), LENGTH, 2**50, 0))
    with pytest.raises(fb.InvalidRequest, match="separator: 1125899906842624 is not an INT32; give the output"):
        client.stream("docs", fb.Plan(outputs={"tokens": fb.output(fb.cols("tokens"), pack=pack)}), batch_size=8)


def test_a_mixture_of_packed_datasets(client: fb.Client):
    mixture = fb.mix({"docs": 0.5, "more": 0.5})
    got = rows_of(client.stream(mixture, plan_of(), batch_size=16, shuffle=True, seed=1))
    of_docs, of_more = (
        Counter(expected_rows(packed(groups_of(documents), LENGTH, SEPARATOR, PADDING)))
        for documents in (DOCUMENTS, made_documents(sum(GROUP_ROWS), seed=1))
    )
    # The epoch ends with the first dataset of which every sequence was sent.
    counted = Counter(got)
    assert counted <= of_docs + of_more
    assert counted >= of_docs or counted >= of_more


def test_a_cache_changes_no_byte(serve: Serve, tmp_path: Path):
    write(tmp_path / "docs" / "a.parquet", DOCUMENTS)
    server = serve({"docs": tmp_path / "docs"}, "--cache-bytes", "64MiB")
    with fb.connect(server.url) as client:
        options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 5}
        first, second = (rows_of(client.stream("docs", plan_of(), **options)) for _ in range(2))
        assert first == second
        assert sorted(first) == sorted(expected_rows(packed(groups_of(DOCUMENTS), LENGTH, SEPARATOR, PADDING)))


def test_counts_survive_a_restart(tmp_path: Path):
    """Also after damage, which a second server finds by the digest."""
    write(tmp_path / "docs" / "a.parquet", DOCUMENTS)
    flags = ("--dataset", f"docs={tmp_path / 'docs'}", "--state", str(tmp_path / "state"), *LOOPBACK)
    expected = len(packed(groups_of(DOCUMENTS), LENGTH, SEPARATOR, PADDING)["tokens"])
    read_bytes = []
    for is_damaged in (False, False, True):
        if is_damaged:
            (kept,) = (tmp_path / "state/row-counts").iterdir()
            kept.write_bytes(kept.read_bytes()[:-1] + b"\x7f")
        server = Daemon(*flags)
        try:
            with fb.connect(server.url) as client:
                assert client.stream("docs", plan_of(), batch_size=16).info.rows == expected
            read_bytes.append(scrape(server).value("forebay_storage_read_bytes_total"))
        finally:
            server.stop()
    # The second server read the footer only.
    assert read_bytes[1] < read_bytes[0] / 2 < read_bytes[2]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another output": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"]}], "pack": {"length": 8}},
                     {"name": "n", "parts": [{"columns": ["n"]}]}]},
        r"plan\.outputs\[0\]\.pack: its rows are sequences, which have no other outputs",
    ),
    "length 0": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"]}], "pack": {"length": 0}}]},
        r"plan\.outputs\[0\]\.pack\.length: expected 1 to 65536 tokens",
    ),
    "length beyond the limit": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"]}], "pack": {"length": 65537}}]},
        r"pack\.length: expected 1 to 65536",
    ),
    "no lists": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["n"]}], "pack": {"length": 8}}]},
        r"pack: packing takes lists of tokens",
    ),
    "padded lists": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"], "ops": [{"pad": {"n": 4}}]}],
                      "pack": {"length": 8}}]},
        r"pack: packing takes lists of tokens",
    ),
    "floats": (
        {"outputs": [{"name": "t", "dtype": "FLOAT32", "parts": [{"columns": ["tokens"]}], "pack": {"length": 8}}]},
        r"dtype: packed tokens are INT32 or INT64",
    ),
    "reserved name": (
        {"outputs": [{"name": "position_ids", "parts": [{"columns": ["tokens"]}], "pack": {"length": 8}}]},
        r'outputs\[0\]\.name: "position_ids" is the name of another column of the sequences',
    ),
    "unknown field": (
        {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"]}], "pack": {"size": 8}}]},
        r"size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_plans(server: Server, case: str):
    plan, message = REFUSED[case]
    with fl.connect(server.url) as flight, pytest.raises(pa.ArrowInvalid, match=message):
        info(flight, {"dataset": "docs", "plan": plan, "batch_size": 8})


def test_a_null_document_names_its_row(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match=rf'column "tokens": row {sum(GROUP_ROWS) - 1} is null'):
        list(client.stream("nulls", plan_of(), batch_size=8))


def test_what_needs_rows_is_refused(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match=r"take returns rows, and the rows of this plan are packed"):
        client.take("docs", plan_of(), [1, 2])
    with pytest.raises(fb.InvalidRequest, match=r"group_by: the plan packs its output"):
        client.groups("docs", plan_of(), by="n", buckets=4, batch_size=8)
    with pytest.raises(fb.InvalidRequest, match=r"DoExchange returns a row for each row that it gets"):
        client.exchange(plan_of())({"tokens": pa.array(DOCUMENTS[:3], pa.list_(pa.int32()))})


def test_memory_stays_within_the_limit(serve: Serve, tmp_path: Path):
    """Documents whose sequences do not fit are refused with the flag; others stream under a small limit."""
    write(tmp_path / "docs" / "a.parquet", DOCUMENTS)
    one = pa.table({"tokens": pa.array([np.arange(12_000_000, dtype=np.int32)], pa.list_(pa.int32()))})
    (tmp_path / "huge").mkdir()
    pq.write_table(one, tmp_path / "huge" / "a.parquet")
    server = serve({"docs": tmp_path / "docs", "huge": tmp_path / "huge"}, "--memory-limit-bytes", "128MiB")
    with fb.connect(server.url) as client:
        with pytest.raises(fb.ResourceExhausted, match="memory-limit-bytes"):
            list(client.stream("huge", plan_of(), batch_size=8))
        assert len(rows_of(client.stream("docs", plan_of(), batch_size=8))) > 0
    assert server.alive
