"""Progress bars on stderr where it is a terminal; one plain line where it is not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int | None, *, bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar titled ``title``; the block gets a function that advances it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(title, markup=False, highlight=False)
        yield lambda count: None
        return
    amounts: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()] if bytes else [MofNCompleteColumn()]
    columns = [TextColumn("{task.description}", markup=False), BarColumn(), *amounts, TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
