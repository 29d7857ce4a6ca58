"""What the program tells people: messages by ``logging``, and one bar.

A message goes to standard output, a warning to standard error, those of a run (``run_log``) into its ``log.txt`` too.
A bar is drawn where its stream is a terminal; elsewhere its text is a line now and then. A stream that cannot be
written to never costs a run.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TextIO

log = logging.getLogger("scornn")
run_log = logging.getLogger("scornn.run")


def tell(text: str, stream: TextIO) -> None:
    """Write a line that may get lost: nobody may read it, or the disk behind it may be full."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # what is still to be flushed goes there
    except UnicodeEncodeError:
        tell(text.encode("ascii", "replace").decode(), stream)
    except ValueError:  # closed
        pass


class _Terminal(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING
        tell(f"{'warning: ' if warning else ''}{record.getMessage()}", sys.stderr if warning else sys.stdout)


class RunLog(logging.Handler):
    """Keeps the messages of a run until it has a file for them."""

    def __init__(self) -> None:
        super().__init__()
        self._early: list[str] = []
        self._write: Callable[[str], object] = self._early.append

    def emit(self, record: logging.LogRecord) -> None:
        self._write(record.getMessage())

    def write_to(self, write: Callable[[str], object]) -> None:
        """Write what was kept, and from now on every message."""
        self._write = write
        for text in self._early:
            write(text)


_terminal = _Terminal()
log.addHandler(_terminal)
log.setLevel(logging.INFO)
log.propagate = False


@contextmanager
def run_messages(least: int = logging.INFO) -> Iterator[RunLog]:
    """Collect the messages of a run for its file; a terminal gets those of at least this level."""

    def shown(record: logging.LogRecord) -> bool:
        return record.name != run_log.name or record.levelno >= least

    handler = RunLog()
    run_log.addHandler(handler)
    _terminal.addFilter(shown)
    try:
        yield handler
    finally:
        _terminal.removeFilter(shown)
        run_log.removeHandler(handler)


class Bar:
    """A bar with a text under it in a terminal; elsewhere the text as a line, every so many seconds or when asked.

    A message that is logged meanwhile stands above the bar.
    """

    def __init__(
        self, title: str = "", total: float | None = None, *, every: float = 10, shown: bool = True, aside: bool = False
    ) -> None:
        """``aside`` is on standard error, for a command that prints a result; ``shown`` False shows nothing."""
        self._stream = sys.stderr if aside else sys.stdout
        self.title, self.total, self.every, self.shown = title, total, every, shown
        self.live = shown and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: Any = None
        self._text, self._first = "", 0.0
        self._since = self._last = time.perf_counter()

    def __enter__(self) -> Self:
        if self.live:
            self._bar = _drawn(self._stream, lambda: self._text)
            self._task = self._bar.add_task(self.title, total=self.total)
            self._bar.start()
        elif self.shown and self.title:
            tell(self.title, self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, done: float) -> None:
        """Work starts, or goes on from here, now."""
        self._first, self._since = done, time.perf_counter()
        self.update(done, self._text)

    def update(self, done: float, text: str = "", *, line: bool = False) -> None:
        """So much is done. Without a terminal the text is a line when the time has come, or ``line`` asks for it."""
        now = time.perf_counter()
        self._text = text
        if self._bar:
            self._bar.update(self._task, completed=done, total=self.total, description=self.title)
        elif self.shown and text and (line or now - self._last > self.every):
            self._last = now
            tell(" · ".join(filter(None, (text, self._times(done, now)))), self._stream)

    def say(self, text: str) -> None:
        """A message, unless people asked for silence."""
        if self.shown:
            log.info(text)

    def _times(self, done: float, now: float) -> str:
        if self.total is None or done <= self._first:
            return ""
        passed = now - self._since
        left = passed / (done - self._first) * (self.total - done)
        return f"{clock(passed)} elapsed · {clock(left)} left"


def clock(seconds: float) -> str:
    """``3725`` as "1:02:05"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _drawn(stream: TextIO, text: Callable[[], str]) -> Any:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

    class Drawn(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            if said := text():
                yield Text(said, overflow="fold")

    return Drawn(console=Console(file=stream), refresh_per_second=4, redirect_stderr=sys.stderr.isatty())
