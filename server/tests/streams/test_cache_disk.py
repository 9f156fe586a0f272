"""The disk tier of the cache of finished rows: equal bytes over restarts and damage, and directories of all kinds."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.cached import (
    CACHED_FILES,
    FIXED,
    SHUFFLED,
    cached_request,
    chunk_count,
    counts,
    outcome,
    request_of,
    started,
    without_cache,
    write_folders,
)
from harness.daemon import Daemon, poll, run_to_end
from harness.epochs import Data, every_byte
from harness.metrics import scrape
from harness.serving import info, plan_of, stored

pytestmark = pytest.mark.long

REQUESTS = 12
# Room for no row group with several chunks, and for all.
SMALL, LARGE = "90kB", "64MiB"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_folders(tmp_path_factory.mktemp("cached"))


@pytest.fixture(scope="module")
def datas(folders: dict[str, Path]) -> dict[str, Data]:
    return {name: Data.read(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def plain(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[fl.FlightClient]:
    """A server without a cache."""
    yield from without_cache(folders, tmp_path_factory.mktemp("plain"))


Start = Callable[..., Daemon]


@pytest.fixture
def start(folders: dict[str, Path], tmp_path: Path) -> Iterator[Start]:
    daemons: list[Daemon] = []

    def begin(*flags: str, memory: str = SMALL, datasets: dict[str, Path] | None = None) -> Daemon:
        tier = ("--cache-bytes", memory, "--cache-dir", str(tmp_path / "tier"))
        daemons.append(started(datasets or folders, tmp_path / f"state-{len(daemons)}", *tier, *flags))
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.stop()
        assert not any("panic" in line for line in daemon.lines)


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tier/rows").rglob("*.rows"))


def disk(daemon: Daemon, name: str) -> float:
    return scrape(daemon).value(f"forebay_cache_disk_{name}")


def has_written(daemon: Daemon) -> bool:
    return poll(lambda: disk(daemon, "bytes") > 0)


def written(tmp_path: Path, count: int) -> list[Path]:
    """Waits for the files of this many chunks."""
    assert poll(lambda: len(files(tmp_path)) == count, seconds=30), len(files(tmp_path))
    return files(tmp_path)


def read(daemon: Daemon, request: dict[str, Any]) -> Any:
    with fl.connect(daemon.url) as client:
        return every_byte(client, request)


@pytest.mark.parametrize("memory", [SMALL, "600kB", LARGE])
def test_random_streams_are_equal_to_the_byte_over_restarts(
    datas: dict[str, Data], plain: fl.FlightClient, start: Start, memory: str
):
    hits: list[float] = []
    for _ in range(2):
        daemon = start(memory=memory)
        with fl.connect(daemon.url) as client:
            for number in range(REQUESTS):
                request = cached_request(datas[list(CACHED_FILES)[number % len(CACHED_FILES)]], number)
                other = {**request, "seed": number, "epoch": request.get("epoch", 0) // 2, "shuffle": True}
                other |= {"world_size": 2, "lanes": 4, "window_rows": 300, "start_position": 0}
                for each in (request, other, request):
                    assert outcome(client, each) == outcome(plain, each), (number, each)
        hits.append(disk(daemon, "hits_total"))
        assert disk(daemon, "damaged_total") == 0
        assert has_written(daemon)
        daemon.stop()
    # The second server finds the files of the first one, whatever its memory.
    assert hits[1] > 0


def test_a_restart_computes_nothing_again(datas: dict[str, Data], plain: fl.FlightClient, start: Start, tmp_path: Path):
    chunks = chunk_count(datas["chunks"])
    first = start()
    want = read(first, request_of("chunks"))
    assert want == every_byte(plain, request_of("chunks"))
    assert counts(first)[:2] == (0, chunks)
    written(tmp_path, chunks)
    first.stop()
    later = start()
    before = scrape(later).value("forebay_storage_read_bytes_total")
    for request in (request_of("chunks"), request_of("chunks", epoch=1, seed=4, **SHUFFLED)):
        assert read(later, request) == every_byte(plain, request)
    assert counts(later)[1] == 0
    assert disk(later, "hits_total") >= chunks
    # Rows on disk need no storage.
    assert scrape(later).value("forebay_storage_read_bytes_total") == before


def test_rows_that_fit_the_memory_are_read_from_disk_once(datas: dict[str, Data], start: Start, tmp_path: Path):
    chunks = chunk_count(datas["chunks"])
    first = start(memory=LARGE)
    want = read(first, request_of("chunks"))
    written(tmp_path, chunks)
    first.stop()
    later = start(memory=LARGE)
    for _ in range(3):
        assert read(later, request_of("chunks")) == want
    assert counts(later) == (3 * chunks, 0, 0)
    assert disk(later, "hits_total") == chunks


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit": flip,
    "a bit of the header": lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:],
    "cut": lambda data: data[:-9],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "garbage": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_computed_again(
    datas: dict[str, Data], plain: fl.FlightClient, start: Start, tmp_path: Path, damage: str
):
    chunks = chunk_count(datas["chunks"])
    first = start()
    read(first, request_of("chunks"))
    paths = written(tmp_path, chunks)
    first.stop()
    for path in paths[::2]:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    later = start()
    request = request_of("chunks", seed=3, **SHUFFLED)
    assert read(later, request) == every_byte(plain, request)
    assert disk(later, "damaged_total") == len(paths[::2])
    # They are written again.
    written(tmp_path, chunks)
    damaged = disk(later, "damaged_total")
    assert read(later, request_of("chunks")) == every_byte(plain, request_of("chunks"))
    assert disk(later, "damaged_total") == damaged


def test_files_under_the_names_of_others_are_not_served(
    datas: dict[str, Data], plain: fl.FlightClient, start: Start, tmp_path: Path
):
    """The header names the plan, the row group, the chunk and the state of the file."""
    chunks = chunk_count(datas["plain"])
    plans = [plan_of([{"name": "x", "parts": [{"columns": [column]}]}]) for column in ("x", "id")]
    first = start()
    for plan in plans:
        read(first, request_of("plain", plan=plan))
    written(tmp_path, 2 * chunks)
    first.stop()
    one, other = sorted((tmp_path / "tier/rows").iterdir())
    shutil.rmtree(one)
    shutil.copytree(other, one)
    later = start()
    for plan in plans:
        request = request_of("plain", plan=plan)
        assert read(later, request) == every_byte(plain, request)
    assert disk(later, "damaged_total") > 0


RENAMES: dict[str, Callable[[str], str]] = {
    "other rows": lambda name: re.sub(r"^(\d+-\d+)-(\d+)-", lambda found: f"{found[1]}-{int(found[2]) - 1}-", name),
    "the rows of another chunk": lambda name: re.sub(
        r"^(\d+)-(\d+)-", lambda found: f"{found[1]}-{int(found[2]) + 9}-", name
    ),
    "another state": lambda name: name.replace("-0", "-1").replace("-f", "-e"),
    "a cut name": lambda name: name[:-9] + ".rows",
    "no rows": lambda name: re.sub(r"^(\d+-\d+)-\d+-", r"\1-0-", name),
}


@pytest.mark.parametrize("rename", RENAMES)
def test_a_renamed_file_is_never_counted(plain: fl.FlightClient, start: Start, tmp_path: Path, rename: str):
    """The name has the number of rows, which positions are counted by before the file is read."""
    filtered = {"plan": plan_of(FIXED, filter="id % 3 = 1")}
    first = start()
    read(first, request_of("chunks", **filtered))
    assert has_written(first)
    first.stop()
    paths = files(tmp_path)
    renamed = [(path, path.with_name(RENAMES[rename](path.name))) for path in paths[::2]]
    for path, other in renamed:
        path.rename(other)
    later = start()
    for options in ({"start_position": 3000}, {"seed": 3, **SHUFFLED}, {}):
        request = request_of("chunks", **filtered, **options)
        assert read(later, request) == every_byte(plain, request)
    assert disk(later, "damaged_total") == sum(path.name != other.name for path, other in renamed)


def test_a_directory_of_an_earlier_version_is_emptied(plain: fl.FlightClient, start: Start, tmp_path: Path):
    first = start()
    read(first, request_of("plain"))
    assert has_written(first)
    first.stop()
    (tmp_path / "tier/version").write_text("forebay cache 1\n")
    later = start()
    assert disk(later, "bytes") == 0
    assert read(later, request_of("plain")) == every_byte(plain, request_of("plain"))
    assert (tmp_path / "tier/version").read_text() == "forebay cache 2\n"


def test_streams_of_functions_end_whoever_writes_a_chunk_first(start: Start, tmp_path: Path):
    """Lanes and streams of one plan compute the same chunks of a row group, and find those of others on disk."""
    rows, words = 60_000, ("a", "b", "c", "dd")
    model = {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0, **{word: 1 + at for at, word in enumerate(words)}},
        "unk_token": "[UNK]",
    }
    parts = {"truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None}
    tokenizer = {"version": "1.0", **parts, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "model": model}
    (tmp_path / "text").mkdir()
    texts = [f"{row:0150d} {words[row % 4]}" for row in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "t": texts}), tmp_path / "text/a.parquet", row_group_size=rows)
    ops = [{"tokenize": {"json": json.dumps(tokenizer)}}, {"pad": {"n": 2, "value": 0}}]
    outputs = [{"name": "x", "parts": [{"columns": ["t"], "ops": ops}]}, *stored("id")]

    def ids(daemon: Daemon, least: int, **options: Any) -> list[int]:
        request = {"dataset": "text", "plan": plan_of(outputs, filter=f"id >= {least}"), "batch_size": 1000, **options}
        with fl.connect(daemon.url) as client:
            ticket = info(client, request).endpoints[0].ticket
            # A stream that waits for itself ends here.
            found = client.do_get(ticket, fl.FlightCallOptions(timeout=120)).read_all()
        tokens = np.stack(found["x"].to_numpy())
        assert (tokens[:, 1] == 1 + found["id"].to_numpy() % 4).all()
        return found["id"].to_pylist()

    daemon = start(memory="100kB", datasets={"text": tmp_path / "text"})
    shuffled = {"shuffle": True, "lanes": 8}
    for least in range(2):
        assert sorted(ids(daemon, least, **shuffled)) == list(range(least, rows))
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda _: ids(daemon, 9), range(3)):
            assert found == list(range(9, rows))
    assert sorted(ids(daemon, 9, **shuffled)) == list(range(9, rows))


X = plan_of([{"name": "x", "dtype": "FLOAT64", "parts": [{"columns": ["x"]}]}])


@pytest.mark.parametrize("unseen", [False, True], ids=["replaced", "overwritten with size and time restored"])
def test_a_changed_file_never_yields_earlier_rows(tmp_path: Path, start: Start, unseen: bool):
    folder = tmp_path / "t"
    folder.mkdir()
    path, options = folder / "a.parquet", {"row_group_size": 1000, "compression": "none", "use_dictionary": False}
    for change in range(3):
        before = path.stat() if path.exists() else None
        values = np.arange(3000, dtype=np.float64) + change * 10_000
        pq.write_table(pa.table({"x": values}), folder / "_new", **options)
        if unseen and before:
            with path.open("r+b") as file:
                file.write((folder / "_new").read_bytes())
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        else:
            (folder / "_new").rename(path)
        daemon = start(memory="1kB", datasets={"t": folder})
        for _ in range(2):
            with fl.connect(daemon.url) as client:
                found = info(client, {"dataset": "t", "plan": X, "batch_size": 500})
                rows = client.do_get(found.endpoints[0].ticket).read_all()["x"].to_numpy()
            assert np.array_equal(rows, values)
            assert has_written(daemon)
        daemon.stop()


def test_the_directory_keeps_its_size_and_rows_in_use(datas: dict[str, Data], start: Start, tmp_path: Path):
    size = 1 << 20
    daemon = start("--cache-dir-bytes", str(size))
    plans = [plan_of(FIXED[:count]) for count in range(1, len(FIXED) + 1)]
    for plan in plans:
        for epoch in range(2):
            read(daemon, request_of("chunks", plan=plan, epoch=epoch))
    assert poll(lambda: disk(daemon, "evictions_total") > 0, seconds=30)
    assert 0 < disk(daemon, "bytes") <= size
    daemon.stop()
    # A smaller size applies to what an earlier server left.
    daemon = start("--cache-dir-bytes", "1MiB")
    assert sum(path.stat().st_size for path in files(tmp_path)) <= size


def end(folders: dict[str, Path], tmp_path: Path, tier: Path, *flags: str) -> tuple[int, str]:
    place = ("--state", str(tmp_path / "ended"), "--cache-bytes", LARGE, "--cache-dir", str(tier))
    done = run_to_end(*flags, *place, "--dataset", f"plain={folders['plain']}")
    return done.returncode, done.stdout + done.stderr


def test_two_servers_do_not_share_a_directory(folders: dict[str, Path], start: Start, tmp_path: Path):
    first = start()
    code, output = end(folders, tmp_path, tmp_path / "tier")
    assert code == 2, output
    assert "--cache-dir" in output
    assert "another server" in output
    first.stop()
    # A server that was killed leaves no lock behind.
    read(start(), request_of("plain"))


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_directories_of_other_kinds_are_refused_and_left_alone(
    folders: dict[str, Path], tmp_path: Path, verb: tuple[str, ...]
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "version").write_text("forebay cache 99\n")
    (other / "rows").mkdir()
    code, output = end(folders, tmp_path, other, *verb)
    assert code == 2, output
    assert "--cache-dir" in output
    assert "forebay cache 99" in output
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("not a cache")
    code, output = end(folders, tmp_path, mine, *verb)
    assert code == 2, output
    assert "name an empty directory" in output
    assert sorted(path.name for path in tmp_path.rglob("*.txt")) == ["thesis.txt"]
    assert (mine / "thesis.txt").read_text() == "not a cache"


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_a_directory_that_cannot_be_written_is_refused(folders: dict[str, Path], tmp_path: Path, verb: tuple[str, ...]):
    tier = Path("/proc/forebay/tier")
    if os.geteuid() != 0:
        tier = tmp_path / "tier"
        tier.mkdir(mode=0o500)
    code, output = end(folders, tmp_path, tier, *verb)
    assert code == 2, output
    assert "--cache-dir" in output


def test_streams_work_while_the_directory_takes_no_files(
    datas: dict[str, Data], plain: fl.FlightClient, start: Start, tmp_path: Path
):
    """As on a full disk: what cannot be written is counted, and computed by each epoch."""
    daemon = start()
    shutil.rmtree(tmp_path / "tier/rows")
    (tmp_path / "tier/rows").write_text("in the way")
    for request in (request_of("chunks"), request_of("chunks", seed=1, **SHUFFLED)):
        assert read(daemon, request) == every_byte(plain, request)
    assert poll(lambda: disk(daemon, "dropped_total") > 0)
    assert poll(lambda: any("cannot write to --cache-dir" in line for line in daemon.lines))


def test_unfinished_and_foreign_files_are_not_read(datas: dict[str, Data], start: Start, tmp_path: Path):
    first = start()
    want = read(first, request_of("plain"))
    paths = written(tmp_path, chunk_count(datas["plain"]))
    first.stop()
    unfinished = paths[0].with_suffix(".tmp")
    unfinished.write_bytes(b"half a file")
    foreign = paths[0].with_name("notes.txt")
    foreign.write_text("mine")
    later = start()
    assert read(later, request_of("plain")) == want
    assert not unfinished.exists()
    assert foreign.read_text() == "mine"
    assert json.dumps(counts(later)[1]) == "0"


def test_a_replay_writes_nothing(start: Start, tmp_path: Path):
    daemon = start()
    with fl.connect(daemon.url) as client:
        body = {"stream": request_of("chunks", batch_size=100), "rank": 0, "step": 3}
        list(client.do_action(fl.Action("replay", json.dumps(body).encode())))
    read(daemon, request_of("plain"))
    assert poll(lambda: files(tmp_path))
    assert len(list((tmp_path / "tier/rows").iterdir())) == 1
