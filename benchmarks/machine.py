"""The machine of a run: only what explains the numbers, no host names or paths."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from iknow.search.threads import n_cores

PACKAGES = ("numpy", "scipy", "scikit-learn", "faiss-cpu", "numba", "torch")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
NO_GPU = "none found: figures for GPUs come from benchmarks/gpu.py"


@cache
def describe_machine() -> dict[str, str]:
    """The facts about the machine, by heading."""
    found = {
        "processor": _processor(),
        "cores": str(n_cores()),
        "caches": _caches(),
        "memory": _memory(),
        "GPU": find_gpu(),
        "system": f"{platform.system()}, {platform.machine()}",
        "Python": platform.python_version(),
        "BLAS": _blas(),
        **{package: _version(package) for package in PACKAGES},
    }
    return {heading: text for heading, text in found.items() if text}


def find_gpu() -> str:
    """The names of the graphics cards, from their driver."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no driver, or a driver without a card
        return NO_GPU
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip()) or NO_GPU


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _caches() -> str:
    """Sizes of the first core's caches, from Linux."""
    found = []
    for folder in sorted(CACHES.glob("index*")):
        kind, level, size = (
            (folder / name).read_text().strip() for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ""
    return f"{total / 2**30:.0f} GiB"


def _blas() -> str:
    """The BLAS library of numpy, and the processor it was tuned for."""
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    kernels = {
        each.get("architecture", "")
        for each in threadpool_info()
        if each["user_api"] == "blas" and "numpy" in each["filepath"]
    }
    words = (blas.get("name", "unknown"), blas.get("version", ""), *sorted(kernels))
    return " ".join(word for word in words if word)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
