"""S3 by moto."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import boto3
from moto.server import ThreadedMotoServer

from harness.object_store import KEY_ID, SECRET
from harness.stores.backend import Backend

# Servers of one process share their buckets: each has another one.
NUMBERS = itertools.count()


class S3Backend(Backend):
    """A bucket of moto's server."""

    name = "s3"
    credentials = "AWS_ACCESS_KEY_ID"
    endpoint_setting = "AWS_ENDPOINT_URL"

    def __init__(self) -> None:
        self.bucket = f"conformance-{next(NUMBERS)}"
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        host, port = self._moto.get_host_and_port()
        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )
        self._client.create_bucket(Bucket=self.bucket)
        super().__init__(f"http://{host}:{port}")

    def url(self, key: str = "") -> str:
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, body: bytes) -> None:
        self._client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def put_many(self, keys: Iterable[str], body: bytes) -> None:
        # The server runs in this process: no need for ten thousand signed requests.
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, key, body)

    def get(self, key: str) -> bytes:
        return self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def keys(self, prefix: str) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [one["Key"] for one in listed.get("Contents", [])]

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=key)

    def environment(self, endpoint: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def missing_url(self) -> str:
        return "s3://no-such-bucket/x"

    def close(self) -> None:
        super().close()
        self._moto.stop()
