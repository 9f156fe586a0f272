"""Shuffled epochs of one row group whose ops are expensive: texts tokenized, padded and packed, and JPEGs decoded.

The figure is the server's CPU seconds of a shuffled epoch with the default lanes / of an epoch in file order, as median
over adjacent pairs; the goal is 1.15. With two programs, both are measured in turn.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from harness.benches import machine
from harness.benches.bench_server import RunningServer, server_program
from harness.benches.reporting import table
from harness.serving import info

GOAL = 1.15
WORDS = ("the", "server", "sends", "each", "rank", "rows", "of", "a", "table", "in", "order", "while", "loops", "train")
TOKENIZE = {"tokenize": {"tokenizer": "bpe"}}
PACK = {"name": "x", "parts": [{"columns": ["text"], "ops": [TOKENIZE]}], "pack": {"length": 512}}
PAD = {
    "name": "x",
    "dtype": "INT32",
    "parts": [{"columns": ["text"], "ops": [TOKENIZE, {"pad": {"n": 512, "value": 0}}]}],
}
DECODE = {
    "name": "x",
    "dtype": "UINT8",
    "parts": [{"columns": ["image"], "ops": [{"decode_image": {"height": 224, "width": 224}}]}],
}
# Per case, the dataset and the output.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "3,000 texts, tokenized and padded": ("texts", PAD),
    "3,000 texts, tokenized and packed": ("texts", PACK),
    "20,000 texts, tokenized and packed": ("more_texts", PACK),
    "400 JPEGs of 500 by 375 pixels, decoded to 224 by 224": ("images", DECODE),
}


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, nargs="*", help="builds of forebay-server")
    parser.add_argument("--rounds", type=int, default=5, help="measured pairs (%(default)s)")
    parser.add_argument("--out", type=Path, default=machine.run_folder() / "few_row_groups.json", help="raw numbers")
    options = parser.parse_args()
    programs = [program.absolute() for program in options.programs] or [server_program()]
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        datasets = generate(Path(folder))
        flags = ["--tokenizer", f"bpe={folder}/bpe.json"]
        servers = [
            ending.enter_context(RunningServer(program, datasets, Path(folder) / f"state-{number}", *flags))
            for number, program in enumerate(programs)
        ]
        for case, (dataset, output) in CASES.items():
            # The first pair warms up, and counts sequences.
            for pair in range(-1, options.rounds):
                for number, server in enumerate(servers):
                    for shuffle in (False, True):
                        request = {"dataset": dataset, "plan": {"outputs": [output]}, "batch_size": 64}
                        seconds = epoch(server, {**request, "shuffle": shuffle, "epoch": pair + 1})
                        if pair >= 0:
                            found = {"case": case, "program": number, "pair": pair, "shuffle": shuffle}
                            rounds.append({**found, "server_cpu_seconds": seconds})
    rows = [[case, *(spell(rounds, case, number) for number in range(len(programs)))] for case in CASES]
    print(table(["row group", *(f"shuffled / file order, {program.parent.name}" for program in programs)], rows))
    run = {
        "bench": "few_row_groups",
        "goal": GOAL,
        "programs": [f"{program.parent.name}/{program.name}" for program in programs],
    }
    machine.keep(options.out, run | {"machine": machine.facts(programs[-1]), "rounds": rounds})


def generate(folder: Path) -> dict[str, Path]:
    """Write the tables, each in one row group, and a tokenizer."""
    choices, numbers = random.Random(1), np.random.default_rng(1)
    texts = [" ".join(choices.choices(WORDS, k=150)) for _ in range(3000)]
    more_texts = [" ".join(choices.choices(WORDS, k=60)) for _ in range(20_000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts[:200], trainers.BpeTrainer(vocab_size=320, show_progress=False))
    tokenizer.save(str(folder / "bpe.json"))
    tables = {
        "texts": pa.table({"text": texts}),
        "more_texts": pa.table({"text": more_texts}),
        "images": pa.table({"image": [jpeg(numbers) for _ in range(400)]}),
    }
    for name, made in tables.items():
        (folder / name).mkdir()
        pq.write_table(made, folder / name / "one.parquet")
    return {name: folder / name for name in tables}


def jpeg(numbers: np.random.Generator) -> bytes:
    """Return a smooth random picture."""
    pixels = numbers.integers(0, 255, (30, 40, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def epoch(server: RunningServer, request: dict[str, Any]) -> float:
    """Read an epoch and return the server's CPU seconds."""
    with fl.connect(server.url) as client:
        before = server.cpu_seconds()
        for endpoint in info(client, request).endpoints:
            for _ in client.do_get(endpoint.ticket):
                pass
        return server.cpu_seconds() - before


def spell(rounds: list[dict[str, Any]], case: str, number: int) -> str:
    """Return the ratio of a case with its range."""
    of_case = [found for found in rounds if (found["case"], found["program"]) == (case, number)]
    shuffled, in_order = (
        [found["server_cpu_seconds"] for found in of_case if found["shuffle"] is shuffle] for shuffle in (True, False)
    )
    ratios = [one / other for one, other in zip(shuffled, in_order, strict=True)]
    seconds = f"{statistics.median(shuffled):.2f} / {statistics.median(in_order):.2f} s"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {seconds})"


if __name__ == "__main__":
    main()
