"""Speech: predict the next frame's log-magnitudes (section 5.4 of the paper).

An utterance of L frames (see :mod:`scornn.program.data.stft`) gives L - 1 steps: the input is frame t, the target
frame t + 1. The loss is the squared error, averaged over the bins of the steps that exist: padding enters
neither the loss nor the gradient. The baseline is the error of predicting that the next frame is as the
present one.

Two scales. ``mse`` is the mean over valid steps. ``mse_padded`` divides the same sum by the steps of the
PADDED sequences, as the public pipeline that the paper follows does (all training utterances padded to the
longest of them, all others to the longest of those): printed figures are then smaller, by the mean length
over the longest. The paper's table most likely stands on this scale; compare it with nothing else.

The last frame's target is this program's choice: there is none. That pipeline asks, after the last frame,
for one frame of silence more (-50 dB). As the last frame sees nothing but padding, it is itself silence,
and asking for its successor would only reward the constant. Its scale also counts the 94 test speakers who
are in neither list when it looks for the longest utterance; this program does not read them.

The paper's text says nothing of the batch, the order or the masking; batch 28 is that pipeline's, the order
here is drawn for each epoch.
"""

import logging
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from scornn.program.data import corpora, features, stft
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig
from scornn.program.tasks.catalogue import task

_log = logging.getLogger(__name__)


class SpeechConfig(TaskConfig, frozen=True, kw_only=True, tag="speech"):
    """Settings of the speech task.

    Args:
        corpus: ``timit``, ``iban``, or ``folder``, any folder of wav files with a folder per speaker.
        allow_partial: go on without what is missing or cannot be used, listing it.
    """

    corpus: Annotated[Literal["timit", "iban", "folder"], Level.PROBLEM] = "timit"
    allow_partial: Annotated[bool, Level.VARIANT] = False
    batch: Annotated[int, Meta(ge=1, le=100_000), Level.VARIANT] = 28
    eval_batch: Annotated[int, Meta(ge=1, le=100_000), Level.MACHINE] = 64


@task("speech", SpeechConfig, label="speech", smoke={"batch": 4})
class Speech(Task):
    """Next-frame prediction on one corpus. ``notes`` says what is missing, skipped or held out."""

    input_size = stft.BINS
    output_size = stft.BINS
    read = "all"
    splits = corpora.SPLITS
    headline = "mse"
    goal = "min"
    about = (
        "From the frames of a recording up to now the next one is predicted, as log-magnitudes of 129 frequencies; who "
        "answers that it is as the present one has the baseline. The mean squared error (MSE) not padded is taken over "
        "the frames that exist; padded, it is divided by the frames of the longest recording, as the paper most likely "
        "did, and so is smaller."
    )

    def __init__(self, config: SpeechConfig, seed: int, data: Path | None = None) -> None:
        super().__init__(config, seed)
        corpus = corpora.load(config.corpus, data, allow_partial=config.allow_partial)
        self.rate = corpus.rate
        self.features = features.load(corpus, allow_partial=config.allow_partial)
        self.sources = self.features.fingerprint
        self.notes = (*corpus.notes, *(f"skipped {reason}" for reason in self.features.skipped))
        for note in self.notes:
            _log.warning("%s", note)
        self._lengths = np.diff(self.features.starts)
        parts = np.array([utterance.split for utterance in self.features.utterances])
        self._members = {split: self._longest_first(np.flatnonzero(parts == split)) for split in self.splits}
        held_out = max(self._lengths[self._members[split]].max() for split in ("valid", "test"))
        train = self._lengths[self._members["train"]].max()
        self._padded = {"train": int(train), "valid": int(held_out), "test": int(held_out)}
        self.baseline = self._persistence("test")

    def _longest_first(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        return members[np.argsort(-self._lengths[members], kind="stable")]

    def _persistence(self, split: str) -> float:
        moves = [np.diff(self.features.of(index), axis=0) for index in self._members[split]]
        return float(sum(np.square(m, dtype=np.float64).sum() for m in moves) / sum(m.size for m in moves))

    def size(self, split: str) -> int:
        return len(self._members[split])

    def members(self, split: str, epoch: int, step: int) -> NDArray[np.int64]:
        """The utterances of a batch, as indices into ``features``, longest first."""
        rows = self.shuffled(split, epoch, step) if split == "train" else np.array(self.rows(split, step))
        return self._longest_first(self._members[split][rows])

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Inputs and targets (T, B, 129), silence after ``lengths``; longest first."""
        members = self.members(split, epoch, step)
        lengths = self._lengths[members] - 1
        shape = (int(lengths[0]), len(members), stft.BINS)
        inputs, targets = (np.full(shape, stft.SILENCE, dtype=np.float32) for _ in range(2))
        for column, (index, length) in enumerate(zip(members, lengths, strict=True)):
            frames = self.features.of(index)
            inputs[:length, column] = frames[:-1]
            targets[:length, column] = frames[1:]
        return Batch(
            torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(lengths), self._padded[split]
        )

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        if (lengths := batch.lengths) is None:
            raise ValueError("a batch of speech needs lengths")
        error = torch.where(batch.valid.unsqueeze(-1), outputs - batch.targets, 0)
        return error.square().sum(), int(lengths.sum()) * self.output_size

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs.double(), batch)
        padded = (batch.padded or batch.inputs.shape[0]) * batch.size * self.output_size
        return {
            "loss": (total.item(), count),
            "mse": (total.item(), count),
            "mse_padded": (total.item(), padded),
        }
