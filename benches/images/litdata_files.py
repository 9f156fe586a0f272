"""Images in the format of LitData, whose workers import what they run from a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litdata

from loaders import pixels


class Stored(litdata.StreamingDataset):  # pyright: ignore[reportUntypedBaseClass]
    """Images of chunks that `write` wrote."""

    def __init__(self, folder: str, form: str) -> None:
        """Read the chunks of a folder."""
        super().__init__(folder, shuffle=False)
        self._form = form

    def __getitem__(self, index: Any) -> Any:
        """Decode an image."""
        return pixels(super().__getitem__(index)["file"], self._form)


def write(files: list[bytes], folder: Path) -> None:
    """Write chunks of at most 64 MB."""
    litdata.optimize(row, inputs=files, output_dir=str(folder), num_workers=1, chunk_bytes="64MB", start_method="spawn")


def row(file: bytes) -> dict[str, bytes]:
    """Return what a chunk stores of an image."""
    return {"file": file}
