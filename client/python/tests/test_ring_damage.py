"""Frames that no server sends: the reader of a ring raises, in bounded time, and returns every slot at most once."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import forebay as fb
from forebay._client.ring import RingReader
from forebay._client.ring_memory import GET_SEALS, SEAL_SHRINK
from forebay._client.ring_socket import ANSWER, CANCEL, END, HEAD, INLINE, MESSAGE, SLOT
from harness.scripted_stream import BATCH, BODY, FAILURES, HEADER, METADATA, SCHEMA, damaged

ADD_SEALS = 1033
SLOTS, SLOT_BYTES = 4, 8192


ANSWERED = json.dumps({"slots": SLOTS, "slot_bytes": SLOT_BYTES, "headers": {"x-request-id": "a"}}).encode()
COMPLETE = json.dumps({"code": 0, "message": "", "trailers": {}}).encode()


def frame(
    kind: int, metadata: bytes, header: bytes = b"", *, slot: int | None = None, size: int = 0, body: bytes = b""
) -> bytes:
    place = INLINE if slot is None else SLOT
    size = size or len(body)
    return HEAD.pack(kind, place, slot or 0, len(metadata), len(header), size) + metadata + header + body


GOOD = [
    frame(ANSWER, ANSWERED),
    frame(MESSAGE, SCHEMA),
    frame(MESSAGE, METADATA, HEADER, slot=1, size=len(BODY)),
    frame(MESSAGE, METADATA, HEADER, body=BODY),
    frame(END, COMPLETE),
]


class Scripted:
    """A ring that sends given bytes to each client, for any request, and keeps what it received."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "s.ring")
        self.script = b""
        self.file: int | None = memory()
        self.received = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.is_done = threading.Event()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(20)
                received = client.recv(1 << 16)
                first, rest = self.script[:1], self.script[1:]
                if first and self.file is not None:
                    socket.send_fds(client, [first], [self.file])
                    client.sendall(rest)
                elif first:
                    client.sendall(self.script)
                client.shutdown(socket.SHUT_WR)
                while data := client.recv(1 << 16):
                    received += data
                self.received = received
            self.is_done.set()

    def read(self, script: bytes) -> list[pa.RecordBatch]:
        """The batches that a client reads from these bytes; raises its error."""
        self.script = script
        self.is_done.clear()
        reader = RingReader(self.path, [(b"a", b"b")], b"ticket")
        found: list[pa.RecordBatch] = []
        try:
            while True:
                found.append(reader.read().data)
        except StopIteration:
            return found
        finally:
            reader.close()

    def returns(self) -> list[int]:
        """The slots that the last client returned, once it has closed."""
        assert self.is_done.wait(20)
        hello = 8 + struct.unpack("<I", self.received[4:8])[0]
        sent = self.received[hello:]
        assert len(sent) % 4 == 0
        numbers = [sent[at : at + 4] for at in range(0, len(sent), 4)]
        return [struct.unpack("<I", number)[0] for number in numbers if number != CANCEL]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)


def memory(*, seals: int = SEAL_SHRINK, size: int = SLOTS * SLOT_BYTES) -> int:
    file = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    if size > SLOT_BYTES:
        os.pwrite(file, BODY, SLOT_BYTES)
    if seals:
        fcntl.fcntl(file, ADD_SEALS, seals)
    assert fcntl.fcntl(file, GET_SEALS) == seals
    return file


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    server = Scripted(tmp_path)
    yield server
    server.close()


def test_the_script_is_what_a_server_sends(scripted: Scripted):
    read = scripted.read(b"".join(GOOD))
    assert [batch.equals(BATCH) for batch in read] == [True, True]
    del read
    assert scripted.returns() == [1]


def test_every_end_but_the_last_frame_breaks_the_stream(scripted: Scripted):
    whole = b"".join(GOOD)
    for end in [0, 1, 15, 16, 40, *range(60, len(whole) - 1, 331)]:
        with pytest.raises((fb.Unavailable, fb.BrokenStream)):
            scripted.read(whole[:end])


BAD: dict[str, tuple[bytes, str]] = {
    "no answer": (GOOD[1], "did not begin|invalid message"),
    "second answer": (GOOD[0] + GOOD[1] + GOOD[0], "in the middle of a stream"),
    "unknown kind": (frame(9, b""), "unknown kind"),
    "huge metadata": (HEAD.pack(MESSAGE, INLINE, 0, 1 << 30, 0, 0), "bytes of metadata"),
    "answer that is not JSON": (frame(ANSWER, b"\xff"), "invalid"),
    "answer of another type": (frame(ANSWER, b"[]"), "invalid"),
    "more slots than there are": (frame(ANSWER, json.dumps({"slots": 99, "slot_bytes": 4096}).encode()), "smaller"),
    "foreign slot": (b"".join(GOOD[:2]) + frame(MESSAGE, METADATA, HEADER, slot=4, size=len(BODY)), "in slot 4"),
    "body beyond its slot": (b"".join(GOOD[:2]) + frame(MESSAGE, METADATA, HEADER, slot=3, size=8193), "in slot 3"),
    "body of another length": (b"".join(GOOD[:2]) + frame(MESSAGE, METADATA, HEADER, slot=1, size=64), "a part of"),
    "body without metadata": (b"".join(GOOD[:2]) + frame(MESSAGE, b"", HEADER, slot=1, size=64), "middle"),
    "end that is not JSON": (b"".join(GOOD[:2]) + frame(END, b"{"), "invalid message"),
}


@pytest.mark.parametrize("name", BAD)
def test_frames_that_contradict_each_other_are_errors(scripted: Scripted, name: str):
    script, words = BAD[name]
    with pytest.raises(fb.BrokenStream, match=words):
        scripted.read(script)


def test_an_error_has_the_class_and_reason_of_flight(scripted: Scripted):
    for code, message, kind, reason in FAILURES:
        end = frame(END, json.dumps({"code": code, "message": message}).encode())
        for script in (end, b"".join(GOOD[:3]) + end):
            with pytest.raises(kind) as failed:
                scripted.read(script)
            assert (failed.value.reason, str(failed.value)) == (reason, message.rpartition(": ")[2])
            # Its traceback has the batch that was read.
            del failed


def test_memory_that_could_shrink_or_is_missing_is_refused(scripted: Scripted):
    for file in (memory(seals=0), memory(size=100), None):
        scripted.file = file
        with pytest.raises(fb.BrokenStream, match="sealed|sent no memory"):
            scripted.read(b"".join(GOOD))


def test_random_damage_is_an_error_or_harmless(scripted: Scripted):
    """The Arrow metadata is left intact: its reader is Arrow's."""
    outcomes = set[str]()
    for seed in range(400):
        chance = random.Random(seed)
        frames = list(GOOD)
        number = chance.randrange(len(frames))
        head = frames[number][: HEAD.size]
        rest = frames[number][HEAD.size :]
        frames[number] = damaged(head, chance) + rest if chance.random() < 0.7 else head + damaged(rest, chance)
        if number in (1, 2, 3) and not frames[number].endswith(rest):
            continue
        try:
            read = scripted.read(b"".join(frames))
            outcomes.add(f"{len(read)} batches")
            del read
        except fb.ForebayError as error:
            outcomes.add(type(error).__name__)
        returned = scripted.returns()
        assert len(set(returned)) == len(returned) <= SLOTS, seed
    assert outcomes >= {"BrokenStream", "Unavailable", "2 batches"}
