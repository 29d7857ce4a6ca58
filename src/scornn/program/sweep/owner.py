"""Who runs a trial, and whether that process is still there.

On the machine of the owner its process is looked up. From elsewhere all that shows is its heartbeat: a number in the
storage that changes every few seconds, judged by the watcher's own clock, so that machines need not agree on the time.
"""

import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

BEAT_SECONDS = 15.0
GRACE_SECONDS = 120.0
"""An owner elsewhere whose heartbeat has not changed for so long is gone."""


def this_process() -> dict[str, Any]:
    """Names this process among all machines: the boot, the space of process numbers, the number and when it began."""
    machine = platform.node()
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return {"machine": machine, "pid": os.getpid(), "began": _began(os.getpid())}


def _began(pid: int) -> str | None:
    """When a process began, in ticks since the boot; None where there is none, or where the system does not say."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else fields[19]
    return None


class Watcher:
    """Tells the living owners from the dead."""

    def __init__(self) -> None:
        self.me = this_process()
        self._seen: dict[int, tuple[Any, float]] = {}

    def alive(self, trial: int, owner: Any, beat: Any) -> bool:
        """Whether a trial that stands as running is being run. This process asks only while it runs none itself."""
        if not isinstance(owner, dict) or owner == self.me:
            return False
        if owner.get("machine") == self.me["machine"] and self.me["began"] is not None:
            return bool(_began(int(owner["pid"])) == owner["began"])
        sign, now = (owner, beat), time.monotonic()
        before, since = self._seen.setdefault(trial, (sign, now))
        if before != sign:
            self._seen[trial] = (sign, now)
            return True
        return now - since < GRACE_SECONDS


class Heartbeat:
    """While entered, calls ``beat`` with a new number every few seconds, from a thread of its own."""

    def __init__(self, beat: Callable[[int], None]) -> None:
        self._beat = beat
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._end.wait(BEAT_SECONDS):
            number += 1
            with suppress(Exception):  # the training itself meets a storage that is gone, and says so
                self._beat(number)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
