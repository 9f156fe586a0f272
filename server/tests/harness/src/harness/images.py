"""Images of every format and layout, and what Pillow and torchvision make of them."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.cbook
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sklearn.datasets
import xxhash
from PIL import ExifTags, Image, ImageOps

# Rows of a row group.
GROUP_ROWS = 16

# Width and height.
SIZES = [(1, 1), (1, 37), (41, 1), (2, 3), (17, 19), (97, 61), (640, 427), (1031, 257)]
RESAMPLES = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}

Box = tuple[float, float, float, float]


class Sample(NamedTuple):
    """An encoded image, and what it is."""

    name: str
    content: bytes
    is_lossless: bool = True


def photos() -> list[Image.Image]:
    """Return photographs that PyPI's packages contain."""
    folder = Path(sklearn.datasets.__file__).parent / "images"
    hopper = matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    paths = [folder / "china.jpg", folder / "flower.jpg", Path(str(hopper))]
    # Without their colour profiles, which would be most of a small file.
    return [Image.fromarray(np.asarray(Image.open(path).convert("RGB"))) for path in paths]


def picture(size: tuple[int, int], number: int) -> Image.Image:
    """Return a part of a photograph of this size: sharp edges as well as soft ones."""
    photo = photos()[number % 3]
    return photo.resize((max(size[0], photo.width), max(size[1], photo.height))).crop((0, 0, *size))


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    """Return an image's file."""
    written = io.BytesIO()
    image.save(written, form, **options)
    return written.getvalue()


def samples() -> list[Sample]:
    """Return images of every format, layout, orientation and size."""
    found: list[Sample] = []
    for number, size in enumerate(SIZES):
        image = picture(size, number)
        name = f"{size[0]} x {size[1]}"
        found += [
            Sample(f"png {name}", encoded(image, "PNG")),
            Sample(f"webp lossless {name}", encoded(image, "WEBP", lossless=True)),
            Sample(f"gif {name}", encoded(image.convert("P"), "GIF")),
            Sample(f"jpeg {name}", encoded(image, "JPEG", quality=90), is_lossless=False),
            Sample(f"webp lossy {name}", encoded(image, "WEBP", quality=85), is_lossless=False),
        ]
    return found + layouts() + orientations()


def layouts() -> list[Sample]:
    """Return images of every layout of pixels."""
    image = picture((120, 90), 1)
    noise = np.random.default_rng(4).integers(0, 256, (90, 120), dtype=np.uint8)
    alpha = image.copy()
    alpha.putalpha(Image.fromarray(noise))
    deep = Image.fromarray((np.asarray(image.convert("L")).astype(np.uint16) << 8) + noise)
    frames = [picture((60, 50), number).convert("P") for number in range(3)]
    animated = {"save_all": True, "append_images": frames[1:], "duration": 40}
    palette = image.quantize(7)
    progressive = {"quality": 90, "progressive": True}
    found = {
        "png grey": encoded(image.convert("L"), "PNG"),
        "png grey and alpha": encoded(alpha.convert("LA"), "PNG"),
        "png alpha": encoded(alpha, "PNG"),
        "png bits": encoded(image.convert("1"), "PNG"),
        "png palette": encoded(palette, "PNG"),
        "png transparent palette": encoded(palette, "PNG", transparency=2),
        "png 16 bits": encoded(deep, "PNG"),
        "webp alpha": encoded(alpha, "WEBP", lossless=True, exact=True),
        "gif animated": encoded(frames[0], "GIF", **animated),
        "png animated": encoded(
            frames[0].convert("RGB"), "PNG", **{**animated, "append_images": [image.crop((0, 0, 60, 50))]}
        ),
    }
    lossy = {
        "webp animated": encoded(frames[0].convert("RGB"), "WEBP", **animated),
        "jpeg grey": encoded(image.convert("L"), "JPEG", quality=90),
        "jpeg cmyk": encoded(image.convert("CMYK"), "JPEG", quality=90),
        "jpeg progressive": encoded(image, "JPEG", **progressive),
        "jpeg progressive grey": encoded(image.convert("L"), "JPEG", **progressive),
        "jpeg 4:4:4": encoded(image, "JPEG", quality=95, subsampling=0),
        "jpeg 4:2:2": encoded(image, "JPEG", quality=95, subsampling=1),
        "jpeg restarts": encoded(image, "JPEG", quality=80, restart_marker_blocks=3),
    }
    return [Sample(name, content) for name, content in found.items()] + [
        Sample(name, content, is_lossless=False) for name, content in lossy.items()
    ]


def orientations() -> list[Sample]:
    """Return images of the eight orientations of EXIF."""
    image, found = picture((50, 31), 2), []
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        found += [
            Sample(f"png orientation {orientation}", encoded(image, "PNG", exif=exif)),
            Sample(f"jpeg orientation {orientation}", encoded(image, "JPEG", quality=95, exif=exif), is_lossless=False),
        ]
    return found


def upright(content: bytes, channels: int = 3) -> Image.Image:
    """Return the pixels of an image as Pillow decodes them, in RGB or greyscale."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    if image.mode.startswith("I;16"):
        # The upper 8 bits: Pillow's own conversion clips.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def expected(
    content: bytes,
    size: tuple[int, int],
    *,
    channels: int = 3,
    resize: str = "bilinear",
    box: Box | None = None,
    flip: bool = False,
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the tensor that Pillow makes of an image: `size` is height and width, `box` left, top, right, bottom."""
    image = upright(content, channels).resize((size[1], size[0]), RESAMPLES[resize], box=box)
    if flip:
        image = ImageOps.mirror(image)
    return np.asarray(image).reshape(*size, channels)


def fitted(content: bytes, size: tuple[int, int], **options: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the tensor of the centred box, by Pillow's own function."""
    image = ImageOps.fit(upright(content), (size[1], size[0]), Image.Resampling.BILINEAR, **options)
    return np.asarray(image)


def is_reduced(content: bytes, size: tuple[int, int], box: tuple[float, float] | None = None) -> bool:
    """Return whether the server decodes an image at a reduced size: `box` is the width and height that are shown."""
    image = Image.open(io.BytesIO(content))
    if image.format != "JPEG" or image.mode == "CMYK" or "progressive" in image.info:
        return False
    width, height = box or upright(content).size
    return min(width / size[1], height / size[0]) >= 8


def draws(row: int, *, seed: int, epoch: int, op_seed: int = 0) -> Callable[[int], int]:
    """Return the function from a number to the draw of an image, as docs/src/guides/images.md defines it."""

    def draw(number: int) -> int:
        words = struct.pack("<5Q", op_seed, seed, epoch, row, number)
        return xxhash.xxh3_64_intdigest(b"forebay image 1" + words)

    return draw


def random_box(
    size: tuple[int, int],
    draw: Callable[[int], int],
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> tuple[int, int, int, int]:
    """Return left, top, width and height: `RandomResizedCrop.get_params` of torchvision, with these draws."""
    width, height = size

    def between(number: int, bounds: Sequence[float]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * ((draw(number) >> 11) * 2.0**-53)

    for first in range(1, 41, 4):
        area = width * height * between(first, scale)
        aspect = math.exp(between(first + 1, [math.log(bound) for bound in ratio]))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = draw(first + 2) * (height - h + 1) >> 64
            left = draw(first + 3) * (width - w + 1) >> 64
            return left, top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = min(max(round(w / ratio[0]), 1), height)
    elif width / height > ratio[1]:
        w = min(max(round(h * ratio[1]), 1), width)
    return (width - w) // 2, (height - h) // 2, w, h


def flips(draw: Callable[[int], int]) -> bool:
    """Return whether an image with these draws is mirrored."""
    return draw(0) >> 63 == 1


def write(path: Path, contents: Sequence[bytes | None], kind: pa.DataType | None = None) -> None:
    """Write images and their row numbers."""
    images = pa.array(list(contents), kind or pa.binary())
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = pa.array(range(len(contents)), pa.int64())
    table = pa.table({"image": images, "n": numbers, "label": [n % 3 for n in range(len(contents))]})
    pq.write_table(table, path, row_group_size=GROUP_ROWS)
