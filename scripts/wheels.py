"""Builds the wheels of every platform on this machine, and the source distribution: ``make wheels``.

The kernel is compiled by zig, which brings the headers and libraries of every target, through the project's own
CMakeLists; the Python files are those of one wheel built without a kernel. A wheel is these files, one library and a
tag ``py3-none-PLATFORM``. Names of targets as arguments build those alone.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BUILD, DIST = ROOT / "build" / "wheels", ROOT / "dist"
BUILDER = (sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check")


class Target(NamedTuple):
    """A platform: zig's name and CMake's two for it, the wheel's tag, and the library's name there."""

    zig: str
    system: str
    processor: str
    tag: str
    library: str = "libscornn.so"


TARGETS = {
    # glibc 2.17 is of 2012: CentOS 7 and all later.
    "linux-x86_64": Target("x86_64-linux-gnu.2.17", "Linux", "x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
    "linux-aarch64": Target(
        "aarch64-linux-gnu.2.17", "Linux", "aarch64", "manylinux_2_17_aarch64.manylinux2014_aarch64"
    ),
    "musl-x86_64": Target("x86_64-linux-musl", "Linux", "x86_64", "musllinux_1_2_x86_64"),
    "musl-aarch64": Target("aarch64-linux-musl", "Linux", "aarch64", "musllinux_1_2_aarch64"),
    "macos-arm64": Target("aarch64-macos.11.0", "Darwin", "arm64", "macosx_11_0_arm64"),
    "macos-x86_64": Target("x86_64-macos.11.0", "Darwin", "x86_64", "macosx_11_0_x86_64"),
    "windows-amd64": Target("x86_64-windows-gnu", "Windows", "AMD64", "win_amd64", "scornn.dll"),
}

# CMake links a module for macOS with -bundle, which zig does not know; a dynamic library loads as well.
COMPILER = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    -bundle) argument=-dynamiclib ;;
    -Wl,-search_paths_first|-Wl,-headerpad_max_install_names) continue ;;
  esac
  set -- "$@" "$argument"
done
exec "{python}" -m ziglang c++ -target {target} "$@"
"""


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(TARGETS))
    if unknown:
        print(f"unknown: {', '.join(unknown)}; the targets are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    DIST.mkdir(exist_ok=True)
    files = python_files()
    for name in names or TARGETS:
        target = TARGETS[name]
        print(pack(files, compile_kernel(name, target), target), flush=True)
    if not names:
        run(*BUILDER, "--sdist", "--outdir", DIST, ROOT)
    return 0


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def compile_kernel(name: str, target: Target) -> Path:
    """The library of a target. Only what changed since the last time is compiled."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    compiler = folder / "c++"
    script = COMPILER.format(python=sys.executable, target=target.zig)
    if not compiler.exists() or compiler.read_text() != script:
        compiler.write_text(script)
        compiler.chmod(0o755)
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_SYSTEM_NAME": target.system,
        "CMAKE_SYSTEM_PROCESSOR": target.processor,
        "CMAKE_CXX_COMPILER": str(compiler),
        # zig's compiler is known, and CMake's questions to it take minutes: each links a program.
        "CMAKE_CXX_COMPILER_FORCED": "ON",
        "CMAKE_CXX_COMPILER_ID": "Clang",
        "CMAKE_CXX_COMPILER_ID_RUN": "ON",
        "CMAKE_CXX_COMPILER_VERSION": "20",
        "CMAKE_CXX_STANDARD_COMPUTED_DEFAULT": "17",
        "CMAKE_CXX_EXTENSIONS_COMPUTED_DEFAULT": "ON",
        "CMAKE_INSTALL_NAME_TOOL": "true",
        "CMAKE_OSX_SYSROOT": "",
        # The kernel needs no C++ library, which zig would build for each target.
        "CMAKE_MODULE_LINKER_FLAGS": "-nostdlib++" + (" -s -Wl,-z,defs" if target.system == "Linux" else ""),
    }
    run("cmake", "-S", ROOT, "-B", folder, *(f"-D{key}={value}" for key, value in settings.items()))
    run("cmake", "--build", folder, "--parallel", "2")
    check_library(folder / target.library, target)
    return folder / target.library


def check_library(library: Path, target: Target) -> None:
    """Refuse a library of another format, or one that needs more of its system than the C library.

    auditwheel looks at the versions of glibc's symbols besides; of musl it knows nothing where there is glibc.
    """
    content = library.read_bytes()
    magic = {"Linux": b"\x7fELF", "Darwin": b"\xcf\xfa\xed\xfe", "Windows": b"MZ"}[target.system]
    if not content.startswith(magic):
        raise SystemExit(f"{library} is no library of {target.system}")
    if target.system == "Linux":
        from elftools.elf.elffile import ELFFile

        tags = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
        known = {"libc.so"} if "musl" in target.zig else {"libc.so.6", "libm.so.6", f"ld-linux-{target.processor}.so.1"}
        if not needed <= known:
            raise SystemExit(f"{library} needs {', '.join(sorted(needed - known))}, which a wheel may not count on")


def python_files() -> dict[str, bytes]:
    """The content of a wheel without a kernel, but for its list of files and its tag."""
    folder = BUILD / "python"
    shutil.rmtree(folder, ignore_errors=True)
    run(*BUILDER, "--wheel", "-Cwheel.cmake=false", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def pack(files: dict[str, bytes], library: Path, target: Target) -> Path:
    """A wheel of the Python files and one library. The same input gives the same bytes."""
    info = next(name for name in files if name.endswith(".dist-info/WHEEL")).partition("/")[0]
    name = info.removesuffix(".dist-info")
    lines = [line for line in files[f"{info}/WHEEL"].decode().splitlines() if not line.startswith(("Tag", "Root"))]
    lines = [line for line in lines if line] + ["Root-Is-Purelib: false"]
    lines += [f"Tag: py3-none-{tag}" for tag in target.tag.split(".")]
    content = {**files, f"{info}/WHEEL": "\n".join([*lines, ""]).encode()}
    kernel = library.read_bytes()
    content[f"scornn/ops/{target.library}"] = kernel
    content[f"scornn/ops/{target.library}.sha256"] = f"{hashlib.sha256(kernel).hexdigest()}\n".encode()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, data in sorted(content.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    wheel = DIST / f"{name}-py3-none-{target.tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in [*sorted(content.items()), (f"{info}/RECORD", record.getvalue().encode())]:
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
