"""Tensors have the pixels of Pillow, of every format, layout, orientation, filter and size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.images import RESAMPLES, Sample, encoded, expected, fitted, is_reduced, photos, upright

IMAGE = fb.cols("image")


def tensors(client: fb.Client, columns: fb.Columns, dataset: str = "images", **options: Any) -> Any:
    plan = fb.Plan(outputs={"o": fb.output(columns, **options)})
    batches = client.stream(dataset, plan, batch_size=16)
    return np.concatenate([np.asarray(batch["o"]) for batch in batches])


class Differences(NamedTuple):
    """How far values are from Pillow's: for images decoded exactly, for others, and for those at a reduced size."""

    exact: Any
    rounded: Any
    reduced: Any


def differences(found: Any, images: list[Sample], **options: Any) -> Differences:
    size, apart = found.shape[1:3], Differences([], [], [])
    for tensor, image in zip(found, images, strict=True):
        wanted = expected(image.content, size, channels=found.shape[3], **options)
        is_small = options.get("resize") != "nearest" and is_reduced(image.content, size)
        kind = apart.exact if image.is_lossless else apart.reduced if is_small else apart.rounded
        kind.append(np.abs(tensor.astype(int) - wanted).ravel())
    return Differences(*(np.concatenate(kind or [np.zeros(1)]) for kind in apart))


@pytest.mark.parametrize("resize", [name for name in RESAMPLES if name != "nearest"])
@pytest.mark.parametrize("size", [(32, 48), (224, 224), (7, 3)])
def test_every_image_with_every_filter(client: fb.Client, images: list[Sample], resize: Any, size: tuple[int, int]):
    found = tensors(client, IMAGE.decode_image(*size, resize=resize))
    assert (found.shape, found.dtype) == ((len(images), *size, 3), np.uint8)
    exact, rounded, reduced = differences(found, images, resize=resize)
    is_smooth = resize in {"bilinear", "box", "hamming"}
    # Filters with negative weights add up larger numbers.
    assert exact.max() <= (1 if is_smooth else 2)
    assert (exact <= 1).mean() > 0.99999
    # The decoder of JPEG differs from libjpeg-turbo by up to 4 levels before images are resized.
    assert rounded.max() <= (3 if is_smooth else 5)
    assert (rounded <= 1).mean() >= 0.95
    assert (rounded <= 2).mean() >= 0.998
    if resize == "bilinear":
        assert (rounded <= 1).mean() >= 0.98
        assert reduced.max() <= 8
        assert (reduced <= 2).mean() >= 0.97


def test_nearest(client: fb.Client, images: list[Sample]):
    found = tensors(client, IMAGE.decode_image(24, 36, resize="nearest"))
    exact, rounded, _ = differences(found, images, resize="nearest")
    assert (exact == 0).all()
    assert rounded.max() <= 5


def test_greyscale(client: fb.Client, images: list[Sample]):
    found = tensors(client, IMAGE.decode_image(33, 20, channels=1))
    assert found.shape == (len(images), 33, 20, 1)
    exact, rounded, _ = differences(found, images)
    assert exact.max() <= 1
    assert rounded.max() <= 3


def test_photographs_at_their_size(client: fb.Client, images: list[Sample]):
    """Without a change of size, the pixels are those of the decoder."""
    found = tensors(client, IMAGE.decode_image(427, 640))
    for tensor, image in zip(found, images, strict=True):
        if "640 x 427" in image.name and image.is_lossless:
            np.testing.assert_array_equal(tensor, np.asarray(upright(image.content)), image.name)


def test_the_centred_box(client: fb.Client, images: list[Sample]):
    for size in ((64, 64), (30, 90), (90, 30)):
        found = tensors(client, IMAGE.decode_image(*size, crop="center"))
        for tensor, image in zip(found, images, strict=True):
            apart = np.abs(tensor.astype(int) - fitted(image.content, size))
            is_small = is_reduced(image.content, size)
            most = 1 if image.is_lossless else 16 if is_small else 4
            assert apart.max() <= most, (image.name, size, apart.max())


def test_a_large_photograph_is_decoded_at_a_reduced_size(client: fb.Client, large: bytes):
    found = tensors(client, IMAGE.decode_image(224, 224), dataset="photo")
    apart = np.abs(found[0].astype(int) - expected(large, (224, 224)))
    assert (apart <= 2).mean() > 0.99
    # A target of more than half of the reduced size is decoded in full.
    found = tensors(client, IMAGE.decode_image(700, 900), dataset="photo")
    apart = np.abs(found[0].astype(int) - expected(large, (700, 900)))
    assert (apart <= 1).mean() > 0.999


def test_values_may_be_scaled(client: fb.Client, images: list[Sample]):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = tensors(client, IMAGE.decode_image(16, 16))
    scaled = tensors(client, IMAGE.decode_image(16, 16, normalize=(mean, std)))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, (pixels / 255 - mean) / std, rtol=1e-6, atol=1e-6)
    halves = tensors(client, IMAGE.decode_image(16, 16, normalize=(mean, std)), dtype="FLOAT16")
    np.testing.assert_array_equal(halves, scaled.astype(np.float16))
    unit = tensors(client, IMAGE.decode_image(16, 16).min_max(min=0, max=255))
    np.testing.assert_array_equal(unit, (pixels / 255).astype(np.float32))
    clipped = tensors(client, IMAGE.decode_image(16, 16).clip(10, 99))
    np.testing.assert_array_equal(clipped, pixels.clip(10, 99))


def test_the_column_is_a_tensor(client: fb.Client):
    plan = fb.Plan(outputs={"o": IMAGE.decode_image(5, 6), "grey": IMAGE.decode_image(1, 1, channels=1)})
    schema = next(client.stream("images", plan, batch_size=4)).data.schema
    assert schema.field("o").type == pa.fixed_shape_tensor(pa.uint8(), [5, 6, 3])
    assert schema.field("grey").type == pa.fixed_shape_tensor(pa.uint8(), [1, 1, 1])


@pytest.mark.parametrize("dataset", ["views", "structs"])
def test_other_columns_of_images(client: fb.Client, dataset: str):
    op = IMAGE.decode_image(20, 20)
    np.testing.assert_array_equal(tensors(client, op, dataset=dataset), tensors(client, op))


def test_nulls(client: fb.Client):
    op = IMAGE.decode_image(4, 4)
    with pytest.raises(fb.InvalidRequest, match="row 1 is null; fill nulls with fill_null"):
        tensors(client, op, dataset="nulls")
    filled = tensors(client, op.fill_null(7), dataset="nulls")
    assert (filled[1] == 7).all()
    assert not (filled[0] == 7).all()
    halves = tensors(client, op.fill_null(0.5), dataset="nulls")
    assert (halves[1] == 0.5).all()
    assert (halves[2] == filled[2]).all()


def test_photographs_of_packages(client: fb.Client):
    """Exchanges decode a client's own images."""
    contents = [image.content for image in map(_jpeg, photos())]
    plan = fb.Plan(outputs={"o": IMAGE.decode_image(224, 224, crop="center")})
    with client.exchange(plan) as exchange:
        answered = exchange.batch(pa.record_batch({"image": pa.array(contents, pa.binary())}))
    for tensor, content in zip(answered["o"].to_numpy_ndarray(), contents, strict=True):
        apart = np.abs(tensor.astype(int) - fitted(content, (224, 224)))
        assert (apart <= 1).mean() > 0.99
        assert apart.max() <= 4


def _jpeg(image: Any) -> Sample:
    return Sample("photo", encoded(image, "JPEG", quality=90), is_lossless=False)
