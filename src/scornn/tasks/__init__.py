"""The problems of the paper, sequences of your own, and the catalogue that others are entered into."""

from scornn.tasks.adding import Adding, AddingConfig
from scornn.tasks.arrays import Arrays, ArraysConfig
from scornn.tasks.base import Batch, Task, TaskConfig, TaskForm
from scornn.tasks.catalogue import TASKS, make, task
from scornn.tasks.contract import check
from scornn.tasks.copying import Copying, CopyingConfig
from scornn.tasks.pixel_mnist import PixelMnist, PixelMnistConfig
from scornn.tasks.speech import Speech, SpeechConfig

__all__ = [
    "TASKS",
    "Adding",
    "AddingConfig",
    "Arrays",
    "ArraysConfig",
    "Batch",
    "Copying",
    "CopyingConfig",
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
