"""The arguments of the op that turns encoded images into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from .arguments import choice, in_range, number, whole_number
from .generated.messages import ENUMS, Crop, OnError, Orientation, Resize
from .generated.ops import DecodeImage
from .values import Normalize

# The server's limit of the values of a tensor.
VALUES_MAX = 2**24

# torchvision's bounds of random boxes.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)

Bounds = tuple[float, float]


def decode_image(
    height: int,
    width: int,
    *,
    channels: int,
    resize: Resize,
    crop: Crop,
    scale: Bounds | None,
    ratio: Bounds | None,
    flip: bool,
    seed: int,
    normalize: tuple[Sequence[float], Sequence[float]] | None,
    on_error: OnError,
    encoded: bool,
    orientation: Orientation,
) -> DecodeImage:
    """Check the arguments of `Columns.decode_image` and return the op."""
    sides = [
        whole_number(f"decode_image: {name}", side, *DecodeImage.limits[name])
        for name, side in (("height", height), ("width", width))
    ]
    if channels not in (1, 3):
        raise ValueError(f"decode_image: channels must be 1 (greyscale) or 3 (RGB), not {channels!r}")
    if sides[0] * sides[1] * channels > VALUES_MAX:
        raise ValueError(
            f"decode_image: a tensor has at most {VALUES_MAX} values, not {sides[0] * sides[1] * channels}"
        )
    if crop != "random" and (scale is not None or ratio is not None):
        raise ValueError('decode_image: scale and ratio bound the random crop: pass crop="random" too')
    if encoded and (normalize is not None or on_error == "null"):
        raise ValueError('decode_image: an encoded image is as stored: do not pass normalize or on_error="null"')
    is_random = crop == "random"
    scales = _bounds("scale", scale or SCALE, 1.0) if is_random else (None, None)
    ratios = _bounds("ratio", ratio or RATIO, 1000.0) if is_random else (None, None)
    return DecodeImage(
        height=sides[0],
        width=sides[1],
        channels=channels,
        resize=choice("decode_image: resize", resize, ENUMS["Resize"]),
        crop=choice("decode_image: crop", crop, ENUMS["Crop"]),
        scale_min=scales[0],
        scale_max=scales[1],
        ratio_min=ratios[0],
        ratio_max=ratios[1],
        flip=flip,
        seed=whole_number("decode_image: seed", seed),
        normalize=None if normalize is None else _normalize(normalize, channels),
        on_error=choice("decode_image: on_error", on_error, ENUMS["OnError"]),
        encoded=encoded,
        orientation=choice("decode_image: orientation", orientation, ENUMS["Orientation"]),
    )


def _bounds(name: str, bounds: Bounds, most: float) -> Bounds:
    least, greatest = (in_range(f"decode_image: {name}", bound, 1e-3, most) for bound in bounds)
    if least > greatest:
        raise ValueError(f"decode_image: {name} must be (least, greatest), not {bounds!r}")
    return least, greatest


def _normalize(normalize: object, channels: int) -> Normalize:
    if not isinstance(normalize, (tuple, list)) or len(cast("Sequence[object]", normalize)) != 2:
        raise TypeError(f"decode_image: normalize must be (means, deviations), not {normalize!r}")
    listed: list[tuple[float, ...]] = []
    for name, values in zip(("mean", "std"), cast("Sequence[Sequence[object]]", normalize), strict=True):
        numbers = tuple(number(f"decode_image: normalize: {name}", value) for value in values)
        if len(numbers) != channels:
            raise ValueError(f"decode_image: normalize: pass {channels} {name} value(s), not {len(numbers)}")
        listed.append(numbers)
    if 0 in listed[1]:
        raise ValueError("decode_image: normalize: a deviation of 0 divides; pass others")
    return Normalize(listed[0], listed[1])
