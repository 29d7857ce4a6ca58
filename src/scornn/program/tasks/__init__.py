"""The problems of the paper, sequences of your own, and the catalogue that others are entered into."""

from scornn.program.tasks.adding import Adding, AddingConfig
from scornn.program.tasks.arrays import Arrays, ArraysConfig
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig, TaskForm
from scornn.program.tasks.catalogue import TASKS, make, task
from scornn.program.tasks.contract import check
from scornn.program.tasks.copying import Copying, CopyingConfig
from scornn.program.tasks.pixel_mnist import PixelMnist, PixelMnistConfig
from scornn.program.tasks.speech import Speech, SpeechConfig

__all__ = [
    "TASKS",
    "Adding",
    "AddingConfig",
    "Arrays",
    "ArraysConfig",
    "Batch",
    "Copying",
    "CopyingConfig",
    "Level",
    "PixelMnist",
    "PixelMnistConfig",
    "Speech",
    "SpeechConfig",
    "Task",
    "TaskConfig",
    "TaskForm",
    "check",
    "make",
    "task",
]
