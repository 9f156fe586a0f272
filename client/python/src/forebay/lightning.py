"""Lightning: `FlightDataModule`, a `LightningDataModule` of `FlightDataset`s."""

from __future__ import annotations

from functools import partial
from typing import Any

from ._dataset.dataset import FlightDataset
from ._dataset.framework import framework
from ._dataset.loader import FlightLoader

__all__ = ["FlightDataModule"]

lightning = framework("lightning.pytorch", extra="lightning")
DataModule: Any = lightning.LightningDataModule


class FlightDataModule(DataModule):
    """The streams of a Trainer: ``trainer.fit(model, FlightDataModule(FlightDataset(…), val=FlightDataset(…)))``.

    Each process reads its own rank's rows. The Trainer's checkpoints have the position in the training stream, also
    within an epoch, and ``trainer.fit(model, module, ckpt_path=…)`` resumes after the last batch of the saved run.
    A validation reads its dataset's epoch of the number that the Trainer is at. `options` are those of
    ``torch.utils.data.DataLoader``, except ``batch_size``.
    """

    def __init__(
        self,
        train: FlightDataset | None = None,
        *,
        val: FlightDataset | None = None,
        test: FlightDataset | None = None,
        predict: FlightDataset | None = None,
        **options: Any,
    ) -> None:
        DataModule.__init__(self)
        given = {"train": train, "val": val, "test": test, "predict": predict}
        for name, data in given.items():
            if data is not None:
                # Only the methods of the streams that there are: Lightning warns of an empty loader.
                setattr(self, f"{name}_dataloader", partial(_loader, data, options))


def _loader(data: FlightDataset, options: dict[str, Any]) -> FlightLoader:
    return FlightLoader(data, **options)
