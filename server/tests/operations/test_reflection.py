"""gRPC reflection for tools such as grpcurl, if the operator enables it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from harness.daemon import LOOPBACK, Daemon

SERVICE = "arrow.flight.protocol.FlightService"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"x": np.arange(7.0)}), tmp_path / "a.parquet")
    return tmp_path


@contextlib.contextmanager
def channel(folder: Path, *flags: str) -> Iterator[grpc.Channel]:
    daemon = Daemon(*LOOPBACK, "--state", f"{folder}/state", f"--dataset=numbers={folder}/a.parquet", *flags)
    try:
        with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as opened:
            yield opened
    finally:
        daemon.stop()


def call(channel: grpc.Channel, pool: DescriptorPool, name: str, **fields: Any) -> list[Any]:
    """Call a method that is known by reflection alone, with a message made from its descriptor."""
    method = pool.FindServiceByName(SERVICE).FindMethodByName(name)
    answer = GetMessageClass(method.output_type)
    stream = channel.unary_stream if method.server_streaming else channel.unary_unary
    ask = stream(
        f"/{SERVICE}/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    answered = ask(GetMessageClass(method.input_type)(**fields), timeout=10)
    return list(answered) if method.server_streaming else [answered]


def test_reflection_is_sufficient_to_call_the_services(folder: Path):
    with channel(folder, "--reflection") as opened:
        database = ProtoReflectionDescriptorDatabase(opened)
        assert set(database.get_services()) >= {SERVICE, "grpc.health.v1.Health"}
        pool = DescriptorPool(database)
        actions = {action.type for action in call(opened, pool, "ListActions")}
        assert actions >= {"fit", "explain", "replay"}
        (flight,) = call(opened, pool, "ListFlights")
        assert list(flight.flight_descriptor.path) == ["numbers"]
        assert flight.total_records == 7
        (flight_info,) = call(opened, pool, "GetFlightInfo", type=1, path=["numbers"])
        data = call(opened, pool, "DoGet", ticket=flight_info.endpoint[0].ticket.ticket)
        assert sum(len(message.data_body) for message in data) >= 7 * 8
        # The messages inside the commands are known too.
        assert "batch_size" in pool.FindMessageTypeByName("forebay.v1.StreamRequest").fields_by_name


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_reflection_versions_respond(folder: Path, version: str):
    with channel(folder, "--reflection") as opened:
        ask = opened.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        # list_services, field 7 of the request; field 6 of the answer holds them.
        (answer,) = ask(iter([b"\x3a\x01*"]), timeout=10)
        assert SERVICE.encode() in answer


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_is_off_by_default(folder: Path, version: str):
    with channel(folder) as opened:
        ask = opened.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError) as refused:
            list(ask(iter([b"\x3a\x01*"]), timeout=10))
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
