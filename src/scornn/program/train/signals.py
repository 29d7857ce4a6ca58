"""SIGINT, SIGTERM and SIGHUP as a wish that the next step boundary grants."""

import signal
import threading
from types import FrameType
from typing import Any, Self

_HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""None on Windows, which has no such signal."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([_HANGUP] if _HANGUP else []))


class StopRequest:
    """While entered, the first SIGINT, SIGTERM or SIGHUP only sets :attr:`signal`; a second SIGINT leaves at once.

    SIGHUP stays ignored where it is, as under nohup.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.signal is not None:
            raise KeyboardInterrupt
        self.signal = self.signal or number

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in _SIGNALS if n != _HANGUP or signal.getsignal(n) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
