"""The problems of the paper: data, loss, metrics and naive baseline of each."""

from pathlib import Path

import msgspec

from scornn.errors import UsageError
from scornn.tasks.adding import Adding, AddingConfig
from scornn.tasks.base import Batch, Task, TaskConfig
from scornn.tasks.copying import Copying, CopyingConfig
from scornn.tasks.pixel_mnist import PixelMnist, PixelMnistConfig
from scornn.tasks.speech import Speech, SpeechConfig

AnyTaskConfig = CopyingConfig | AddingConfig | PixelMnistConfig | SpeechConfig

__all__ = [
    "Adding",
    "AddingConfig",
    "AnyTaskConfig",
    "Batch",
    "Copying",
    "CopyingConfig",
    "PixelMnist",
    "PixelMnistConfig",
    "Speech",
    "SpeechConfig",
    "Task",
    "TaskConfig",
    "make",
]


def make(config: AnyTaskConfig, seed: int, data: Path | None = None) -> Task:
    """The task that a configuration describes.

    Args:
        config: one of the task configurations; its ranges are checked again here, for structs built in code.
        seed: of all that is drawn: the generated data and the order of the training samples.
        data: the folder to look in first for files; see :mod:`scornn.data.locate`.
    """
    try:
        config = msgspec.convert(msgspec.to_builtins(config), type(config))
    except msgspec.ValidationError as error:
        raise UsageError(f"task {config.__struct_config__.tag}: {error}") from None
    match config:
        case CopyingConfig():
            return Copying(config, seed)
        case AddingConfig():
            return Adding(config, seed)
        case PixelMnistConfig():
            return PixelMnist(config, seed, data)
        case SpeechConfig():
            return Speech(config, seed, data)
