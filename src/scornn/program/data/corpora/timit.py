"""TIMIT: 3,696 training utterances, 400 of the 50 development speakers, 192 of the core test set.

Both layouts are read, in any case: the LDC's ``TRAIN/DR1/FCJF0/SX37.WAV`` and that of NLTK's sample,
``dr1-fvmh0/sx206.wav``. The two SA sentences, which every speaker reads, are dropped by the name of the
SENTENCE: dropping every path that contains "sa", as others did, costs the speakers whose name does (56
training files).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from scornn.errors import DataError
from scornn.program.data import locate
from scornn.program.data.corpora.base import Corpus, Utterance, hold_out, listed, wav_files

RATE = 16_000
PER_SPEAKER = 8
TRAIN_SPEAKERS = 462
_DEVELOPMENT = """
faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0 mglb0
mrtk0 mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0 mrcs0 mrjm4
fcal1 mmwh0 fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1
"""
_CORE = """
mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0
mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0
"""
DEVELOPMENT = frozenset(_DEVELOPMENT.split())
CORE = frozenset(_CORE.split())
_EXPECTED = {
    "train": TRAIN_SPEAKERS * PER_SPEAKER,
    "valid": len(DEVELOPMENT) * PER_SPEAKER,
    "test": len(CORE) * PER_SPEAKER,
}
_SPEAKER = re.compile(r"(?:dr[1-8]-)?(?P<speaker>[fm][a-z]{3}[0-9])")
_SENTENCE = re.compile(r"(?P<sentence>(?P<kind>s[aix])[0-9]+)(?:\.wav)+")
_IN_TRAINING = re.compile(r"^(\w{3}\d)\s+([MF])\s+[1-8]\s+TRN\b", re.MULTILINE)
_BELOW = ("timit", "TIMIT", "timit_sample")
_GET = "The corpus is LDC93S1 of the Linguistic Data Consortium; NLTK distributes a sample of 16 speakers"


def load(data: Path | None, allow_partial: bool) -> Corpus:
    """TIMIT in its splits; anything missing is an error that lists it, unless ``allow_partial``.

    A part of the corpus keeps the lists' splits if it has speakers for each of them; otherwise speakers are
    held out.
    """
    root = find(data)
    if root is None:
        looked = listed(locate.folders(data, _BELOW) or locate.roots(data))
        raise DataError(f"TIMIT is missing: no TIMIT utterance below {looked}. {_GET}; pass --data or set SCORNN_DATA")
    once: dict[str, Utterance] = {}
    for utterance in _matches(root):
        once.setdefault(utterance.id, utterance)
    found = [once[identity] for identity in sorted(once)]
    split = [replace(utterance, split=_split(utterance)) for utterance in found]
    kept = [utterance for utterance in split if utterance.split]
    missing = _missing(kept, _expected_in_training(root))
    if not missing:
        return Corpus("timit", tuple(kept), RATE)
    if not allow_partial:
        raise DataError(
            f"{root}: not the whole of TIMIT: {'; '.join(missing)}. {_GET}. To use what is there, with speakers "
            f"held out where the lists have none, pass --allow-partial"
        )
    notes = [f"partial TIMIT in {root}: {'; '.join(missing)}"]
    if {utterance.split for utterance in kept} != set(_EXPECTED):
        splits = hold_out((utterance.speaker for utterance in found), root)
        kept = [replace(utterance, split=splits[utterance.speaker]) for utterance in found]
        out = {split: listed(s for s in splits if splits[s] == split) for split in ("valid", "test")}
        notes.append(f"speakers held out: {out['valid']} for validation, {out['test']} for test")
    return Corpus("timit", tuple(kept), RATE, tuple(notes))


def find(data: Path | None) -> Path | None:
    """The first folder with a TIMIT utterance below it."""
    return next((root for root in locate.folders(data, _BELOW) if any(_matches(root))), None)


def _matches(root: Path) -> Iterator[Utterance]:
    """The SI and SX sentences below a folder; ``split`` holds the part of the disc: train, test or nothing."""
    for path in wav_files(root):
        speaker = _SPEAKER.fullmatch(path.parent.name.lower())
        sentence = _SENTENCE.fullmatch(path.name.lower())
        if speaker is None or sentence is None or sentence["kind"] == "sa":
            continue
        above = [part.lower() for part in path.relative_to(root).parts[:-2]]
        part = next((part for part in reversed(above) if part in ("train", "test")), "")
        yield Utterance(f"{speaker['speaker']}_{sentence['sentence']}", speaker["speaker"], part, path)


def _split(utterance: Utterance) -> str:
    """By the lists; test speakers who are in neither have no split."""
    if utterance.speaker in DEVELOPMENT:
        return "valid"
    if utterance.speaker in CORE:
        return "test"
    return "" if utterance.split == "test" else "train"


def _expected_in_training(root: Path) -> set[str]:
    """The training speakers that the disc's own list names, where it is there, and those whose folders are."""
    named: set[str] = set()
    test: set[str] = set()
    for folder in root.rglob("*"):
        speaker = _SPEAKER.fullmatch(folder.name.lower()) if folder.is_dir() else None
        if speaker:
            parts = [part.lower() for part in folder.relative_to(root).parts]
            (test if "test" in parts else named).add(speaker["speaker"])
    for path in (p for p in root.rglob("*") if p.name.lower() == "spkrinfo.txt"):
        listed_there = _IN_TRAINING.findall(path.read_text(encoding="latin-1"))
        named |= {f"{sex}{identity}".lower() for identity, sex in listed_there}
    return named - test - DEVELOPMENT - CORE


def _missing(utterances: Iterable[Utterance], training: set[str]) -> list[str]:
    counts = {split: Counter(u.speaker for u in utterances if u.split == split) for split in _EXPECTED}
    problems = []
    if gone := sorted(training - counts["train"].keys()):
        problems.append(f"{len(gone)} train speakers without a sentence ({listed(gone)})")
    for split, names in (("valid", DEVELOPMENT), ("test", CORE)):
        if absent := sorted(names - counts[split].keys()):
            problems.append(f"{len(absent)} of the {len(names)} {split} speakers missing ({listed(absent)})")
    for split, speakers in counts.items():
        if wrong := sorted(s for s, count in speakers.items() if count != PER_SPEAKER):
            named = listed(f"{s}: {speakers[s]}" for s in wrong)
            problems.append(f"{split} speakers with other than {PER_SPEAKER} SI and SX sentences ({named})")
        if speakers.total() != _EXPECTED[split]:
            problems.append(f"{speakers.total()} {split} utterances, expected {_EXPECTED[split]}")
    return problems
