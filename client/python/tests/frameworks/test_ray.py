"""Ray on a local cluster: the conformance suite through Ray Train with two workers and through Ray Data."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.frameworks.conformance import (
    BATCH_SIZE,
    ERROR,
    PLAN,
    ROWS,
    Conformance,
    Done,
    Job,
    Rows,
    by_step,
    expected,
    messages,
    one_batch,
    write_late,
)
from harness.leaks import nothing_left
from harness.repository import package_environment
from harness.serving import Serve, Server

pytest.importorskip("ray", reason="make test-frameworks installs Ray")

import ray
import ray.data
import ray.train
from ray.train.torch import TorchTrainer

from forebay.ray import FlightDatasource, train_dataset

# Ray 2.60 uses what it and its libraries have deprecated.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

WORKERS = 2


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster on this machine, which sends no reports of its use and writes no token to the home directory."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    # Ray gives its workers a niceness of 15, so that other tests would delay them.
    settings["RAY_worker_niceness"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "PYTHONPATH": package_environment()["PYTHONPATH"]}.items():
            patch.setenv(name, value)
        ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        yield
        ray.shutdown()


# === Ray Data ===


def rows_of(source: FlightDatasource) -> Rows:
    """All rows, in the order of the read tasks."""
    dataset = ray.data.read_datasource(source)
    dataset.context.execution_options.preserve_order = True
    rows = Rows()
    for batch in dataset.iter_batches(batch_format="numpy", batch_size=None):
        rows.add(batch["id"], batch["dense"])
    return rows


class TestRayData(Conformance):
    resumes = False

    def run(self, job: Job) -> Done:
        sources = (
            FlightDatasource(job.url, job.dataset, PLAN, epoch=epoch, **job.options) for epoch in range(job.epochs)
        )
        return Done([rows_of(source) for source in sources])


def test_read_tasks_are_the_ranks(server: Server):
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 5}
    source = FlightDatasource(server.url, "tiny", PLAN, ranks=4, **options)
    tasks = source.get_read_tasks(7)
    with fb.connect(server.url) as client:
        streams = [list(client.stream("tiny", PLAN, rank=rank, world_size=4, **options)) for rank in range(4)]
    ranks = [sum(map(one_batch, batches), Rows()) for batches in streams]
    assert [task.metadata.num_rows for task in tasks] == [len(rows.ids) for rows in ranks]
    assert source.estimate_inmemory_data_size() == ROWS * (8 + 2 * 4 + 4)
    assert rows_of(source) == sum(ranks, Rows())
    dataset = ray.data.read_datasource(source)
    assert dataset.count() == ROWS
    assert sorted(row["id"] for row in dataset.iter_rows()) == list(range(ROWS))
    assert dataset.limit(10).count() == 10


def test_matrices_are_arrays_and_tensors(server: Server):
    source = FlightDatasource(server.url, "tiny", PLAN, batch_size=BATCH_SIZE)
    dataset = ray.data.read_datasource(source)
    assert dataset.schema().base_schema.equals(source.get_read_tasks(1)[0].schema)
    doubled = dataset.map_batches(lambda batch: {**batch, "dense": batch["dense"] * 2}, batch_format="numpy")
    batches = list(doubled.iter_torch_batches(batch_size=50))
    assert [tuple(batch["dense"].shape) for batch in batches] == [(50, 2)] * 2
    # Blocks arrive in any order.
    found = np.empty((ROWS, 2), np.float32)
    for batch in batches:
        found[batch["id"].numpy()] = batch["dense"].numpy()
    whole = np.frombuffer(expected(server.url, shuffle=False).values, np.float32).reshape(-1, 2)
    assert np.array_equal(found, whole * 2)


def test_all_tasks_read_the_files_of_one_time(serve: Serve, tiny: pa.Table, tmp_path: Path):
    pq.write_table(tiny, tmp_path / "a.parquet")
    source = FlightDatasource(serve({"tiny": tmp_path}).url, "tiny", PLAN, ranks=2)
    pq.write_table(tiny.slice(1), tmp_path / "a.parquet")
    with pytest.raises(fb.SnapshotChanged):
        rows_of(source)


def test_a_read_task_leaves_nothing_in_its_worker(server: Server, serve: Serve, tiny: pa.Table, tmp_path: Path):
    write_late(tmp_path / "late", tiny)
    late = serve({"tiny": tmp_path / "late"})

    @ray.remote
    class Reader:
        def read(self, url: str, dataset: str) -> tuple[int, str]:
            tasks = FlightDatasource(url, dataset, PLAN, ranks=2, batch_size=BATCH_SIZE).get_read_tasks(2)

            def run() -> tuple[int, str]:
                rows = 0
                try:
                    for task in tasks:
                        rows += sum(table.num_rows for table in task())
                except fb.ForebayError as error:
                    return rows, messages(error)
                # Left in the middle.
                next(iter(tasks[0]()))
                return rows, ""

            run()
            with nothing_left():
                return run()

    reader = Reader.remote()
    assert ray.get(reader.read.remote(server.url, "tiny")) == (ROWS, "")
    rows, message = ray.get(reader.read.remote(late.url, "tiny"))
    assert rows < ROWS
    assert ERROR in message


# === Ray Train ===


def trainer(job: Job, loop: Callable[[dict[str, Any]], None], name: str, **options: Any) -> TorchTrainer:
    return TorchTrainer(
        loop,
        train_loop_config={"job": job, "log": str(job.folder / name)},
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(name=name, storage_path=str(job.folder / "runs"), **options),
    )


def make_loop() -> Callable[[dict[str, Any]], None]:
    """What each worker runs; a function within a function, so that Ray sends it by value."""

    def loop(config: dict[str, Any]) -> None:
        import tempfile

        import forebay.ray

        job, context = config["job"], ray.train.get_context()
        stream = forebay.ray.train_dataset(
            job.url, job.dataset, PLAN, **{**job.options, "batch_size": BATCH_SIZE // context.get_world_size()}
        )
        log = Path(f"{config['log']}.{context.get_world_rank()}")
        for epoch, batches in stream.epochs(job.epochs):
            for step, batch in enumerate(batches, 1):
                with log.open("a") as file:
                    rows = one_batch(batch)
                    file.write(json.dumps([epoch, rows.ids, rows.values.hex()]) + "\n")
                if step == job.stop_after:
                    with tempfile.TemporaryDirectory() as folder:
                        forebay.ray.save_position(stream, folder)
                        found = ray.train.Checkpoint.from_directory(folder) if context.get_world_rank() == 0 else None
                        ray.train.report({"step": step}, checkpoint=found)
                    return

    return loop


def logged(folder: Path, name: str, epochs: Iterable[int]) -> list[Rows]:
    """The rows of each epoch that the workers have written."""
    found: list[Rows] = []
    files = [(folder / f"{name}.{rank}").read_text().splitlines() for rank in range(WORKERS)]
    for epoch in epochs:
        ranks = [[json.loads(line) for line in lines] for lines in files]
        found.append(
            by_step([[Rows(ids, bytes.fromhex(values)) for at, ids, values in rank if at == epoch] for rank in ranks])
        )
    return found


class TestRayTrain(Conformance):
    ranks = WORKERS
    raises = Exception

    def run(self, job: Job) -> Done:
        # Ray restores a run of the same name.
        name = f"run-{uuid.uuid4().hex}" if job.state is None else job.state
        for rank in range(WORKERS):
            (job.folder / f"{name}.{rank}").unlink(missing_ok=True)
        trainer(job, make_loop(), name).fit()
        return Done(logged(job.folder, name, range(job.epochs)), name)


def test_a_worker_that_fails_is_restored_and_no_row_is_lost(server: Server, tmp_path: Path):
    def loop(config: dict[str, Any]) -> None:
        import tempfile

        import forebay.ray

        job, rank = config["job"], ray.train.get_context().get_world_rank()
        stream = forebay.ray.train_dataset(
            job.url, job.dataset, PLAN, **{**job.options, "batch_size": BATCH_SIZE // WORKERS}
        )
        for batch in stream:
            step, rows = stream.state_dict()["position"] // BATCH_SIZE, one_batch(batch)
            with Path(f"{config['log']}.{rank}").open("a") as file:
                file.write(json.dumps([step, rows.ids, rows.values.hex()]) + "\n")
            with tempfile.TemporaryDirectory() as folder:
                forebay.ray.save_position(stream, folder)
                found = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
                ray.train.report({"step": step}, checkpoint=found)
            if step == 4 and rank == 1 and not (job.folder / "failed").exists():
                (job.folder / "failed").touch()
                os._exit(1)

    job = Job(server.url, shuffle=True, folder=tmp_path)
    trainer(job, loop, "fails", failure_config=ray.train.FailureConfig(max_failures=1)).fit()
    assert (tmp_path / "failed").exists()
    ranks: list[list[Rows]] = []
    for rank in range(WORKERS):
        lines = [json.loads(line) for line in (tmp_path / f"fails.{rank}").read_text().splitlines()]
        # The steps after the last checkpoint are read again, with the same rows.
        steps = {step: Rows(ids, bytes.fromhex(values)) for step, ids, values in lines}
        assert all(steps[step].ids == ids for step, ids, _ in lines)
        assert len(lines) < 2 * len(steps)
        ranks.append(list(steps.values()))
    assert by_step(ranks) == expected(server.url, shuffle=True, ranks=WORKERS)


def test_the_rank_is_that_of_the_worker():
    with pytest.raises(TypeError, match="train_dataset has no argument 'rank': rank and world size are those of Ray"):
        train_dataset("grpc://127.0.0.1:1", "tiny", PLAN, rank=0, world_size=2)
