"""PyTorch datasets: `FlightDataset`, and `FlightLoader` for frameworks that replace a DataLoader.

Only this module and those below it (`dataset`, `loader`, `epochs`, `batches`, `tensors`, `device_copy`, `worker_state`)
import torch.
"""

from .batches import FlightBatches
from .dataset import FlightDataset
from .loader import FlightLoader
from .tensors import TensorBatch

__all__ = ["FlightBatches", "FlightDataset", "FlightLoader", "TensorBatch"]
