from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import forebay as fb
from harness.ops.spark_tables import tables, write
from harness.serving import Server


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves sockets to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spark")
    for name, table in tables().items():
        write(folder / name, table)
    return folder


@pytest.fixture(scope="session")
def client(root: Path) -> Iterator[fb.Client]:
    running = Server({place.name: place for place in root.iterdir()})
    with fb.connect(running.url) as connected:
        yield connected
    running.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in a separate process, on loopback only."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[1]").appName("forebay")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def frames(spark: SparkSession, root: Path) -> dict[str, DataFrame]:
    """The very files that the server reads, as Spark reads them."""
    return {place.name: spark.read.parquet(str(place)) for place in root.iterdir()}
