"""Say what this installation can do: versions, backends, data.

Each backend of the sequence operator that cannot run is listed with the reason. Data is looked for as training
does, and nothing is downloaded.
"""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated

from scornn import __version__
from scornn.program.cli._options import absolute, option

_PACKAGES = ("torch", "numpy", "safetensors", "msgspec")
_OPTIONAL = ("onnx", "onnxruntime", "optuna", "tensorboard", "pystoi", "pesq")


@dataclass(frozen=True)
class Flags:
    data: Annotated[str | None, option("DIR", "Folder to look in first for data.")] = None


def main(flags: Flags) -> int:
    import torch

    from scornn.ops import backends
    from scornn.program.data import locate
    from scornn.program.data.catalogue import SOURCES
    from scornn.program.train import provenance

    print(f"scornn       {__version__}, code {provenance.code_version()}")
    print(f"python       {platform.python_version()}, {platform.system()} {platform.machine()}")
    for package in (*_PACKAGES, *_OPTIONAL):
        print(f"{package:<12} {_version(package)}")
    print(f"processor    {provenance.machine()['processor']}, {torch.backends.cpu.get_cpu_capability()}, ", end="")
    print(f"{os.cpu_count()} cores, threads: {torch.get_num_threads()}")
    print(f"cuda         {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    print("backends")
    for name, state in backends().items():
        print(f"  {name:<13} {state}")
    print("data")
    given = absolute(flags.data)
    for name, source in SOURCES.items():
        print(f"  {name:<13} {source.find(given) or f'not found; {source.advice}'}")
    print(f"  looked in     {', '.join(dict.fromkeys(str(path) for path in locate.roots(given)))}")
    return 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
