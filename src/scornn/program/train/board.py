"""TensorBoard, where it is installed: the same records as ``metrics.jsonl``."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scornn.errors import UsageError, not_installed
from scornn.program.train.watch import Write, scalars


def wanted(asked: bool | None) -> bool:
    """Whether to write: where it is asked for, or where nothing is said and tensorboard is installed."""
    installed = find_spec("tensorboard") is not None
    if asked and not installed:
        raise UsageError(not_installed("--tensorboard on", "tensorboard"))
    return installed if asked is None else asked


@contextmanager
def opened(directory: Path, step: int) -> Iterator[Write]:
    """Writes each record's numbers under ``tensorboard/``."""
    from torch.utils.tensorboard.writer import SummaryWriter

    def write(record: Mapping[str, Any]) -> None:
        for name, value in scalars(record).items():
            writer.add_scalar(name, value, record["step"])

    with closing(SummaryWriter(str(directory), purge_step=step + 1)) as writer:
        yield write
