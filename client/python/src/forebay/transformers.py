"""Hugging Face Transformers: `FlightTrainer`, a Trainer whose checkpoints have the position in the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

import torch.utils.data

from .cursor import Cursor
from .dataset import FlightDataset
from .framework import framework
from .loader import FlightLoader
from .tensors import TensorBatch

__all__ = ["FlightTrainer"]

transformers = framework("transformers", extra="transformers")
Trainer: Any = transformers.Trainer
TrainerCallback: Any = transformers.TrainerCallback
get_last_checkpoint: Any = framework("transformers.trainer_utils", extra="transformers").get_last_checkpoint

# The file with the position, in the folder of a checkpoint.
POSITION = "forebay.json"


class FlightTrainer(Trainer):
    """A ``transformers.Trainer`` that reads a `FlightDataset` as ``train_dataset`` or ``eval_dataset``.

    The outputs of the plan are the arguments of the model's ``forward``. Batches are the stream's: the Trainer's batch
    sizes and collator are not used, and each process reads its own rank's rows. ``train(resume_from_checkpoint=…)``
    opens the stream after the last batch of the saved run, where a Trainer reads all batches before it again. Other
    datasets work as usual.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Trainer.__init__(self, *arguments, **options)
        # Batches of the epoch before the position of the checkpoint that the training resumes from.
        self._steps_before = 0
        if isinstance(self.train_dataset, FlightDataset):
            self.add_callback(PositionSaver(self.train_dataset))

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """Train, or resume from a checkpoint: that in a folder, or the last one if True."""
        if resume_from_checkpoint is True:
            # None, if there is no checkpoint: the Trainer reports it.
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        self._steps_before = 0
        data: object = self.train_dataset
        if isinstance(data, FlightDataset) and isinstance(resume_from_checkpoint, str):
            self._steps_before = self._resume(data, Path(resume_from_checkpoint) / POSITION)
        return Trainer.train(self, resume_from_checkpoint, *arguments, **options)

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training stream."""
        data: object = self.train_dataset
        if isinstance(data, FlightDataset):
            return TrainerLoader(data, self._steps_before)
        return Trainer.get_train_dataloader(self)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of an evaluation stream."""
        data: object = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, str):
            data = self.eval_dataset[data]
        return FlightLoader(data) if isinstance(data, FlightDataset) else Trainer.get_eval_dataloader(self, data)

    def _resume(self, data: FlightDataset, file: Path) -> int:
        """Load a checkpoint's position; return how many batches of its epoch the Trainer is to skip."""
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing: the checkpoint was not saved by a FlightTrainer of a stream")
        cursor = Cursor.of(file.read_text())
        if cursor.position and cursor.world_size != self.args.world_size:
            raise ValueError(
                f"the checkpoint was saved within an epoch at world size {cursor.world_size}, and this world size is "
                f"{self.args.world_size}: the Trainer counts its steps, which are others then"
            )
        data.load_state_dict(cursor.to_dict())
        return 0 if self.args.ignore_data_skip else cursor.position // (data.batch_size * cursor.world_size)


class PositionSaver(TrainerCallback):
    """Writes the position in the stream to every checkpoint."""

    def __init__(self, data: FlightDataset) -> None:
        self._data = data

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the position, which is the same on every rank."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / POSITION).write_text(json.dumps(self._data.state_dict()) + "\n")


class TrainerLoader(FlightLoader):
    """A loader whose first iteration has as many empty batches as the Trainer skips when it resumes."""

    def __init__(self, data: FlightDataset, steps_before: int) -> None:
        super().__init__(data)
        if steps_before:
            # DataLoader forbids to set the attribute.
            vars(self)["dataset"] = ResumedEpoch(data, steps_before)


class ResumedEpoch(torch.utils.data.IterableDataset[TensorBatch]):
    """The rest of an epoch after empty batches, and then whole epochs."""

    def __init__(self, data: FlightDataset, steps_before: int) -> None:
        self._data = data
        self._steps_before = steps_before

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[TensorBatch]:
        steps, self._steps_before = self._steps_before, 0
        return chain(repeat(cast(TensorBatch, {}), steps), self._data)
