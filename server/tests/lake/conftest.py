"""An environment without logins of catalogs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "CREDENTIAL", "SCOPE", "OAUTH2_SERVER_URI"):
        monkeypatch.delenv(f"ICEBERG_REST_{name}", raising=False)
    monkeypatch.delenv("UNITY_CATALOG_TOKEN", raising=False)
