"""Encrypted files are named as what they are, not as damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from harness.faults import outcome
from harness.serving import Serve, raw_table


class Keys(pe.KmsClient):
    """Keys that protect nothing."""

    def __init__(self, _: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return b"".join((master_key_identifier.encode(), b":", key_bytes.hex().encode()))

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return bytes.fromhex(wrapped_key.decode().split(":")[1])


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
def test_encrypted_files_are_refused_as_such(tmp_path: Path, serve: Serve, footer: str):
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["b"]}, plaintext_footer=footer == "plain"
    )
    properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert path.read_bytes().endswith(b"PARE" if footer == "encrypted" else b"PAR1")
    server = serve({"folder": tmp_path, "file": path})
    with fl.connect(server.url) as client:
        for name in ("folder", "file"):
            code, text = outcome(lambda name=name: raw_table(client, name))
            assert code == "UNIMPLEMENTED", text
            assert "a.parquet" in text, text
            assert "it is encrypted" in text, text
    assert not any("panicked" in line for line in server.log)
