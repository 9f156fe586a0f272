"""PyTorch datasets: `FlightDataset`, and `FlightLoader` for frameworks that replace a DataLoader.

Only this module, those below it (`dataset`, `loader`, `batches`, `tensors`, `device_copy`, `spans`, `worker_state`) and
the adapters to frameworks that are built on torch import it.
"""

from ._dataset.framework import framework

framework("torch", extra="torch")

from ._dataset.batches import FlightBatches  # noqa: E402
from ._dataset.dataset import FlightDataset  # noqa: E402
from ._dataset.loader import FlightLoader  # noqa: E402
from ._dataset.tensors import TensorBatch  # noqa: E402

__all__ = ["FlightBatches", "FlightDataset", "FlightLoader", "TensorBatch"]
