"""Runs `scornn` commands in forked children: importing torch once pays for all of them.

Reads one JSON object a line on stdin ({"argv", "cwd", "output", "limit", "trace"}), answers with the child's pid, and
with its exit code (negative: the signal that killed it) when it ends. Nothing is computed here before forking.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import traceback

import torch._dynamo  # noqa: F401  (every optimizer imports it when it is made)

import scornn.program.recipes.presets
import scornn.program.train.program  # noqa: F401
from scornn.program.cli import main

PR_SET_PTRACER = 0x59616D61


def child(job: dict) -> int:
    os.chdir(job["cwd"])
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    if job["limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
    if job["trace"]:  # wait for strace, which any process may be
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        return main(job["argv"])
    except BaseException:
        traceback.print_exc()
        return 1


print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = child(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
