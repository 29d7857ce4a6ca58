"""TensorBoard, where it is installed: the same records as ``metrics.jsonl``."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scornn.errors import UsageError, not_installed


class Board:
    """Writes each record's numbers under ``tensorboard/``, as ``metric/split``."""

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer: Any = SummaryWriter(str(directory), purge_step=step + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        """One line of the metrics."""
        curve = "-".join(str(record[key]) for key in ("split", "weights") if key in record)
        for name, value in record.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{name}/{curve}", value, record["step"])

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def check(wanted: bool | None) -> None:
    """Refuse a board that is asked for where tensorboard is not installed."""
    if wanted and find_spec("tensorboard") is None:
        raise UsageError(not_installed("--tensorboard on", "tensorboard"))


def open_board(wanted: bool | None, directory: Path, step: int) -> Board | None:
    """A board where wanted, or where not said and installed."""
    check(wanted)
    return None if wanted is False or find_spec("tensorboard") is None else Board(directory, step)
