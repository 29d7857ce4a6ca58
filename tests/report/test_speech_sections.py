"""Spectrograms and sound on the page, within their limits."""

import json

import numpy as np
import pytest

from scornn.program.report import page, speech


@pytest.fixture
def spoken(tmp_path, runs):
    run = runs.make(tmp_path / "run", runs.config("speech", hidden=224), steps=50)
    runs.add_audio(run, ("a", "b", "c", "d"), frames=40)
    return run


def test_first_utterances_are_shown_and_the_rest_said(spoken):
    sections = speech.examples(spoken, "scoRNN", utterances=2)
    shown = [s for s in sections if isinstance(s, page.Figures)]
    assert len(shown) == 2
    assert all(len(s.figures) == 2 and all(f.audio for f in s.figures) for s in shown)
    assert shown[0].figures[1].caption == "SegSNR 4.8, STOI 0.83, PESQ 2.74"
    assert sections[-1].paragraphs == ["2 of 4 utterances are shown; the others are in audio/."]


def test_sound_beyond_the_cap_is_left_out_and_said(spoken, monkeypatch):
    size = (spoken / "audio" / "a.true.wav").stat().st_size
    monkeypatch.setattr(speech, "MOST_BYTES", 3 * size)
    sections = speech.examples(spoken, "scoRNN", utterances=4)
    figures = [f for s in sections if isinstance(s, page.Figures) for f in s.figures]
    assert [f.audio is not None for f in figures] == [True] * 3 + [False] * 5
    assert "b.predicted.wav is left out: the page holds at most 0 MB of sound" in sections[-1].paragraphs


def test_scores_of_several_runs_are_one_table(spoken, tmp_path):
    bare = tmp_path / "bare"
    (bare / "audio").mkdir(parents=True)
    scores = {
        "mean": {"stoi": 0.7, "note": "x"},
        "conventions": {"stoi": "at 8 kHz"},
        "unavailable": {"pesq": "pip install it"},
        "refused": {"stoi": {"a": "silent", "b": "short"}, "pesq": {}},
    }
    (bare / "audio" / "scores.json").write_text(json.dumps(scores))
    table, conventions, notes = speech.scores([("ours", spoken), ("bare", bare), ("none", tmp_path)])
    assert conventions.paragraphs == ["STOI: at 8 kHz"]
    assert notes.paragraphs == [
        "bare: PESQ is missing: pip install it",
        "bare: STOI could not be given for 2 utterances: a (silent); b (short)",
    ]
    assert list(table.columns) == ["run", "utterances", "SegSNR", "STOI", "PESQ"]
    assert list(map(list, table.rows)) == [["ours", 4, 4.8, 0.83, 2.74], ["bare", None, None, 0.7, None]]


def test_damaged_files_are_said(spoken):
    audio = spoken / "audio"
    (audio / "a.npz").write_bytes(b"PK\x03\x04 no archive")
    np.savez(audio / "b.npz", true=np.zeros((3, 129)))
    np.savez(audio / "c.npz", true=np.array([{}], dtype=object), predicted=np.zeros((3, 129)))
    np.savez_compressed(audio / "e.npz", true=np.random.default_rng(0).random((9, 129)), predicted=np.zeros((9, 129)))
    damaged = bytearray((audio / "e.npz").read_bytes())
    damaged[200:300] = bytes(100)
    (audio / "e.npz").write_bytes(damaged)
    (audio / "d.true.wav").unlink()
    (audio / "scores.json").write_text("[1")
    *_, notes = speech.examples(spoken, "scoRNN", utterances=5)
    assert [note.split(":")[0] for note in notes.paragraphs] == [
        *("a.npz cannot be shown", "b.npz cannot be shown", "c.npz cannot be shown"),
        *("d.true.wav is missing", "e.npz cannot be shown"),
    ]
    assert "expected an array 'predicted'" in notes.paragraphs[1]


def test_silence_and_values_that_are_not_finite_are_drawn(spoken):
    values = np.full((5, 129), np.nan)
    np.savez(spoken / "audio" / "a.npz", true=values, predicted=values - np.inf)
    assert len(speech.examples(spoken, "scoRNN", utterances=1)) == 3


def test_run_without_audio_has_no_section(tmp_path):
    assert speech.examples(tmp_path, "x") == []
    assert speech.scores([("x", tmp_path)]) == []
