"""Sound files: what is read, and every kind that must be refused by name."""

import contextlib
import io
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scornn.errors import DataError
from scornn.program.data import audio

NOISE = np.random.default_rng(1).integers(-9000, 9000, 2000).astype(np.int16)


def encoded(samples: np.ndarray = NOISE, rate: int = 16_000, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def read(content: bytes, folder: Path, expected_rate: int | None = None) -> tuple[np.ndarray, int]:
    (folder / "f.wav").write_bytes(content)
    return audio.read(folder / "f.wav", expected_rate)


WAV, SPHERE = encoded(), encoded(kind="NIST")


def with_field(field: str, value: str) -> bytes:
    """The SPHERE file with one field of its header changed."""
    header = re.sub(rf"{field} (-\w+) \S+", rf"{field} \1 {value}", SPHERE[:1024].decode("ascii").rstrip("\0"))
    return header.encode().ljust(1024)[:1024] + SPHERE[1024:]


@pytest.mark.parametrize("content", [WAV, SPHERE, encoded(subtype="PCM_24"), encoded(kind="FLAC")])
def test_reads(content: bytes, tmp_path: Path) -> None:
    samples, rate = read(content, tmp_path, 16_000)
    assert rate == 16_000
    assert np.array_equal(samples, NOISE / 32768)


def test_big_endian_sphere(tmp_path: Path) -> None:
    content = with_field("sample_byte_format", "10")
    swapped = content[:1024] + NOISE.astype(">i2").tobytes()
    assert np.array_equal(read(swapped, tmp_path)[0], NOISE / 32768)


def test_riff_with_other_chunks(tmp_path: Path) -> None:
    at = WAV.index(b"data")
    extra = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    assert np.array_equal(read(WAV[:at] + extra + WAV[at:] + extra, tmp_path)[0], NOISE / 32768)


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
    "text": (b"not audio at all", "found a file of b'not audi' …, expected SPHERE or RIFF audio"),
    "shorten": (b"ajkg\x02" + bytes(50), "compressed with shorten"),
    "sphere in shorten": (with_field("sample_coding", "pcm,embedded-shorten-v2.00"), "sph2pipe -f wav` decompresses"),
    "stereo": (encoded(np.stack([NOISE, NOISE], axis=1)), "found 2 channels, expected one"),
    "stereo sphere": (with_field("channel_count", "2"), "found 2 channels"),
    "silent": (encoded(np.zeros(2000, np.int16)), "silent: all 2000 samples are equal"),
    "no samples": (encoded(NOISE[:0]), r"0\.000 seconds of sound"),
    "too short": (encoded(NOISE[:400]), r"0\.025 seconds of sound, expected 0\.032 to 60"),
    "too long": (encoded(np.resize(NOISE, 61 * 8_000), 8_000), r"61\.000 seconds of sound, expected 0\.032 to 60"),
    "not finite": (encoded(np.full(2000, np.nan), subtype="FLOAT"), "not finite"),
    "cut in riff data": (WAV[:-1], "truncated: its header announces 4044 bytes, found 4043"),
    "cut in riff header": (WAV[:30], "No 'data' chunk"),
    "cut in sphere data": (SPHERE[:-2], "truncated: its header announces 5024 bytes, found 5022"),
    "cut in sphere header": (SPHERE[:100], "bad header"),
    "sphere that lies": (with_field("sample_count", "999999999999"), "truncated"),
    "cut in flac": (encoded(kind="FLAC")[:-500], "truncated: decoded|found a file"),
    "slow": (encoded(rate=4000), "found 4000 samples a second, expected 8000 to 192000"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(content, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'f.wav'}: ")


def test_other_rate_than_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found 22050 samples a second, expected 16000"):
        read(encoded(rate=22_050), tmp_path, 16_000)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        audio.read(tmp_path / "none.wav")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_ends_in_samples_or_a_data_error(data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(data.draw(st.sampled_from([WAV, SPHERE])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    with contextlib.suppress(DataError):
        samples, _ = read(bytes(content[:cut]), tmp_path)
        assert samples.ndim == 1
        assert len(samples) <= len(content)
