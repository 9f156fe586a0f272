"""The ways of other packages to read images, each as a function of the files that returns the way."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIZE, PROCESSES = 224, 2

Batches = Iterator["np.ndarray[Any, Any]"]
Peer = Callable[[list[bytes], Path, str, int], Callable[[], Batches]]

_AUGMENTED = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])


def fitted(file: bytes) -> Image.Image:
    """Return the evaluation form: the centre of the image, as large as possible, resized."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    return ImageOps.fit(image, (SIZE, SIZE), Image.Resampling.BILINEAR)


def pixels(file: bytes, form: str) -> np.ndarray[Any, Any]:
    """Decode, crop and resize an image with Pillow and torchvision."""
    if form == "training":
        return np.asarray(_AUGMENTED(Image.open(io.BytesIO(file)).convert("RGB")))
    return np.asarray(fitted(file))


class Images(Dataset[np.ndarray[Any, Any]]):
    """Images of files in memory."""

    def __init__(self, files: list[bytes], form: str) -> None:
        """Keep the files."""
        self._files, self._form = files, form

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._files)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        """Decode an image."""
        return pixels(self._files[index], self._form)


def stacked(images: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    """Return images as a batch."""
    return torch.from_numpy(np.stack(images))


def torchvision(files: list[bytes], _folder: Path, form: str, rows: int) -> Callable[[], Batches]:
    """Read by a DataLoader of torch with worker processes."""

    def read() -> Batches:
        for batch in DataLoader(Images(files, form), rows, num_workers=PROCESSES, collate_fn=stacked):
            yield batch.numpy()

    return read


def litdata(files: list[bytes], folder: Path, form: str, rows: int) -> Callable[[], Batches]:
    """Read by LitData's loader with worker processes, over chunks that it wrote."""
    from litdata import StreamingDataLoader

    from litdata_files import Stored, write

    write(files, folder)
    # `optimize` sets another one for the whole process, with which every worker imports torch.
    multiprocessing.set_start_method("fork", force=True)

    def read() -> Batches:
        data = Stored(str(folder), form)
        for batch in StreamingDataLoader(data, batch_size=rows, num_workers=PROCESSES, collate_fn=stacked):
            yield batch.numpy()

    return read


def spdl(files: list[bytes], _folder: Path, form: str, rows: int) -> Callable[[], Batches]:
    """Read by SPDL's pipeline with threads."""
    from spdl.pipeline import PipelineBuilder

    def read() -> Batches:
        builder = (
            PipelineBuilder()
            .add_source(files)
            .pipe(lambda file: pixels(file, form), concurrency=PROCESSES, output_order="input")
        )
        pipeline = builder.aggregate(rows).pipe(np.stack).add_sink(2).build(num_threads=PROCESSES)
        with pipeline.auto_stop():
            yield from pipeline

    return read


PEERS: dict[str, Peer] = {"torchvision": torchvision, "litdata": litdata, "spdl": spdl}
