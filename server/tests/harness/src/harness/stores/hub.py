"""A dataset of a hub."""

from __future__ import annotations

from collections.abc import Iterable

from harness.hub import Blob, Hub
from harness.stores.backend import TOKEN, Backend


class HubBackend(Backend):
    """A dataset of a hub, seen with a token only. Each change is a commit, and earlier ones stay readable."""

    name = "hub"
    credentials = "HF_TOKEN"
    endpoint_setting = "HF_ENDPOINT"
    keeps_versions = True

    def __init__(self) -> None:
        self._hub = Hub()
        self._repository = self._hub.add("forebay/conformance", {}, token=TOKEN)
        super().__init__(self._hub.url)

    def url(self, key: str = "") -> str:
        return f"hf://datasets/forebay/conformance/{key}"

    def put(self, key: str, body: bytes) -> None:
        self._repository.commit({**self._repository.head(), key: body})

    def put_many(self, keys: Iterable[str], body: bytes) -> None:
        blob = Blob(body)
        self._repository.commit({**self._repository.head(), **dict.fromkeys(keys, blob)})

    def delete(self, key: str) -> None:
        files = dict(self._repository.head())
        del files[key]
        self._repository.commit(files)

    def environment(self, endpoint: str) -> dict[str, str]:
        return {"HF_ENDPOINT": endpoint, "HF_TOKEN": TOKEN}

    def missing_url(self) -> str:
        return "hf://datasets/forebay/no-such-dataset/x"

    def listing_mark(self, prefix: str) -> str:
        return f"/{prefix}?recursive"

    def close(self) -> None:
        super().close()
        self._hub.close()
