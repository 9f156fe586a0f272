"""Hugging Face Transformers: `FlightTrainer`, a Trainer whose checkpoints have the position in the stream."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch.utils.data

from ._client.cursor import Cursor
from ._client.map_batches import MappedBatches
from ._dataset.dataset import FlightDataset
from ._dataset.framework import framework
from ._dataset.loader import FlightLoader
from ._dataset.tensors import TensorBatch

__all__ = ["FlightTrainer"]

transformers = framework("transformers", extra="transformers")
Trainer: Any = transformers.Trainer
TrainerCallback: Any = transformers.TrainerCallback
get_last_checkpoint: Any = framework("transformers.trainer_utils", extra="transformers").get_last_checkpoint

# The file with the position, in the folder of a checkpoint.
POSITION = "forebay.json"

Function = Callable[[Any], Any]


class FlightTrainer(Trainer):
    """A ``transformers.Trainer`` that reads a `FlightDataset` as ``train_dataset`` or ``eval_dataset``.

    The outputs of the plan are the arguments of the model's ``forward``. Batches are the stream's: the Trainer's batch
    sizes and collator are not used, and each process reads its own rank's rows. ``train(resume_from_checkpoint=…)``
    opens the stream after the last batch of the saved run, where a Trainer reads all batches before it again. The
    samples of its metrics are rows. ``forebay.map_batches(dataset, function)`` may take the place of a dataset, for
    arguments that no output has, such as the labels of packed sequences. Other datasets work as usual.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Trainer.__init__(self, *arguments, **options)
        # Batches of the epoch before the position of the checkpoint that the training resumes from.
        self._steps_before = 0
        stream = _Stream.of(self.train_dataset)
        if stream is not None:
            self.add_callback(PositionSaver(stream.data))

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """Train, or resume from a checkpoint: that in a folder, or the last one if True."""
        if resume_from_checkpoint is True:
            # None, if there is no checkpoint: the Trainer reports it.
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        self._steps_before = 0
        stream = _Stream.of(self.train_dataset)
        if stream is not None and isinstance(resume_from_checkpoint, str):
            self._steps_before = self._resume(stream.data, Path(resume_from_checkpoint) / POSITION)
        return Trainer.train(self, resume_from_checkpoint, *arguments, **options)

    def evaluate(self, eval_dataset: Any = None, *arguments: Any, **options: Any) -> Any:
        """Evaluate, and return the metrics."""
        with self._batch_size_of(self._evaluated(eval_dataset)):
            return Trainer.evaluate(self, eval_dataset, *arguments, **options)

    def predict(self, test_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Predict, and return the predictions and the metrics."""
        with self._batch_size_of(test_dataset):
            return Trainer.predict(self, test_dataset, *arguments, **options)

    def evaluation_loop(self, dataloader: Any, *arguments: Any, **options: Any) -> Any:
        """Run the model over a loader; the samples of a stream are its rows."""
        output = Trainer.evaluation_loop(self, dataloader, *arguments, **options)
        return output._replace(num_samples=_rows(dataloader)) if isinstance(dataloader, FlightLoader) else output

    def num_examples(self, dataloader: Any) -> int:
        """Return the number of rows of a stream's epoch, all ranks together."""
        if isinstance(dataloader, FlightLoader):
            return _rows(dataloader)
        return int(Trainer.num_examples(self, dataloader))

    def get_total_train_batch_size(self, args: Any) -> int:
        """Return the number of rows of an optimizer step, all ranks together."""
        stream = _Stream.of(self.train_dataset)
        if stream is None:
            return int(Trainer.get_total_train_batch_size(self, args))
        return stream.data.batch_size * int(args.gradient_accumulation_steps) * int(args.world_size)

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training stream."""
        stream = _Stream.of(self.train_dataset)
        if stream is not None:
            return TrainerLoader(stream.data, self._steps_before, stream.function)
        return Trainer.get_train_dataloader(self)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of an evaluation stream."""
        data = self._evaluated(eval_dataset)
        stream = _Stream.of(data)
        if stream is not None:
            return TrainerLoader(stream.data, 0, stream.function)
        return Trainer.get_eval_dataloader(self, data)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the loader of the stream of a prediction."""
        stream = _Stream.of(test_dataset)
        if stream is not None:
            return TrainerLoader(stream.data, 0, stream.function)
        return Trainer.get_test_dataloader(self, test_dataset)

    def _evaluated(self, given: Any) -> object:
        """Return the dataset of an evaluation: the one given, or that of a name, or the Trainer's."""
        data: object = self.eval_dataset if given is None else given
        return self.eval_dataset[data] if isinstance(data, str) else data

    @contextlib.contextmanager
    def _batch_size_of(self, data: object) -> Generator[None]:
        """Let the Trainer count the steps of an evaluation in the stream's batches."""
        stream, before = _Stream.of(data), self.args.per_device_eval_batch_size
        if stream is not None:
            self.args.per_device_eval_batch_size = max(1, stream.data.batch_size // max(1, self.args.n_gpu))
        try:
            yield
        finally:
            self.args.per_device_eval_batch_size = before

    def _resume(self, data: FlightDataset, file: Path) -> int:
        """Load a checkpoint's position; return how many batches of its epoch the Trainer must skip."""
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
    """A loader whose first iteration has as many empty batches as the Trainer skips when it resumes.

    `function` is applied to every other batch.
    """

    def __init__(self, data: FlightDataset, steps_before: int, function: Function | None) -> None:
        super().__init__(data)
        if steps_before or function is not None:
            # DataLoader forbids to set the attribute.
            vars(self)["dataset"] = TrainerBatches(data, steps_before, function)


class TrainerBatches(torch.utils.data.IterableDataset[TensorBatch]):
    """The rest of an epoch after empty batches, and then whole epochs; `function` is applied to their batches."""

    def __init__(self, data: FlightDataset, steps_before: int, function: Function | None) -> None:
        self._data = data
        self._steps_before = steps_before
        self._function = function

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[TensorBatch]:
        steps, self._steps_before = self._steps_before, 0
        batches = iter(self._data)
        return chain(repeat(cast(TensorBatch, {}), steps), map(self._function, batches) if self._function else batches)


class _Stream(NamedTuple):
    """A stream, and the function of its batches."""

    data: FlightDataset
    function: Function | None

    @classmethod
    def of(cls, data: object) -> _Stream | None:
        """Return the stream of a Trainer's dataset; None if it is another dataset."""
        functions: list[Function] = []
        while isinstance(data, MappedBatches):
            mapped = cast("MappedBatches[Any, Any]", data)
            functions.insert(0, mapped.function)
            data = cast(object, mapped.source)
        if not isinstance(data, FlightDataset):
            return None
        return cls(data, partial(_apply, tuple(functions)) if functions else None)


def _apply(functions: tuple[Function, ...], batch: Any) -> Any:
    for function in functions:
        batch = function(batch)
    return batch


def _rows(loader: FlightLoader) -> int:
    return loader.flight.info().rows
