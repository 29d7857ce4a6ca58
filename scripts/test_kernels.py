"""Runs the kernel's C tests on the libraries that `make wheels` built, on every platform that this machine can play.

``python scripts/test_kernels.py [TARGET...]``, after `make wheels`. The tests are compiled by zig for the target, which
first builds its C++ library, and run as they are, on musl's loader (Debian: musl), in qemu (Debian: qemu-user-static,
libc6-arm64-cross) or in wine (Debian: wine64). What has no way to run here is compiled, and said.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from wheels import BUILD, ROOT, TARGETS

RUNNERS = {
    "linux-x86_64": [],
    "musl-x86_64": ["/lib/ld-musl-x86_64.so.1"],
    "linux-aarch64": ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"],
    "windows-amd64": ["/usr/lib/wine/wine64"],
}
"""What runs a program of a target on an x86_64 Linux."""


def main(names: list[str]) -> int:
    failed = []
    for name in names or TARGETS:
        program, runner = compile_tests(name), RUNNERS.get(name)
        if platform.machine() != "x86_64" or runner is None or (runner and shutil.which(runner[0]) is None):
            print(f"{name}: compiled; nothing runs it here", flush=True)
            continue
        for arguments in ([], ["threads"]):
            done = subprocess.run([*runner, str(program), *arguments], cwd=program.parent, check=False)
            print(f"{name} {' '.join(arguments)}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
            failed += [name] * (done.returncode != 0)
    return 1 if failed else 0


def compile_tests(name: str) -> Path:
    """The program of ``tests/csrc/kernel_test.cpp``, linked to the target's library, beside it."""
    target, folder = TARGETS[name], BUILD / name
    program = folder / ("kernel_test.exe" if target.system == "Windows" else "kernel_test")
    if not (folder / target.library).is_file():
        raise SystemExit(f"{folder / target.library} is missing: run `make wheels` first")
    source = ROOT / "tests" / "csrc" / "kernel_test.cpp"
    flags = ["-std=gnu++17", "-O1", "-Wno-psabi", f"-I{ROOT / 'csrc'}", "-pthread"]
    link = [f"-L{folder}", f"-l:{target.library}", f"-Wl,-rpath,{folder}"]
    if target.system != "Linux":
        link = [str(folder / target.library)]
    command = [str(folder / "c++"), *flags, str(source), *link, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
