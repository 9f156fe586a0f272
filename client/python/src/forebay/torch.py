"""PyTorch datasets: `FlightDataset`, and `FlightLoader` for frameworks that replace a DataLoader.

Only this module, those below it (`dataset`, `loader`, `batches`, `tensors`, `device_copy`, `spans`, `worker_state`) and
the adapters to frameworks that are built on torch import it.
"""

from .framework import framework

framework("torch", extra="torch")

from .batches import FlightBatches  # noqa: E402
from .dataset import FlightDataset  # noqa: E402
from .loader import FlightLoader  # noqa: E402
from .tensors import TensorBatch  # noqa: E402

__all__ = ["FlightBatches", "FlightDataset", "FlightLoader", "TensorBatch"]
