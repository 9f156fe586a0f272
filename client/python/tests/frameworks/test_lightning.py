"""Lightning: the conformance suite through a real Trainer, and validation during a training."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as lightning
import pytest
import torch

from forebay.lightning import FlightDataModule
from forebay.torch import FlightDataset
from harness.frameworks.conformance import PLAN, Conformance, Done, Job, Rows
from harness.serving import Server

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    # A thread reads ahead, so that the workers that Lightning recommends are not needed.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined"),
    pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`"),
]


class Stopped(Exception):
    """Ends a training where a process would be killed."""


class Model(lightning.LightningModule):
    """Keeps the rows that it is trained on."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.job = job
        self.received = [Rows() for _ in range(job.epochs)]

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        self.received[self.current_epoch].add(batch["id"], batch["dense"])
        return torch.nn.functional.mse_loss(self.layer(batch["dense"])[:, 0], batch["label"])

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.job.stop_after == batch_idx + 1:
            self.trainer.save_checkpoint(self.job.folder / "place.ckpt")
            raise Stopped

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Validated(Model):
    """Keeps the rows that it is validated on, too."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.validated: list[int] = []

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        self.validated += batch["id"].tolist()


def trainer(job: Job, **options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=job.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=job.folder,
        **options,
    )


def dataset(job: Job) -> FlightDataset:
    return FlightDataset(job.url, job.dataset, PLAN, **job.options)


class TestLightning(Conformance):
    def run(self, job: Job) -> Done:
        model = Model(job)
        try:
            trainer(job).fit(model, FlightDataModule(dataset(job)), ckpt_path=job.state)
        except Stopped:
            return Done(model.received, job.folder / "place.ckpt")
        return Done(model.received)


def test_validation_reads_its_own_stream_after_each_epoch(server: Server, tmp_path: Any):
    job = Job(server.url, epochs=2, folder=tmp_path)
    model = Validated(job)
    val = FlightDataset(server.url, "tiny", PLAN, filter="id >= 60", batch_size=8)
    module = FlightDataModule(dataset(job), val=val)
    trainer(job, num_sanity_val_steps=0).fit(model, module)
    assert [rows.ids for rows in model.received] == [list(range(100))] * 2
    assert model.validated == list(range(60, 100)) * 2
    model.validated.clear()
    trainer(job).validate(model, module)
    assert model.validated == list(range(60, 100))
