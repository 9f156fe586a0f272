"""The op that turns encoded images into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from .op import UINT64_MAX, Json, Op, in_range, number, whole_number

Resize = Literal["bilinear", "nearest", "bicubic", "lanczos", "box", "hamming"]
Crop = Literal["none", "center", "random"]
OnImageError = Literal["fail", "null", "skip"]
Orientation = Literal["apply", "ignore"]

# In the order of their numbers in plan.proto.
RESIZES = ("bilinear", "nearest", "bicubic", "lanczos", "box", "hamming")
CROPS = ("none", "center", "random")
ON_ERRORS = ("fail", "null", "skip")
ORIENTATIONS = ("apply", "ignore")

# The server's limits: rows or columns, and values, of a tensor.
SIDE_MAX = 16_384
VALUES_MAX = 2**24

# torchvision's bounds of random boxes.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)

Bounds = tuple[float, float]
Normalize = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class DecodeImage(Op):
    """A tensor [height, width, channels] of the bytes of an image."""

    name: ClassVar[str] = "decode_image"
    height: int = 0
    width: int = 0
    channels: int = 3
    resize: str = "BILINEAR"
    crop: str = "NONE"
    scale: tuple[float | None, float | None] = (None, None)
    ratio: tuple[float | None, float | None] = (None, None)
    flip: bool = False
    seed: int = 0
    normalize: Normalize | None = None
    on_error: str = "FAIL"
    encoded: bool = False
    orientation: str = "APPLY"
    turned_like: tuple[str, ...] = ()

    def to_dict(self) -> Json:
        """Return the fields that are set."""
        fields: Json = {"height": self.height, "width": self.width, "channels": self.channels}
        if self.resize != "BILINEAR":
            fields["resize"] = self.resize
        if self.crop != "NONE":
            fields["crop"] = self.crop
        for name, bounds in (("scale", self.scale), ("ratio", self.ratio)):
            fields.update(
                {f"{name}_{end}": bound for end, bound in zip(("min", "max"), bounds, strict=True) if bound is not None}
            )
        if self.flip:
            fields["flip"] = True
        if self.seed:
            fields["seed"] = self.seed
        if self.normalize is not None:
            fields["normalize"] = {"mean": list(self.normalize[0]), "std": list(self.normalize[1])}
        if self.on_error != "FAIL":
            fields["on_error"] = self.on_error
        if self.encoded:
            fields["encoded"] = True
        if self.orientation != "APPLY":
            fields["orientation"] = self.orientation
        if self.turned_like:
            fields["turned_like"] = list(self.turned_like)
        return fields


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
    on_error: OnImageError,
    encoded: bool,
    orientation: Orientation,
) -> DecodeImage:
    """Check the arguments of `Columns.decode_image` and return the op."""
    sides = [
        whole_number(f"decode_image: {name}", side, least=1, most=SIDE_MAX)
        for name, side in (("height", height), ("width", width))
    ]
    if channels not in (1, 3):
        raise ValueError(f"decode_image: channels must be 1 (greyscale) or 3 (RGB), not {channels!r}")
    if sides[0] * sides[1] * channels > VALUES_MAX:
        raise ValueError(
            f"decode_image: a tensor has at most {VALUES_MAX} values, not {sides[0] * sides[1] * channels}"
        )
    choices = (
        ("resize", resize, RESIZES),
        ("crop", crop, CROPS),
        ("on_error", on_error, ON_ERRORS),
        ("orientation", orientation, ORIENTATIONS),
    )
    for name, value, known in choices:
        if value not in known:
            raise ValueError(f"decode_image: {name} must be one of {', '.join(known)}, not {value!r}")
    if crop != "random" and (scale is not None or ratio is not None):
        raise ValueError('decode_image: scale and ratio bound the random crop: pass crop="random" too')
    if encoded and (normalize is not None or on_error == "null"):
        raise ValueError('decode_image: an encoded image is as stored: do not pass normalize or on_error="null"')
    boxes = (
        (_bounds("scale", scale or SCALE, 1.0), _bounds("ratio", ratio or RATIO, 1000.0))
        if crop == "random"
        else ((None, None), (None, None))
    )
    return DecodeImage(
        sides[0],
        sides[1],
        channels,
        resize.upper(),
        crop.upper(),
        *boxes,
        flip,
        whole_number("decode_image: seed", seed, most=UINT64_MAX),
        None if normalize is None else _normalize(normalize, channels),
        on_error.upper(),
        encoded,
        orientation.upper(),
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
    return listed[0], listed[1]
