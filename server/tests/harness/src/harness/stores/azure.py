"""Azure Blob Storage by Azurite, which `make test-stores` installs."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path

from harness.repository import ROOT
from harness.stores.backend import Backend

CONTAINER = "conformance"
ACCOUNT = "forebaytest"
KEY = base64.b64encode(b"not to be seen anywhere in a log").decode()
START_LINES_MAX = 20


def azurite() -> Path | None:
    """The emulator's program, if it and the library of its uploads are installed."""
    try:
        import azure.storage.blob  # noqa: F401
    except ImportError:
        return None
    found = Path(os.environ.get("FOREBAY_AZURITE") or ROOT / "target/emulators/node_modules/.bin/azurite-blob")
    return found if found.is_file() else None


class AzureBackend(Backend):
    """A container of Azurite, which verifies the signature of every request."""

    name = "azure"
    credentials = "AZURE_STORAGE_ACCOUNT_KEY"
    endpoint_setting = "AZURE_ENDPOINT"

    def __init__(self, folder: Path) -> None:
        from azure.storage.blob import ContainerClient

        program = azurite()
        assert program
        # The version check would refuse a library that is newer than the emulator.
        flags = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"]
        command = [str(program), *flags, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        # It leaves a file with its settings in the working directory.
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        endpoint = self._listening()
        self._client = ContainerClient(f"{endpoint}/{ACCOUNT}", CONTAINER, credential=KEY)
        self._client.create_container()
        super().__init__(endpoint)

    def _listening(self) -> str:
        assert self._process.stdout
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line)
            if found := re.search(r"successfully listens on (http://\S+)", line):
                return found[1]
            if len(lines) == START_LINES_MAX:
                break
        self._process.kill()
        raise RuntimeError("azurite did not start:\n" + "".join(lines))

    def url(self, key: str = "") -> str:
        return f"az://{CONTAINER}/{key}"

    def put(self, key: str, body: bytes) -> None:
        self._client.upload_blob(key, body, overwrite=True)

    def get(self, key: str) -> bytes:
        return self._client.download_blob(key).readall()

    def keys(self, prefix: str) -> list[str]:
        return sorted(self._client.list_blob_names(name_starts_with=prefix))

    def delete(self, key: str) -> None:
        self._client.delete_blob(key)

    def environment(self, endpoint: str) -> dict[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def missing_url(self) -> str:
        return "az://no-such-container/x"

    def close(self) -> None:
        super().close()
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
