"""All data sets that have a home: where each is found, and what it takes to verify it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scornn.errors import DataError
from scornn.program.data import audio, corpora, mnist
from scornn.program.data.corpora import SPLITS, iban, timit
from scornn.program.data.corpora.base import listed
from scornn.program.progress import Bar


@dataclass(frozen=True)
class Source:
    """``find(data)`` gives the folder of a data set or None; ``verify(folder)`` says what it holds or raises."""

    find: Callable[[Path | None], Path | None]
    verify: Callable[[Path], str]
    advice: str


def _verify_images(dataset: str, folder: Path) -> str:
    images = mnist.load(dataset, folder)
    return f"{len(images.train_images)} + {len(images.test_images)} images in {folder}, sha256 as published"


def _verify_speech(name: str, folder: Path) -> str:
    corpus = corpora.load(name, folder, allow_partial=True)
    problems = []
    with Bar(f"reading {len(corpus.utterances)} utterances of {name}", len(corpus.utterances), aside=True) as bar:
        for done, utterance in enumerate(corpus.utterances, 1):
            bar.update(done)
            try:
                audio.read(utterance.path, corpus.rate)
            except DataError as error:
                problems.append(str(error))
    if problems:
        raise DataError(f"{len(problems)} of {len(corpus.utterances)} files cannot be used: {listed(problems)}")
    counts = Counter(utterance.split for utterance in corpus.utterances)
    sizes = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    return "; ".join([f"{sizes} utterances in {folder}", *corpus.notes])


SOURCES = {
    **{
        source.name: Source(partial(mnist.find, source), partial(_verify_images, key), "downloaded when first needed")
        for key, source in mnist.SOURCES.items()
    },
    "TIMIT": Source(timit.find, partial(_verify_speech, "timit"), "licensed: LDC93S1"),
    "Iban": Source(iban.find, partial(_verify_speech, "iban"), "openslr.org, resource 24"),
}
