"""The Iban speech corpus (OpenSLR 24, CC BY-SA): radio news read aloud, with its own train and test speakers.

Layout: ``data/wav/<speaker>/<utterance>.wav`` and the lists ``data/{train,test}/*_utt2spk``. The lists may
name more than the folder holds: a part of the corpus is a corpus. For validation the training speakers of
``VALID_SPEAKERS`` are set aside; where neither is there, the last one.
"""

from pathlib import Path

from scornn.errors import DataError
from scornn.program.data import locate
from scornn.program.data.corpora.base import Corpus, Utterance, listed

RATE = 16_000
VALID_SPEAKERS = frozenset({"ibf_010", "ibm_006"})
_BELOW = ("iban", "iban_subset")
_GET = "The corpus is resource 24 of openslr.org, or `git clone https://github.com/sarahjuan/iban`"


def load(data: Path | None, allow_partial: bool) -> Corpus:
    """The utterances of the lists whose sound is there."""
    root = find(data)
    if root is None:
        looked = listed(locate.folders(data, _BELOW) or locate.roots(data))
        raise DataError(f"the Iban corpus is missing: no data/wav below {looked}. {_GET}; pass --data")
    train, test = (_present(root, part) for part in ("train", "test"))
    speakers = sorted({speaker for _, speaker, _ in train})
    if both := sorted(set(speakers) & {speaker for _, speaker, _ in test}):
        raise DataError(f"{root}: speakers in both the train and the test list: {listed(both)}")
    if len(speakers) < 2 or not test:
        raise DataError(
            f"{root}: found {len(train)} train utterances of {len(speakers)} speaker(s) and {len(test)} test "
            f"utterances, expected some of each and two train speakers. {_GET}"
        )
    valid = VALID_SPEAKERS & set(speakers) or {speakers[-1]}
    utterances = [Utterance(i, s, "valid" if s in valid else "train", path) for i, s, path in train]
    utterances += [Utterance(i, s, "test", path) for i, s, path in test]
    return Corpus("iban", tuple(sorted(utterances, key=lambda u: u.id)), RATE)


def find(data: Path | None) -> Path | None:
    """The first folder laid out as the corpus."""
    return next((root for root in locate.folders(data, _BELOW) if (root / "data" / "wav").is_dir()), None)


def _present(root: Path, part: str) -> list[tuple[str, str, Path]]:
    """(id, speaker, path) of the list's utterances that exist."""
    path = root / "data" / part / f"{part}_utt2spk"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}. {_GET}") from error
    present = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if len(fields) != 2 or any("/" in field or field.startswith(".") for field in fields):
            raise DataError(f"{path}: line {number} is {line[:80]!r}, expected an utterance and its speaker")
        sound = root / "data" / "wav" / fields[1] / f"{fields[0]}.wav"
        if sound.is_file():
            present.append((fields[0], fields[1], sound))
    return present
