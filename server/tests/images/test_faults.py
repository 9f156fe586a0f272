"""Images that cannot be decoded: errors name the file, the row group, the row and the cause; plans may accept them."""

# Messages contain multiplication signs.
# ruff: noqa: RUF001

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.images import encoded, picture, write
from harness.metrics import scrape

IMAGE = fb.cols("image")
OP = IMAGE.decode_image(8, 8)
GOOD = encoded(picture((60, 40), 0), "JPEG", quality=90)
PNG = encoded(picture((60, 40), 0), "PNG")
WEBP = encoded(picture((60, 40), 0), "WEBP", quality=80)
GIF = encoded(picture((60, 40), 0).convert("P"), "GIF")


def declared_png(width: int, height: int) -> bytes:
    """Return a PNG image that declares this size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG[:8] + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + PNG[33:]


def frame(content: bytes, marker: int, precision: int = 8) -> bytes:
    """Return a JPEG image with another frame header."""
    at = content.index(b"\xff\xc0")
    return content[: at + 1] + bytes([marker]) + content[at + 2 : at + 4] + bytes([precision]) + content[at + 5 :]


# Name, bytes, and words of the error.
BAD = {
    "empty": (b"", "there are no bytes"),
    "text": (b"not an image", "not a JPEG, PNG, WebP or GIF image; the first bytes are 6e 6f 74"),
    "bmp": (encoded(picture((6, 4), 0), "BMP"), "not a JPEG, PNG, WebP or GIF image; the first bytes are 42 4d"),
    "tiff": (encoded(picture((6, 4), 0), "TIFF"), "not a JPEG, PNG, WebP or GIF image"),
    "jpeg start": (GOOD[:2], "truncated JPEG image"),
    "jpeg header": (GOOD[:100], "truncated JPEG image"),
    "jpeg half": (GOOD[: len(GOOD) // 2], "truncated JPEG image: it has no end-of-image marker"),
    "jpeg without end": (GOOD[:-2], "truncated JPEG image"),
    "jpeg 12 bits": (frame(GOOD, 0xC1, 12), "a JPEG image of 12 bits per sample"),
    "jpeg lossless": (frame(GOOD, 0xC3), "a lossless JPEG image"),
    "jpeg arithmetic": (frame(GOOD, 0xC9), "a JPEG image with arithmetic coding"),
    "png header": (PNG[:20], "truncated PNG image"),
    "png half": (PNG[: len(PNG) // 2], "damaged PNG image"),
    "png checksum": (PNG[:-20] + bytes([PNG[-20] ^ 1]) + PNG[-19:], "damaged PNG image"),
    "png bomb": (declared_png(31_623, 31_623), "declares 31623 × 31623 pixels, the limit is 134217728"),
    "png zero": (declared_png(0, 7), "the PNG image has 0 × 7 pixels"),
    "webp header": (WEBP[:14], "truncated WebP image"),
    "webp half": (WEBP[: len(WEBP) // 2], "truncated WebP image: it declares more bytes"),
    "gif header": (GIF[:8], "truncated GIF image"),
    "gif half": (GIF[: len(GIF) // 2], "damaged GIF image"),
    "gif zero": (GIF[:6] + b"\0\0\0\0" + GIF[10:], "the GIF image has 0 × 0 pixels"),
}
BAD_ROW = 21


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("faults")
    good = [GOOD, PNG, WEBP, GIF] * 10
    datasets = {"good": good, "many": [*good, *(content for content, _ in BAD.values()), GOOD]}
    for name, (content, _) in BAD.items():
        datasets[name.replace(" ", "-")] = [*good[:BAD_ROW], content, *good[BAD_ROW:]]
    datasets["huge"] = [GOOD, encoded(picture((60, 40), 1).resize((9000, 9000)), "PNG", compress_level=1)]
    flags = ["--state", str(folder / "state"), "--memory-limit-bytes", "512MiB"]
    for name, contents in datasets.items():
        write(folder / name / "a.parquet", contents)
        flags += ["--dataset", f"{name}={folder / name}"]
    write(folder / "numbers" / "a.parquet", ["1", "2"], pa.string())
    server = Daemon(*LOOPBACK, *flags, "--dataset", f"numbers={folder / 'numbers'}")
    yield server
    server.stop()


@pytest.fixture
def client(faulty: Daemon) -> Iterator[fb.Client]:
    with fb.connect(faulty.url, retry_seconds=0) as connected:
        yield connected
        # The fault leaves no memory behind, and other streams are not affected.
        assert len(rows(connected, "good", OP)) == 40
    assert scrape(faulty).value("forebay_memory_reserved_bytes") == 0


def rows(client: fb.Client, dataset: str, columns: fb.Columns, **options: Any) -> dict[int, Any]:
    plan = fb.Plan(outputs={"o": columns, "n": fb.cols("n").as_stored()})
    batches = client.stream(dataset, plan, **{"batch_size": 8, **options})
    return {
        n: tensor
        for batch in batches
        for n, tensor in zip(batch.data.column("n").to_pylist(), np.asarray(batch["o"]), strict=True)
    }


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_fails_the_stream_with_its_place(client: fb.Client, faulty: Daemon, name: str):
    before = scrape(faulty).value("forebay_image_errors_total", action="fail")
    with pytest.raises(fb.InvalidRequest) as failed:
        rows(client, name.replace(" ", "-"), OP)
    message = str(failed.value)
    assert failed.value.reason == "INVALID_VALUE"
    assert BAD[name][1] in message, message
    assert f'a.parquet", row group 1: column "image", row {BAD_ROW}: ' in message, message
    assert "on_error NULL or SKIP accepts such rows" in message
    assert scrape(faulty).value("forebay_image_errors_total", action="fail") > before


def test_a_bad_image_may_be_filled(client: fb.Client, faulty: Daemon):
    before = scrape(faulty).value("forebay_image_errors_total", action="null")
    op = IMAGE.decode_image(8, 8, on_error="null")
    found = rows(client, "many", op.fill_null(3))
    assert len(found) == 41 + len(BAD)
    assert [n for n, tensor in found.items() if (tensor == 3).all()] == list(range(40, 40 + len(BAD)))
    assert scrape(faulty).value("forebay_image_errors_total", action="null") - before >= len(BAD)
    with pytest.raises(fb.InvalidRequest, match="is null; fill nulls with fill_null"):
        rows(client, "many", op)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 3])
def test_bad_images_may_be_skipped(client: fb.Client, shuffle: bool, world: int):
    op = IMAGE.decode_image(8, 8, crop="random", on_error="skip")
    plan = fb.Plan(outputs={"o": op, "n": fb.cols("n").as_stored()})
    kept = {*range(40), 40 + len(BAD)}
    lanes: Any = {"shuffle": True, "lanes": 3} if shuffle else {}
    stream = client.stream("many", plan, batch_size=4, **lanes)
    assert stream.info.rows == len(kept)
    found: dict[int, Any] = {}
    for rank in range(world):
        part = rows(client, "many", op, batch_size=4, world_size=world, rank=rank, **lanes)
        assert not found.keys() & part.keys()
        found |= part
    assert found.keys() == kept
    batches = list(client.stream("many", plan, batch_size=4, **lanes))
    rest = list(client.stream("many", plan, batch_size=4, start_position=16, **lanes))
    assert all(one.data.equals(other.data) for one, other in zip(rest, batches[4:], strict=True))


def test_skipped_rows_are_combined_with_a_filter(client: fb.Client, faulty: Daemon):
    op = IMAGE.decode_image(8, 8, on_error="skip")
    plan = fb.Plan(filter="n >= 36", outputs={"o": op, "n": fb.cols("n").as_stored()})
    stream = client.stream("many", plan, batch_size=4)
    assert stream.info.rows == 5
    assert [n for batch in stream for n in batch.data.column("n").to_pylist()] == [36, 37, 38, 39, 40 + len(BAD)]
    # Found once: the second stream counts none.
    before = scrape(faulty).value("forebay_image_errors_total", action="skip")
    assert before > 0
    list(client.stream("many", plan, batch_size=4))
    assert scrape(faulty).value("forebay_image_errors_total", action="skip") == before


def test_encoded_images_need_a_header_only(client: fb.Client):
    def read(op: fb.Columns, dataset: str) -> list[bytes]:
        batches = client.stream(dataset, fb.Plan(outputs={"o": op}), batch_size=8)
        return [content for batch in batches for content in batch.data.column("o").to_pylist()]

    assert read(IMAGE.decode_image(8, 8, encoded=True), "png-half")[BAD_ROW] == BAD["png half"][0]
    with pytest.raises(fb.InvalidRequest, match="row 21: not a JPEG"):
        read(IMAGE.decode_image(8, 8, encoded=True), "bmp")
    assert len(read(IMAGE.decode_image(8, 8, encoded=True, on_error="skip"), "bmp")) == 40


def test_an_image_beyond_the_memory_is_refused_with_its_row(client: fb.Client):
    with pytest.raises(fb.ForebayError, match=r"row 1: decoding an image of 9000 × 9000 pixels needs") as failed:
        rows(client, "huge", OP)
    assert failed.value.reason == "LIMIT"
    # Memory is not a property of the image.
    with pytest.raises(fb.ForebayError, match="9000 × 9000 pixels"):
        rows(client, "huge", IMAGE.decode_image(8, 8, on_error="skip"))


def test_damaged_bytes_end_in_an_error_or_pixels(client: fb.Client):
    random, contents = np.random.default_rng(5), []
    for content in (GOOD, PNG, WEBP, GIF):
        for _ in range(60):
            damaged = bytearray(content)
            for at in random.integers(0, len(damaged), 3):
                damaged[at] ^= 1 << random.integers(0, 8)
            contents.append(bytes(damaged))
    plan, refused = fb.Plan(outputs={"o": IMAGE.decode_image(8, 8, on_error="null").fill_null(0)}), []
    for content in contents:
        try:
            with client.exchange(plan) as exchange:
                answered = exchange.batch(pa.record_batch({"image": pa.array([content], pa.binary())}))
        except fb.ResourceExhausted as error:
            refused.append(str(error))
            continue
        assert answered["o"].to_numpy_ndarray().shape == (1, 8, 8, 3)
    # A damaged header may declare more pixels than the memory has room for.
    assert len(refused) < 10
    assert all("decoding an image of" in message for message in refused)


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([{"log1p": {}}, {"decode_image": {"height": 1, "width": 1}}], r"ops\[1\].decode_image: must be the first op"),
        ([{"decode_image": {"height": 0, "width": 1}}], "decode_image.height: must be from 1 to 16384"),
        ([{"decode_image": {"height": 1, "width": 1, "crop": "centre"}}], "one of NONE, CENTER, RANDOM"),
        ([{"decode_image": {"height": 1, "width": 1}}, {"standardize": {}}], "nothing is learned from pixels"),
    ],
)
def test_invalid_ops_are_refused_with_the_field(client: fb.Client, ops: list[dict[str, Any]], words: str):
    plan = {"outputs": [{"name": "o", "parts": [{"columns": ["image"], "ops": ops}]}]}
    with pytest.raises((fb.InvalidRequest, ValueError), match=words):
        list(client.stream("good", fb.Plan.from_dict(plan), batch_size=8))


def test_a_column_without_images_is_refused(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match='an image is a column of bytes, .* column "image" is Utf8'):
        rows(client, "numbers", OP)
