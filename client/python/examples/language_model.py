"""A language model that is fine-tuned on packed text, killed in mid-epoch, and resumed to the same losses.

The server turns documents into tokens and packs them into sequences of one length; the training process receives
integers. A tiny causal transformer learns the documentation of Python first, and is then fine-tuned on the source code
of its library. The fine-tuning is killed by SIGKILL within a step and resumes from its last checkpoint. Asserted:

- every step after the kill has the sequences and, to the bit, the loss of the uninterrupted run;
- the final weights are equal to the bit;
- the loss on source code that was not seen in training falls.

Requires forebay-server (see `forebay.local`), torch, and tokenizers.
"""

import argparse
import os
import pydoc_data.topics
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from resuming import Batch, Run, check, check_equal, in_process, train_steps
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

import forebay as fb
from forebay.torch import FlightDataset

TOKENS, LENGTH = 1024, 128
WIDTH, HEADS, LAYERS = 48, 4, 2
BATCH_ROWS = 16
EPOCHS = 2
DOCUMENT_LETTERS_MAX = 8_000
FILES = 90


@dataclass(frozen=True, kw_only=True)
class Job(Run):
    """A run of training and where it reads."""

    url: str
    dataset: str
    plan: str
    start: Path | None = None
    """The weights to fine-tune."""


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the states after the block; tokens attend where the mask is true."""
        rows = x.shape[0]
        parts = self.mix(self.norms[0](x)).view(rows, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None])
        x = x + self.join(attended.transpose(1, 2).reshape(rows, LENGTH, WIDTH))
        return x + self.feed(self.norms[1](x))


class Model(nn.Module):
    """A causal language model that keeps the documents of a sequence apart."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean loss of the next tokens within their documents."""
        tokens, documents = batch["tokens"].long(), batch["document_ids"]
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        mask = (documents[:, :, None] == documents[:, None, :]) & causal
        x = self.tokens(tokens) + self.places(batch["position_ids"].long())
        for block in self.blocks:
            x = block(x, mask)
        is_next = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
        logits = self.head(self.norm(x[:, :-1]))
        return nn.functional.cross_entropy(logits[is_next], tokens[:, 1:][is_next])


def sequences(job: Job, *, shuffle: bool = True) -> FlightDataset:
    """Return the job's stream of packed sequences."""
    plan = fb.FittedPlan.from_json(job.plan)
    return FlightDataset(job.url, job.dataset, plan, batch_size=BATCH_ROWS, shuffle=shuffle, seed=7)


def train(job: Job) -> None:
    """Train, from the checkpoint if there is one, else from the weights to fine-tune."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = Model()
    if job.start is not None:
        model.load_state_dict(torch.load(job.start))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train_steps(job, model, optimizer, sequences(job), model.loss, "tokens")


def evaluate(job: Job, weights: Path) -> float:
    """Return the mean loss of the job's sequences."""
    model = Model()
    model.load_state_dict(torch.load(weights))
    with torch.no_grad():
        losses = [model.loss(batch).item() for batch in sequences(job, shuffle=False)]
    return sum(losses) / len(losses)


def write(folder: Path, documents: list[str]) -> str:
    """Write documents as a dataset; return its folder."""
    folder.mkdir()
    pq.write_table(pa.table({"text": documents}), folder / "documents.parquet", row_group_size=20)
    return str(folder)


def corpora() -> tuple[list[str], list[str]]:
    """Return the topics of Python's help, and the beginnings of files of its library."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:FILES]
    code = [path.read_text(encoding="utf-8", errors="replace")[:DOCUMENT_LETTERS_MAX] for path in files]
    prose = [text[:DOCUMENT_LETTERS_MAX] for _, text in sorted(pydoc_data.topics.topics.items())]
    return prose, code


def main() -> None:
    """Fine-tune without and with a kill, and compare."""
    argparse.ArgumentParser(description="Kill the fine-tuning of a language model, and resume it.").parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prose, code = corpora()
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=TOKENS, special_tokens=["<|end|>"], show_progress=False)
        tokenizer.train_from_iterator([*prose, *code], trainer)
        url = fb.local(
            prose=write(folder / "prose", prose),
            code=write(folder / "code", [text for number, text in enumerate(code) if number % 8]),
            unseen=write(folder / "unseen", code[::8]),
        )
        pack = fb.Pack(LENGTH, separator=tokenizer.token_to_id("<|end|>"))
        plan = fb.Plan(outputs={"tokens": fb.output(fb.cols("text").tokenize(tokenizer), pack=pack)})
        with fb.connect(url) as client:
            fitted = client.fit("code", plan).to_json()
            steps = client.stream("code", plan, batch_size=BATCH_ROWS).info.steps
        killed_step = steps + steps // 2

        def job(name: str, dataset: str, **options: Any) -> Job:
            return Job(folder=folder / name, url=url, dataset=dataset, plan=fitted, **options)

        base = job("base", "prose", epochs=1)
        check(in_process(train, base) == 0, "training on prose failed")
        whole = job("whole", "code", epochs=EPOCHS, start=base.weights)
        check(in_process(train, whole) == 0, "the uninterrupted fine-tuning failed")
        unseen = job("unseen", "unseen", epochs=1)
        before, after = (evaluate(unseen, weights) for weights in (base.weights, whole.weights))
        count = len(whole.records())
        print(f"uninterrupted: {EPOCHS} epochs, {count} steps of {BATCH_ROWS} sequences of {LENGTH} tokens")
        print(f"loss of unseen code: {before:.3f} before fine-tuning, {after:.3f} after")

        killed = job("killed", "code", epochs=EPOCHS, start=base.weights, killed_step=killed_step)
        check(in_process(train, killed) == -signal.SIGKILL, "the fine-tuning was not killed")
        saved = killed.saved_steps()
        print(f"killed: by SIGKILL within step {killed_step}, in epoch 2; the checkpoint is after {saved} steps")
        resumed = replace(killed, killed_step=None)
        check(in_process(train, resumed) == 0, "resuming failed")
        again = check_equal(resumed, whole) - saved
        check(after < before, "fine-tuning did not lower the loss of unseen code")
        print(f"resumed: {again} steps, all with equal sequences and losses; final weights equal to the bit")


if __name__ == "__main__":
    main()
