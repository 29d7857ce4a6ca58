"""Corpora: TIMIT's protocol and its traps, Iban's lists, any folder of speakers."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scornn.errors import DataError
from scornn.program.data import corpora
from scornn.program.data.corpora import base, timit


def sizes(corpus: corpora.Corpus) -> dict[str, int]:
    return dict(Counter(utterance.split for utterance in corpus.utterances))


@pytest.fixture
def copy(timit_tree: Path, tmp_path: Path) -> Path:
    """The tree, made of links, to take things from."""
    shutil.copytree(timit_tree, tmp_path / "timit", copy_function=lambda a, b: Path(b).hardlink_to(a))
    return tmp_path / "timit"


def test_the_whole_of_timit(timit_tree: Path) -> None:
    corpus = corpora.load("timit", timit_tree)
    assert sizes(corpus) == {"train": 3696, "valid": 400, "test": 192}
    assert corpus.notes == ()
    speakers = {split: {u.speaker for u in corpus.utterances if u.split == split} for split in corpora.SPLITS}
    assert [len(speakers[split]) for split in corpora.SPLITS] == [462, 50, 24]
    assert speakers["valid"] == timit.DEVELOPMENT
    assert speakers["test"] == timit.CORE
    assert not any(u.path.name.startswith("SA") for u in corpus.utterances)
    assert sum("sa" in speaker for speaker in speakers["train"]) == 7
    assert len({u.id for u in corpus.utterances}) == 4288


def test_the_layout_is_found_below_and_in_any_case(copy: Path, tmp_path: Path) -> None:
    assert sizes(corpora.load("timit", tmp_path))["train"] == 3696
    (copy / "TRAIN").rename(copy / "train")
    folder = copy / "TEST" / "DR1"
    folder.rename(copy / "TEST" / "dr1")
    speaker = next((copy / "TEST" / "dr1").iterdir())
    for path in speaker.iterdir():
        path.rename(speaker / path.name.lower())
    assert sizes(corpora.load("timit", copy)) == {"train": 3696, "valid": 400, "test": 192}


def test_converted_copies_count_once(copy: Path) -> None:
    """Some distributions hold SX1.WAV and its RIFF twin SX1.WAV.wav."""
    for path in list(copy.glob("TRAIN/DR1/*/S*.WAV")):
        path.with_name(path.name + ".wav").hardlink_to(path)
    assert sizes(corpora.load("timit", copy))["train"] == 3696


def test_a_training_speaker_that_is_missing_is_named(copy: Path) -> None:
    """Whose folder is empty, or whom the disc's own list names."""
    emptied, removed = copy.glob("TRAIN/*/M[BC]SA0")
    for path in emptied.iterdir():
        path.unlink()
    shutil.rmtree(removed)
    (copy / "DOC").mkdir()
    lines = f";  ID  Sex DR Use\n{removed.name[1:]}  {removed.name[0]}  1   TRN  03/03/86\nABC1  M  1   TST  03/03/86\n"
    (copy / "DOC" / "SPKRINFO.TXT").write_text(lines)
    names = ", ".join(sorted(folder.name.lower() for folder in (emptied, removed)))
    with pytest.raises(DataError, match=f"2 train speakers without a sentence \\({names}\\)"):
        corpora.load("timit", copy)


def test_what_is_missing_is_listed(copy: Path) -> None:
    (core,) = copy.glob("TEST/*/MDAB0")
    shutil.rmtree(core)
    (short,) = copy.glob("TRAIN/*/MBSA0")
    next(short.glob("SX*")).unlink()
    with pytest.raises(DataError) as caught:
        corpora.load("timit", copy)
    message = str(caught.value)
    assert "1 of the 24 test speakers missing (mdab0)" in message
    assert "train speakers with other than 8 SI and SX sentences (mbsa0: 7)" in message
    assert "3695 train utterances, expected 3696" in message
    assert "--allow-partial" in message

    corpus = corpora.load("timit", copy, allow_partial=True)
    assert sizes(corpus) == {"train": 3695, "valid": 400, "test": 184}
    assert "mdab0" in corpus.notes[0]


def test_the_real_sample(shared_data: Path) -> None:
    """NLTK's layout, training speakers only: partial, so speakers are held out."""
    with pytest.raises(DataError, match="not the whole of TIMIT"):
        corpora.load("timit", shared_data)
    corpus = corpora.load("timit", shared_data, allow_partial=True)
    assert sizes(corpus) == {"train": 96, "valid": 16, "test": 16}
    assert "speakers held out" in corpus.notes[1]
    for note in ("fvmh0, mcpm0 for validation", "fapb0, marc0 for test"):
        assert note in corpus.notes[1]


def test_no_timit_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"TIMIT is missing: no TIMIT utterance below .*LDC93S1") as caught:
        corpora.load("timit", tmp_path)
    assert caught.value.exit_code == 3


def test_iban(shared_data: Path) -> None:
    corpus = corpora.load("iban", shared_data)
    assert sizes(corpus) == {"train": 417, "valid": 65, "test": 89}
    speakers = {split: {u.speaker for u in corpus.utterances if u.split == split} for split in corpora.SPLITS}
    assert [len(speakers[split]) for split in corpora.SPLITS] == [15, 2, 6]
    assert not speakers["train"] & speakers["valid"]


def iban_like(root: Path, train: str, test: str) -> Path:
    for part, lines in (("train", train), ("test", test)):
        (root / "data" / part).mkdir(parents=True)
        (root / "data" / part / f"{part}_utt2spk").write_text(lines)
    for speaker in ("a", "b", "c"):
        (root / "data" / "wav" / speaker).mkdir(parents=True)
        (root / "data" / "wav" / speaker / f"{speaker}_1.wav").touch()
    return root


def test_iban_takes_what_exists(tmp_path: Path) -> None:
    corpus = corpora.load("iban", iban_like(tmp_path, "a_1\ta\na_2\ta\nb_1\tb\n", "c_1 c\n"))
    assert [(u.id, u.split) for u in corpus.utterances] == [("a_1", "train"), ("b_1", "valid"), ("c_1", "test")]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("a_1 a\n", "c_1 c\n", "1 train utterances of 1 speaker"),
        ("a_1 a\nb_1 b\n", "", "0 test utterances"),
        ("a_1 a\nb_1 b\n", "a_1 a\n", "both the train and the test list: a"),
        ("../../etc/passwd a\n", "", r"line 1 is '\.\./"),
        ("a_1\n", "", "line 1 is 'a_1', expected an utterance and its speaker"),
    ],
)
def test_iban_lists_that_are_wrong(tmp_path: Path, train: str, test: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        corpora.load("iban", iban_like(tmp_path, train, test))


def test_iban_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data/wav below .*openslr"):
        corpora.load("iban", tmp_path)
    (tmp_path / "data" / "wav").mkdir(parents=True)
    with pytest.raises(DataError, match="train_utt2spk: cannot be read"):
        corpora.load("iban", tmp_path)


def test_folder(tmp_path: Path) -> None:
    for speaker in ("anna", "x/berta", "carl"):
        (tmp_path / speaker).mkdir(parents=True)
        (tmp_path / speaker / "one two.WAV").touch()
        (tmp_path / speaker / "one_two.wav").touch()
        (tmp_path / speaker / "notes.txt").touch()
    corpus = corpora.load("folder", tmp_path)
    assert sizes(corpus) == {"train": 2, "valid": 2, "test": 2}
    assert {u.speaker for u in corpus.utterances} == {"anna", "x/berta", "carl"}
    assert all("/" not in u.id and " " not in u.id for u in corpus.utterances)
    assert len({u.id for u in corpus.utterances}) == 6
    with pytest.raises(DataError, match=r"found 1 speaker\(s\) \(\.\), expected at least 3"):
        corpora.load("folder", tmp_path / "anna")
    with pytest.raises(DataError, match="no such folder"):
        corpora.load("folder", tmp_path / "dora")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="found no wav file below it"):
        corpora.load("folder", tmp_path / "empty")


@given(st.sets(st.text("abc", min_size=1), min_size=3, max_size=40))
def test_hold_out_leaves_no_split_empty(speakers: set[str]) -> None:
    splits = base.hold_out(speakers, Path("x"))
    assert splits.keys() == speakers
    counts = Counter(splits.values())
    assert counts.keys() == set(corpora.SPLITS)
    assert counts["train"] >= counts["valid"] + counts["test"] - 1


def test_long_lists_are_cut() -> None:
    assert base.listed(range(3)) == "0, 1, 2"
    assert base.listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
