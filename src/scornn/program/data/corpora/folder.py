"""Any folder of wav files with a folder per speaker: speakers are held out for validation and test."""

import re
from pathlib import Path

from scornn.errors import DataError
from scornn.program.data import locate
from scornn.program.data.corpora.base import Corpus, Utterance, hold_out, wav_files

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def load(data: Path | None, allow_partial: bool) -> Corpus:
    """Every wav below ``data``; the speaker is the folder that a file stands in."""
    root = locate.roots(data)[0]
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; pass --data with a folder that has one folder of wav per speaker")
    paths = list(wav_files(root))
    if not paths:
        raise DataError(f"{root}: found no wav file below it, expected one folder of wav files per speaker")
    speakers = {path: path.parent.relative_to(root).as_posix() for path in paths}
    splits = hold_out(speakers.values(), root)
    utterances: dict[str, Utterance] = {}
    for path, speaker in speakers.items():
        identity = _UNSAFE.sub("_", path.relative_to(root).with_suffix("").as_posix()).lstrip(".") or "_"
        while identity in utterances:
            identity += "_"
        utterances[identity] = Utterance(identity, speaker, splits[speaker], path)
    return Corpus("folder", tuple(utterances[identity] for identity in sorted(utterances)), rate=None)
