"""What produced a result: versions, machine, and what the last bit of every number depends on."""

import hashlib
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
import torch

import scornn
from scornn.ops import library


@cache
def code_version() -> str:
    """The package's version and a digest of its source files and of the kernel as it was built."""
    root = Path(scornn.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update((library.digest() or "no kernel").encode())
    try:
        version = metadata.version("scornn")
    except metadata.PackageNotFoundError:
        version = "0"
    return f"{version}+{digest.hexdigest()[:12]}"


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "scornn": code_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def machine() -> dict[str, Any]:
    """The machine, as far as it explains the time a run took."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def numerics(backend: str, threads: int, world_size: int, device: str) -> dict[str, str]:
    """Where one of these differs, a resumed run may differ in the last bits."""
    return {
        "code": code_version(),
        "torch": torch.__version__,
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "processor": _processor(),
        "backend": backend,
        "instruction set": (library.instruction_set() if backend == "native" else None) or "none of the kernel's",
        "threads": str(threads),
        "processes": str(world_size),
        "device": device,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
