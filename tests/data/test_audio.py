"""Sound files: what is read, and every kind that must be refused by name."""

import contextlib
import io
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from scornn.errors import DataError
from scornn.program.data import audio, features

NOISE = np.random.default_rng(1).integers(-9000, 9000, 2000).astype(np.int16)


def encoded(samples: np.ndarray = NOISE, rate: int = 16_000, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


WAV, SPHERE = encoded(), encoded(kind="NIST")


def with_field(field: str, value: str) -> bytes:
    """The SPHERE file with one field of its header changed."""
    header = re.sub(rf"{field} (-\w+) \S+", rf"{field} \1 {value}", SPHERE[:1024].decode("ascii").rstrip("\0"))
    return header.encode().ljust(1024)[:1024] + SPHERE[1024:]


def with_data_size(size: int) -> bytes:
    at = WAV.index(b"data") + 4
    return WAV[:at] + struct.pack("<I", size) + WAV[at + 4 :]


@pytest.mark.parametrize("content", [WAV, SPHERE, encoded(subtype="PCM_24"), encoded(kind="WAVEX")])
def test_reads(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.wav").write_bytes(content)
    samples, rate = audio.read(tmp_path / "f.wav", 16_000)
    assert rate == 16_000
    assert np.array_equal(samples, NOISE / 32768)


def test_big_endian_sphere() -> None:
    content = with_field("sample_byte_format", "10")
    swapped = content[:1024] + NOISE.astype(">i2").tobytes()
    assert np.array_equal(audio.decode(swapped, "f")[0], NOISE / 32768)


def test_riff_with_other_chunks() -> None:
    at = WAV.index(b"data")
    extra = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    assert np.array_equal(audio.decode(WAV[:at] + extra + WAV[at:] + extra, "f")[0], NOISE / 32768)


def test_real_sphere_files_are_as_their_headers_say(shared_data: Path) -> None:
    """sample_count, sample_min and sample_max of TIMIT's own headers."""
    paths = sorted((shared_data / "timit_sample").glob("dr[12]-*/*.wav"))
    assert len(paths) == 40
    for path in paths:
        samples, _ = audio.read(path, 16_000)
        header = path.read_bytes()[:1024].decode("ascii", "replace")
        facts = {key: int(value) for key, value in re.findall(r"(\w+) -i (-?\d+)", header)}
        whole = np.round(samples * 32768).astype(int)
        assert (len(whole), whole.min(), whole.max()) == tuple(
            facts[f"sample_{key}"] for key in ("count", "min", "max")
        )


REFUSED = {
    "empty": (b"", "an empty file"),
    "html": (b"<!DOCTYPE html>", "an HTML or XML page"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1", "git-lfs pointer"),
    "text": (b"not audio at all", "something else"),
    "shorten": (b"ajkg\x02" + bytes(50), "compressed with shorten"),
    "mp3": (b"ID3\x03" + bytes(50), "an MP3 file"),
    "flac": (encoded(kind="FLAC"), "a FLAC file"),
    "stereo": (encoded(np.stack([NOISE, NOISE], axis=1)), "found 2 channels, expected one"),
    "stereo sphere": (with_field("channel_count", "2"), "found 2 channels"),
    "no channel": (with_field("channel_count", "0"), "found 0 channels"),
    "mu-law": (encoded(subtype="ULAW"), r"RIFF coding 7, expected PCM \(1\)"),
    "silent": (encoded(np.zeros(2000, np.int16)), "silent: all 2000 samples are equal"),
    "constant": (encoded(np.full(2000, 7, np.int16), kind="NIST"), "silent"),
    "no samples": (encoded(NOISE[:0]), "silent: all 0 samples"),
    "not finite": (encoded(np.full(500, np.nan), subtype="FLOAT"), "not finite"),
    "cut in riff data": (WAV[:-1], "truncated, or its header lies: it announces 4000 bytes of sound and 3999"),
    "cut in riff header": (WAV[:30], "truncated: a RIFF file of 30 bytes without sound data"),
    "riff that lies": (with_data_size(0xFFFFFFF0), "its header lies"),
    "cut in sphere data": (SPHERE[:-2], "truncated, or its header lies"),
    "cut in sphere header": (SPHERE[:100], "SPHERE header of b'1024' bytes in a file of 100"),
    "sphere that lies": (with_field("sample_count", "999999999999"), "truncated, or its header lies"),
    "sphere that hides": (with_field("sample_count", "10"), "header lies: it announces 20 bytes"),
    "sphere of negative size": (with_field("sample_count", "-5"), "no sample_count that is a number: '-5'"),
    "sphere of digits without end": (with_field("sample_count", "9" * 300), "no sample_count that is a number"),
    "sphere with wide samples": (with_field("sample_n_bytes", "100"), "truncated|bytes a sample"),
    "sphere without width": (with_field("sample_n_bytes", "0"), "found 0 bytes a sample"),
    "sphere in shorten": (
        with_field("sample_coding", "pcm,embedded-shorten-v2.00"),
        "coding 'pcm,embedded-shorten-v2.00', expected plain pcm; decompress it with `sph2pipe",
    ),
    "sphere without end": (SPHERE[:1024].replace(b"end_head", b"end_hurt") + SPHERE[1024:], "no end_head"),
    "sphere of huge header": (SPHERE.replace(b"   1024", b"9999999", 1), "header of b'9999999' bytes"),
    "slow": (encoded(rate=4000), "found 4000 samples a second, expected 8000 to 192000"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.wav"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message) as caught:
            audio.read(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")


def test_other_rate_than_expected() -> None:
    with pytest.raises(DataError, match="found 22050 samples a second, expected 16000"):
        audio.decode(encoded(rate=22_050), "f", 16_000)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        audio.read(tmp_path / "none.wav")


@pytest.mark.parametrize(("count", "rate"), [(400, 16_000), (61 * 8_000, 8_000)])
def test_too_short_and_too_long(tmp_path: Path, count: int, rate: int) -> None:
    path = tmp_path / "f.wav"
    path.write_bytes(encoded(np.resize(NOISE, count), rate))
    with pytest.raises(DataError, match=r"seconds of sound, expected 0\.032 to 60"):
        features.waveform(path, None)


@settings(max_examples=300)
@given(st.data())
def test_any_damage_ends_in_samples_or_a_data_error(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([WAV, SPHERE])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    with contextlib.suppress(DataError):
        samples, rate = audio.decode(bytes(content[:cut]), "f")
        assert samples.ndim == 1
        assert 8_000 <= rate <= 192_000
        assert len(samples) <= len(content)
