"""What a machine has for CUDA: a driver with a device, a torch that sees it, and NVRTC."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from step import Skipped


def driver_problem() -> str:
    """Return why the driver offers no device; empty if it does."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1 cannot be loaded)"
    count = ctypes.c_int()
    if code := driver.cuInit(0):
        return f"the CUDA driver does not start: cuInit returned {code}"
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"the CUDA driver does not count its devices: cuDeviceGetCount returned {code}"
    return "" if count.value else "the CUDA driver reports no device"


def torch_problem() -> str:
    """Return why torch cannot use a device; empty if it can."""
    if problem := driver_problem():
        return problem
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return f"torch {torch.__version__} sees no GPU: {str(error).splitlines()[0]}"
    return f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no GPU"


def require_torch() -> None:
    """Raise Skipped unless torch can use a device."""
    if problem := torch_problem():
        raise Skipped(problem)


def find_nvrtc() -> Path | None:
    """Return NVRTC: FOREBAY_NVRTC, or the newest one among the installed Python packages."""
    if named := os.environ.get("FOREBAY_NVRTC"):
        return Path(named)
    patterns = ("nvidia/*/lib/libnvrtc.so.1[0-9]",)
    found = [path for folder in sys.path for pattern in patterns for path in Path(folder or ".").glob(pattern)]
    return max(found, key=lambda path: path.name, default=None)


def main() -> None:
    """Print the driver's problem, or the path of NVRTC."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvrtc", action="store_true", help="print the path of NVRTC")
    print((find_nvrtc() or "") if parser.parse_args().nvrtc else driver_problem())


if __name__ == "__main__":
    main()
