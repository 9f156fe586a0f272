"""Random crops and flips: the documented draws, the same for every world size, replica and resumed stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.images import Sample, draws, encoded, expected, flips, is_reduced, random_box, upright
from harness.metrics import scrape
from harness.serving import Serve

IMAGE = fb.cols("image")
RANDOM = IMAGE.decode_image(24, 24, crop="random", flip=True)
PLAN = fb.Plan(outputs={"o": RANDOM, "n": fb.cols("n").as_stored()})


def rows(batches: Any) -> dict[int, bytes]:
    """Return the tensor of each row."""
    found: dict[int, bytes] = {}
    for batch in batches:
        for n, tensor in zip(batch.data.column("n").to_pylist(), np.asarray(batch["o"]), strict=True):
            assert n not in found
            found[n] = tensor.tobytes()
    return found


def test_draws_are_those_of_the_documentation(client: fb.Client, images: list[Sample]):
    for options in ({"seed": 3, "epoch": 1}, {"seed": 2**64 - 1, "epoch": 0, "shuffle": True}):
        stream = client.stream("images", PLAN, batch_size=16, **options)
        for n, tensor in rows(stream).items():
            image = images[n]
            draw = draws(n, seed=int(options["seed"]), epoch=int(options["epoch"]))
            left, top, width, height = random_box(upright(image.content).size, draw)
            box = (left, top, left + width, top + height)
            wanted = expected(image.content, (24, 24), box=box, flip=flips(draw))
            apart = np.abs(np.frombuffer(tensor, np.uint8).astype(int) - wanted.ravel())
            if is_reduced(image.content, (24, 24), (width, height)):
                assert (apart <= 8).mean() > 0.98, image.name
                continue
            assert apart.max() <= (1 if image.is_lossless else 4), (image.name, apart.max())


def test_torchvision_draws_the_same_distribution(client: fb.Client, images: list[Sample]):
    transforms = pytest.importorskip("torchvision.transforms")
    import torch

    torch.manual_seed(1)
    shape = torch.empty(3, 427, 640)
    theirs = [transforms.RandomResizedCrop.get_params(shape, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)]
    ours = [random_box((640, 427), draws(row, seed=1, epoch=0)) for row in range(4000)]
    for their, our in ((3, 2), (2, 3), (1, 0), (0, 1)):
        left = np.array([box[their] for box in theirs], float)
        right = np.array([box[our] for box in ours], float)
        assert abs(left.mean() - right.mean()) < 5 * left.std() / 4000**0.5


def test_a_mask_is_turned_like_its_image(serve: Serve, tmp_path: Path):
    """An image with an orientation and its mask, made from the stored pixels or from those that are shown."""
    stored = np.zeros((90, 160), np.uint8)
    stored[10:50, 20:70] = 255
    table: dict[str, list[bytes | None]] = {"image": [], "stored": [], "shown": []}
    for orientation in (1, 2, 3, 4, 5, 6, 7, 8):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        image = encoded(Image.fromarray(np.repeat(255 - stored[..., None], 3, 2)), "JPEG", quality=95, exif=exif)
        table["image"].append(image)
        table["stored"].append(encoded(Image.fromarray(stored), "PNG"))
        table["shown"].append(encoded(upright(image).convert("L").point(lambda value: 255 * (value < 128)), "PNG"))
    for column in table.values():
        column.append(column[5])
    table["image"].append(None)
    table["stored"].append(table["stored"][0])
    table["shown"].append(table["shown"][0])
    pq.write_table(pa.table(table), tmp_path / "masks.parquet")

    def view(column: str, channels: int, **options: Any) -> fb.Columns:
        op = {"crop": "random", "flip": True, "resize": "nearest", **options}
        return fb.cols(column).decode_image(64, 64, channels=channels, on_error="null", **op).fill_null(0)

    def agreement(mask: str, image: dict[str, Any], other: dict[str, Any]) -> np.ndarray:
        plan = fb.Plan(outputs={"image": view("image", 3, **image), "mask": view(mask, 1, **other)})
        batch = next(client.stream("masks", plan, batch_size=16))
        pixels, shown = np.asarray(batch["image"]).mean(-1), np.asarray(batch["mask"])[..., 0]
        return ((pixels < 128) == (shown > 127)).mean(axis=(1, 2))

    with fb.connect(serve({"masks": str(tmp_path / "masks.parquet")}).url) as client:
        for options in ({}, {"crop": "center", "flip": False}, {"crop": "none", "flip": False}):
            assert agreement("stored", options, options)[:9].min() > 0.95
            ignored = {**options, "orientation": "ignore"}
            assert agreement("stored", ignored, ignored)[:9].min() > 0.95
            # What is shown has other sides than what is stored: it is not turned again.
            assert agreement("shown", options, options)[[0, 4, 5, 6, 7, 8]].min() > 0.95
            assert agreement("shown", options, ignored)[:9].min() > 0.95
        assert agreement("stored", {}, {"orientation": "ignore"})[5] < 0.95
        plan = fb.Plan(outputs={"image": view("image", 3), "mask": view("stored", 1)})
        batches = list(client.stream("masks", plan, batch_size=4))
        again = list(client.stream("masks", plan, batch_size=4, start_position=4))
        assert all(one.data.equals(other.data) for one, other in zip(batches[1:], again, strict=True))
        # A plan of masks alone has nothing to turn them by, and other seeds are other views.
        seeds = fb.Plan(outputs={"image": view("image", 3), "mask": view("stored", 1, seed=1, crop="none", flip=False)})
        alone = fb.Plan(outputs={"mask": view("stored", 1, crop="none", flip=False)})
        masks = [np.asarray(next(client.stream("masks", plan, batch_size=16))["mask"]) for plan in (seeds, alone)]
        assert (masks[0] == masks[1]).all()
        assert (masks[1] == masks[1][0]).all()


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_world_size_has_the_tensors(client: fb.Client, world: int, shuffle: bool):
    options: Any = {"batch_size": 8, "seed": 9, "epoch": 2, "shuffle": shuffle, "lanes": 4 if shuffle else None}
    alone = rows(client.stream("images", PLAN, **{**options, "shuffle": False, "lanes": None}))
    found: dict[int, bytes] = {}
    for rank in range(world):
        found |= rows(client.stream("images", PLAN, world_size=world, rank=rank, **options))
    assert found == alone


@pytest.mark.parametrize("shuffle", [False, True])
def test_resume_and_replay_have_the_bytes(client: fb.Client, shuffle: bool):
    options: Any = {"batch_size": 8, "shuffle": shuffle, "seed": 5, "epoch": 3}
    batches = list(client.stream("images", PLAN, **options))
    for step in (1, 4, len(batches) - 1):
        rest = list(client.stream("images", PLAN, start_position=step * 8, **options))
        assert all(one.data.equals(other.data) for one, other in zip(rest, batches[step:], strict=True))
    assert client.replay("images", PLAN, rank=0, step=3, **options).batch.data.equals(batches[3].data)


def test_epochs_and_seeds_differ(client: fb.Client, daemon: Daemon):
    def read(**options: Any) -> dict[int, bytes]:
        return rows(client.stream("images", PLAN, batch_size=16, **options))

    first = read(seed=1, epoch=0)
    # Neither does the cache of the server return the rows of another epoch.
    assert first == read(seed=1, epoch=0)
    for other in ({"seed": 1, "epoch": 1}, {"seed": 2, "epoch": 0}):
        changed = read(**other)
        assert sum(changed[n] != first[n] for n in first) > len(first) * 0.7
    before = scrape(daemon).value("forebay_cache_hits_total")
    assert read(seed=1, epoch=0) == first
    assert scrape(daemon).value("forebay_cache_hits_total") == before


def test_another_replica_has_the_bytes(client: fb.Client, data: Path, tmp_path: Path):
    options: Any = {"batch_size": 16, "seed": 4, "epoch": 6, "shuffle": True}
    flags = ["--dataset", f"images={data / 'images'}", "--state", str(tmp_path), "--cpu-threads", "5"]
    server = Daemon(*LOOPBACK, *flags)
    try:
        with fb.connect(server.url) as other:
            assert rows(other.stream("images", PLAN, **options)) == rows(client.stream("images", PLAN, **options))
    finally:
        server.stop()


def test_columns_of_a_seed_are_cropped_alike(client: fb.Client):
    """An image and its mask, with the crop and the flip of the image."""
    nearest: Any = {"crop": "random", "flip": True, "resize": "nearest"}
    outputs = {
        "one": IMAGE.decode_image(9, 9, **nearest),
        "same": IMAGE.decode_image(9, 9, channels=1, **nearest),
        "other": IMAGE.decode_image(9, 9, seed=1, **nearest),
    }
    batch = next(client.stream("images", fb.Plan(outputs=outputs), batch_size=64, seed=2))
    one, same, other = (np.asarray(batch[name]) for name in outputs)
    grey = (one.astype(np.uint32) @ [19595, 38470, 7471] + 0x8000) >> 16
    assert np.abs(grey.astype(int) - same[..., 0]).max() <= 1
    assert (one != other).any()


def test_random_access_has_epoch_0_and_seed_0(client: fb.Client):
    found = rows(client.stream("images", PLAN, batch_size=16))
    taken = np.asarray(client.take("images", PLAN, [5, 0, 5])["o"])
    assert [tensor.tobytes() for tensor in taken] == [found[5], found[0], found[5]]


def test_encoded_images_have_their_box_and_flip(client: fb.Client, images: list[Sample]):
    plan = fb.Plan(outputs={"o": IMAGE.decode_image(24, 24, crop="random", flip=True, encoded=True)})
    batches = list(client.stream("images", plan, batch_size=16, seed=3, epoch=1))
    stored = [content for batch in batches for content in batch.data.column("o").to_pylist()]
    boxes = np.concatenate([np.asarray(batch["o_box"]) for batch in batches])
    mirrored = np.concatenate([np.asarray(batch["o_flip"]) for batch in batches])
    assert stored == [image.content for image in images]
    for n, image in enumerate(images):
        draw = draws(n, seed=3, epoch=1)
        assert tuple(boxes[n]) == random_box(upright(image.content).size, draw), image.name
        assert mirrored[n] == flips(draw)


@pytest.mark.parametrize("op", [RANDOM, IMAGE.decode_image(8, 8, flip=True)])
def test_exchanges_refuse_random_crops(client: fb.Client, op: fb.Columns):
    plan = fb.Plan(outputs={"o": op})
    refused = pytest.raises(fb.InvalidRequest, match="serve a plan with the crop CENTER or NONE")
    with refused as failed, client.exchange(plan) as exchange:
        exchange.batch(pa.record_batch({"image": pa.array([b""], pa.binary())}))
    assert failed.value.reason == "INVALID_REQUEST"


def test_draws_do_not_depend_on_the_files_that_a_filter_keeps(images: list[Sample], tmp_path: Path):
    contents = [image.content for image in images[:12]]
    for folder in range(3):
        rows = {
            "n": range(folder * 4, folder * 4 + 4),
            "image": pa.array(contents[folder * 4 : folder * 4 + 4], pa.binary()),
        }
        (tmp_path / f"t/p={folder}").mkdir(parents=True)
        pq.write_table(pa.table(rows), tmp_path / f"t/p={folder}/a.parquet")
    daemon = Daemon(*LOOPBACK, "--state", str(tmp_path / "state"), f"--dataset=t={tmp_path / 't'}")
    try:
        with fb.connect(daemon.urls[0]) as client:
            options: Any = {"batch_size": 4, "seed": 7, "epoch": 1, "shuffle": True}
            alone = rows_of(client, PLAN, **options)
            for outputs in ({"flip": True}, {"crop": "random"}, {"crop": "random", "flip": True}):
                plan = fb.Plan(outputs={"o": IMAGE.decode_image(24, 24, **outputs), "n": fb.cols("n").as_stored()})
                every = rows_of(client, plan, **options)
                for text, first in (("p >= 1", 4), ("p = 2", 8), ("p = 1 AND n > 4", 5)):
                    kept = plan.with_filter(text)
                    for more in ({}, {"with_row_ids": True}, {"shuffle": False}):
                        found = rows_of(client, kept, **{**options, **more})
                        assert found
                        assert found == {n: every[n] for n in found}, (outputs, text, more)
                        assert min(found) == first
            assert len(alone) == 12
    finally:
        daemon.stop()


def rows_of(client: fb.Client, plan: fb.Plan, **options: Any) -> dict[int, bytes]:
    return rows(client.stream("t", plan, **options))
