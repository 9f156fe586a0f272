"""Tokenizing and packing text: Forebay's stream next to `tokenizers`, `datasets` and MosaicML Streaming.

Every way turns the same documents into the tokens of the same tokenizer, and the tokens (or the packed tokens) of all
ways must be equal. The ways:

- `stream`: a server with `tokenize`, read by one client.
- `tokenizers`: `Tokenizer.encode_batch` in this process, on all cores.
- `encode_batch`, `encode_batch_fast`: the crate `tokenizers` alone, on all cores, with `--bare`.
- `datasets`: `Dataset.map(batched=True, num_proc=2)`, without its cache, then every row read.
- `stream packed` and `datasets packed`: the same, in sequences of one length (`group_texts` of Hugging Face).
- `streaming packed`: MosaicML's StreamingDataset reads the sequences, written as MDS before, if it is installed.

Wall seconds, and CPU seconds of this process, its children and the server. The raw numbers are kept with --out. A
comparison needs a release build of the server.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tokenizers import Tokenizer

import forebay as fb
from harness.benches import machine
from harness.benches.bench_server import server_program
from harness.benches.processes import cpu_seconds
from harness.benches.reporting import say
from harness.daemon import LOOPBACK, Daemon
from harness.tokenizers import LINES, byte_level_bpe

LENGTH, SEPARATOR, PROCESSES = 1024, 0, 2

Way = Callable[[], "np.ndarray[Any, Any]"]
"""Returns all tokens in order, those of one document or sequence after those of the one before."""


def main() -> None:
    """Measure, compare, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=300, help="mean words of a document")
    parser.add_argument(
        "--tokenizer", type=Path, help="a tokenizer.json; without it, a small byte-level BPE is trained"
    )
    parser.add_argument("--bare", type=Path, help="target/release/examples/bare, which runs the crate alone")
    parser.add_argument("--out", type=Path, help="file for the raw numbers, JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as temporary:
        folder = Path(temporary)
        tokenizer = Tokenizer.from_file(str(options.tokenizer)) if options.tokenizer else byte_level_bpe()
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.save(str(folder / "tokenizer.json"))
        texts = documents(options.documents, options.words)
        table = pa.table({"text": texts})
        pq.write_table(table, folder / "docs.parquet", row_group_size=max(1, len(texts) // 16))
        flags = ["--dataset", f"docs={folder / 'docs.parquet'}", "--state", str(folder / "state")]
        server = Daemon(*LOOPBACK, *flags, "--tokenizer", f"t={folder / 'tokenizer.json'}")
        run: dict[str, Any] = {
            "bench": "text",
            "command": " ".join(["benches/text/run.py", *sys.argv[1:]]),
            "machine": machine.facts(server_program()),
            "load": os.getloadavg(),
            "documents": len(texts),
            "text_bytes": sum(len(text.encode()) for text in texts),
            "vocabulary": tokenizer.get_vocab_size(),
        }
        try:
            with fb.connect(server.url) as client:
                run["seconds"] = measure(ways(client, tokenizer, texts, folder), server.process.pid, options.rounds)
        finally:
            server.stop()
        if options.bare is not None:
            run["seconds"] |= bare(options.bare, folder, texts, options.rounds)
    run["not_installed"] = [name for name in ("datasets", "streaming") if importlib.util.find_spec(name) is None]
    if options.out is not None:
        options.out.write_text(json.dumps(run, indent=1) + "\n")


def documents(count: int, words: int) -> list[str]:
    """Make documents of words of several scripts, of exponential length."""
    source = random.Random(1)
    vocabulary = [word for line in LINES for word in line.split()]
    vocabulary += [
        "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _ in range(20_000)
    ]
    return [" ".join(source.choices(vocabulary, k=1 + int(source.expovariate(1 / words)))) for _ in range(count)]


def ways(client: fb.Client, tokenizer: Tokenizer, texts: list[str], folder: Path) -> dict[str, Way]:
    """Return the ways by name; the tokens of packed ones are equal among each other, and those of the others, too."""
    text = fb.cols("text").tokenize("t")
    lists = fb.Plan(outputs={"o": text})
    packed = fb.Plan(outputs={"o": fb.output(text, pack=fb.Pack(LENGTH, separator=SEPARATOR))})

    def stream() -> np.ndarray[Any, Any]:
        batches = client.stream("docs", lists, batch_size=256)
        return np.concatenate([np.asarray(pc.list_flatten(batch.data.column("o"))) for batch in batches])

    def stream_packed() -> np.ndarray[Any, Any]:
        found = []
        for batch in client.stream("docs", packed, batch_size=64):
            real = np.asarray(batch["document_ids"]) >= 0
            found.append(np.asarray(batch["o"])[real])
        return np.concatenate(found)

    def package() -> np.ndarray[Any, Any]:
        return np.concatenate([np.asarray(found.ids, np.int32) for found in tokenizer.encode_batch(texts)])

    found: dict[str, Way] = {"stream": stream, "tokenizers": package, "stream packed": stream_packed}
    if importlib.util.find_spec("datasets") is not None:
        found |= hugging_face(tokenizer, texts)
    if importlib.util.find_spec("streaming") is not None:
        found["streaming packed"] = mosaic(stream_packed(), folder / "mds")
    return found


def hugging_face(tokenizer: Tokenizer, texts: list[str]) -> dict[str, Way]:
    """Return the ways of the package datasets."""
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()
    source = datasets.Dataset.from_dict({"text": texts})

    def ids(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [found.ids for found in tokenizer.encode_batch(batch["text"])]}

    def group(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        tokens = [token for found in tokenizer.encode_batch(batch["text"]) for token in [*found.ids, SEPARATOR]]
        return {"ids": [tokens[start : start + LENGTH] for start in range(0, len(tokens), LENGTH)]}

    def mapped(function: Any) -> Way:
        def read() -> np.ndarray[Any, Any]:
            made = source.map(function, batched=True, num_proc=PROCESSES, remove_columns=["text"])
            chunks: list[Any] = made.data.column("ids").chunks
            return np.concatenate([np.asarray(chunk.flatten()) for chunk in chunks])

        return read

    return {"datasets": mapped(ids), "datasets packed": mapped(group)}


def mosaic(tokens: np.ndarray[Any, Any], folder: Path) -> Way:
    """Write packed tokens as MDS, and return the way that reads them."""
    import streaming  # pyright: ignore[reportMissingImports] (not installed everywhere)

    with streaming.MDSWriter(out=str(folder), columns={"ids": "bytes"}) as writer:
        for start in range(0, len(tokens), LENGTH):
            writer.write({"ids": tokens[start : start + LENGTH].astype(np.int32).tobytes()})

    def read() -> np.ndarray[Any, Any]:
        rows = streaming.StreamingDataset(local=str(folder), shuffle=False, batch_size=1)
        return np.concatenate([np.frombuffer(row["ids"], np.int32) for row in rows])

    return read


def bare(program: Path, folder: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """Return wall and CPU seconds of the crate alone."""
    (folder / "documents.json").write_text(json.dumps(texts))
    arguments = [program, folder / "tokenizer.json", folder / "documents.json", str(rounds)]
    found: dict[str, Any] = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    for name, seconds in found.items():
        report(name, seconds)
    return found


def report(name: str, seconds: dict[str, Any]) -> None:
    """Print the medians of a way."""
    wall, cpu = (statistics.median(seconds[kind]) for kind in ("wall", "cpu"))
    tokens: int = seconds["tokens"]
    say(f"{name:>18} {tokens:>12,} tokens {wall:>8.3f} s {cpu:>8.3f} CPU s {tokens / wall:>14,.0f} tokens/s")


def measure(measured: dict[str, Way], server: int, rounds: int) -> dict[str, Any]:
    """Return wall and CPU seconds of each way and round, after one that warms up and is compared."""
    found: dict[str, Any] = {}
    expected: dict[bool, np.ndarray[Any, Any]] = {}
    for name, way in measured.items():
        tokens = way()
        first = expected.setdefault("packed" in name, tokens)
        if not np.array_equal(tokens, first):
            raise SystemExit(f"{name}: the tokens differ from those of the first way")
        seconds: dict[str, Any] = {"wall": [], "cpu": [], "tokens": len(tokens)}
        for _ in range(rounds):
            wall, cpu = time.perf_counter(), cpu_seconds(server)
            way()
            seconds["wall"].append(time.perf_counter() - wall)
            seconds["cpu"].append(cpu_seconds(server) - cpu)
        found[name] = seconds
        report(name, seconds)
    return found


if __name__ == "__main__":
    main()
