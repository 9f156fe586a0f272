"""Hugging Face Transformers: the conformance suite through a real Trainer, with a model made from its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import forebay as fb
from forebay.torch import FlightDataset
from harness.frameworks.conformance import PLAN, Conformance, Done, Job, Rows
from harness.serving import Server

pytest.importorskip("transformers", reason="make test-frameworks installs Hugging Face Transformers")

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from forebay.transformers import FlightTrainer


class Model(PreTrainedModel):
    """A linear model that keeps the rows that it receives."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(2, 1)
        self.received: list[Rows] = [Rows()]
        self.post_init()

    def forward(self, id: torch.Tensor, dense: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:  # noqa: A002
        if self.training:
            self.received[-1].add(id, dense)
        found = self.layer(dense)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(found, label), "logits": found}

    def _init_weights(self, module: Any) -> None:
        torch.nn.init.zeros_(module.weight) if isinstance(module, torch.nn.Linear) else None


class Epochs(TrainerCallback):
    """Begins a new record with every epoch, and stops a training after a step."""

    def __init__(self, model: Model, stop_after: int | None) -> None:
        self.model, self.stop_after = model, stop_after

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.model.received.append(Rows())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.stop_after:
            control.should_save = control.should_training_stop = True


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder / "out"), use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, **options
    )


class TestTransformers(Conformance):
    def run(self, job: Job) -> Done:
        model = Model(PretrainedConfig())
        trainer = FlightTrainer(
            model=model,
            args=arguments(job.folder, num_train_epochs=job.epochs),
            train_dataset=FlightDataset(job.url, job.dataset, PLAN, **job.options),
            callbacks=[Epochs(model, job.stop_after)],
        )
        trainer.train(resume_from_checkpoint=job.state)
        if job.stop_after is not None:
            return Done(model.received[:1], str(job.folder / f"out/checkpoint-{job.stop_after}"))
        return Done(model.received[: job.epochs])


def test_a_resumed_training_reads_only_what_is_left(server: Server, tmp_path: Path):
    stopped = TestTransformers().run(Job(server.url, shuffle=True, epochs=2, stop_after=17, folder=tmp_path))
    assert len(stopped.epochs[0].ids) == 100
    model = Model(PretrainedConfig())
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=8, shuffle=True, seed=5)
    trainer = FlightTrainer(model=model, args=arguments(tmp_path, num_train_epochs=2), train_dataset=data)
    trainer.train(resume_from_checkpoint=True)
    assert data.stats()["batches"] == 13 - 4
    assert trainer.state.global_step == 26
    (tmp_path / "out/checkpoint-17/forebay.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"forebay\.json is missing"):
        trainer.train(resume_from_checkpoint=True)


def test_a_model_of_the_library_trains_and_is_evaluated(server: Server, tmp_path: Path):
    tokens = [fb.cols("id"), fb.cols("small").clip(0, 5)]
    plan = fb.Plan(
        outputs={
            "input_ids": fb.output(tokens, dtype="int64"),
            "labels": fb.output(fb.cols("word").vocab().fill_null(0), dtype="int64"),
        },
        filter="word IS NOT NULL",
    )
    config = BertConfig(
        vocab_size=128, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=8
    )
    trainer = FlightTrainer(
        model=BertForSequenceClassification(config),
        args=arguments(tmp_path, num_train_epochs=1),
        train_dataset=FlightDataset(server.url, "tiny", plan, batch_size=16, shuffle=True),
        eval_dataset=FlightDataset(server.url, "tiny", plan, batch_size=16),
    )
    assert trainer.train().training_loss > 0
    assert trainer.evaluate()["eval_loss"] > 0


def test_samples_of_metrics_are_rows(server: Server, tmp_path: Path):
    def data(**options: Any) -> FlightDataset:
        return FlightDataset(server.url, "tiny", PLAN, batch_size=16, **options)

    model = Model(PretrainedConfig())
    trainer = FlightTrainer(
        model=model,
        args=arguments(tmp_path, num_train_epochs=2, per_device_train_batch_size=4),
        train_dataset=data(shuffle=True),
        eval_dataset=data(),
    )
    metrics = trainer.train().metrics
    assert round(metrics["train_samples_per_second"] * metrics["train_runtime"]) == pytest.approx(200, abs=2)
    metrics = trainer.evaluate()
    for counted, expected in (("samples", 100), ("steps", 7)):
        assert metrics[f"eval_{counted}_per_second"] * metrics["eval_runtime"] == pytest.approx(expected, rel=0.05)
    assert len(trainer.predict(data()).predictions) == 100


def test_a_function_may_add_arguments(server: Server, tmp_path: Path):
    def with_label(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "label": batch["dense"].sum(1)}

    plan = fb.Plan(outputs={name: PLAN.outputs[name] for name in ("id", "dense")}, filter=PLAN.filter)
    model = Model(PretrainedConfig())
    data = fb.map_batches(FlightDataset(server.url, "tiny", plan, batch_size=8), with_label)
    stop = Epochs(model, 5)
    FlightTrainer(
        model=model, args=arguments(tmp_path, num_train_epochs=1), train_dataset=data, callbacks=[stop]
    ).train()
    again = fb.map_batches(FlightDataset(server.url, "tiny", plan, batch_size=8), with_label)
    rest = Model(PretrainedConfig())
    trainer = FlightTrainer(model=rest, args=arguments(tmp_path, num_train_epochs=1), train_dataset=again)
    trainer.train(resume_from_checkpoint=True)
    assert model.received[0].ids + rest.received[0].ids == list(range(100))


def test_a_plain_trainer_is_refused(server: Server, tmp_path: Path):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=8)
    trainer = Trainer(model=Model(PretrainedConfig()), args=arguments(tmp_path, num_train_epochs=1), train_dataset=data)
    with pytest.raises(ValueError, match="yields whole batches.*FlightTrainer"):
        trainer.train()
