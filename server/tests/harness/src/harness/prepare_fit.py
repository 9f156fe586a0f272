"""Fits of a real forebay-prepare."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.prepare import RUN_SECONDS, Run, prepare_binary


def fit_command(plan: Path, datasets: Mapping[str, Path | str], *flags: str, dataset: str = "t") -> list[str]:
    """The command line of a fit."""
    named = [argument for name, url in datasets.items() for argument in ("--dataset", f"{name}={url}")]
    return [prepare_binary(), "fit", dataset, "--plan", str(plan), *named, *flags]


def fit(
    plan: Mapping[str, Any], folder: Path, datasets: Mapping[str, Path | str], *flags: str, dataset: str = "t"
) -> Run:
    """Fit a plan, which is written to the folder."""
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    arguments = fit_command(file, datasets, *flags, dataset=dataset)
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert "panicked" not in ended.stderr, ended.stderr
    return Run(ended.returncode, ended.stdout, ended.stderr)
