"""The threads that share one call of the kernel."""

from __future__ import annotations

import _thread
import ctypes
import os
from collections.abc import Callable
from queue import SimpleQueue

from scornn.ops import library
from scornn.torch_internals import openmp_parallel

Work = Callable[[int], None]


class Workers:
    """The threads that run the shards of a call.

    PyTorch's own, where its OpenMP runtime has the entry point of GCC's: they go on spinning for milliseconds after
    each of its operations, and would take a core from any others. A process forked from one that used them hangs when
    it does so again, so a forked child uses threads of Python.

    Those wait at a queue. A signal's handler may raise in the caller at any moment, and leaves nothing half done: the
    queues are of C, where ``threading``'s conditions, which a pool of ``concurrent.futures`` and the start of a
    ``Thread`` wait for, can be left without the lock that they then release.
    """

    def __init__(self) -> None:
        self._openmp = openmp_parallel()
        if self._openmp is not None:
            self._openmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            self._openmp.restype = None
        self._no_threads()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._openmp = None
        self._no_threads()

    def _no_threads(self) -> None:
        self._jobs: SimpleQueue[tuple[Work, int, object, SimpleQueue[None]]] = SimpleQueue()
        self._threads = 0

    def run(self, work: Work, tasks: list[library.Task], keep: object) -> None:
        """Run all tasks by ``work``, each in a thread of its own where there are enough; raise if one of them fails.

        ``keep`` holds the memory that the tasks point into. A signal may raise here while other threads are still at
        work, so each of them holds on to it too: nothing is freed under a running task.
        """
        count = len(tasks)
        array = (library.Task * count)(*tasks)
        shared = library.Tasks(array, count, 0)
        address = ctypes.addressof(shared)
        if count <= 1:
            work(address)
        elif self._openmp is not None:
            self._openmp(work, address, count, 0)
        else:
            self._start(min(count - 1, os.cpu_count() or 1))
            ended: SimpleQueue[None] = SimpleQueue()
            for _ in tasks[1:]:
                self._jobs.put((work, address, (shared, array, tasks, keep), ended))
            work(address)
            for _ in tasks[1:]:
                ended.get()
        for task in array:
            if task.status:
                error = MemoryError if task.status == 1 else RuntimeError
                raise error(f"the native kernel failed: {library.STATUS.get(task.status, task.status)}")

    def _start(self, wanted: int) -> None:
        while self._threads < wanted:  # two callers, or a signal between the lines, start one too many at worst
            _thread.start_new_thread(_serve, (self._jobs,))
            self._threads += 1


def _serve(jobs: SimpleQueue[tuple[Work, int, object, SimpleQueue[None]]]) -> None:
    while True:
        _work(*jobs.get())


def _work(work: Work, address: int, keep: object, ended: SimpleQueue[None]) -> None:
    try:
        work(address)
    finally:
        ended.put(None)
