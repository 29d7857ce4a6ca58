"""Completion scripts: all of the program in each, and the answers of the shells that are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scornn.program.cli import commands, main

ASKED = {
    "scornn tr": {"train"},
    "scornn comp": {"completion"},
    "scornn train --mod": {"--model"},
    "scornn train --model li": {"linear-memory"},
    "scornn train --tensorboard of": {"off"},
    "scornn train copying --start-w": {"--start-weights"},
    "scornn sweep re": {"resume", "report"},
    "scornn reproduce table-m": {"table-mnist"},
    "scornn data ver": {"verify"},
    "scornn report runs/fi": {"runs/first"},
    "scornn train --lr ": set(),
}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_every_command_and_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {shell: script(shell, capsys) for shell in ("bash", "zsh", "fish")}
    for command in commands():
        assert main([command, "--help"]) == 0
        shown = capsys.readouterr().out.partition("usage:")[2]
        for option in set(re.findall(r"(?<=\s)--([a-z][a-z-]*)", shown)):
            for shell, text in texts.items():
                assert command in text
                assert (f"-l {option} " if shell == "fish" else f"--{option}") in text, f"{shell}: {command} {option}"


def ask(shell: str, file: Path, line: str) -> set[str]:
    words = line.split(" ")
    if shell == "bash":
        given = " ".join(f"'{word}'" for word in words)
        program = f"source {file}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _scornn; "
        program += 'printf "%s\\n" "${COMPREPLY[@]}"'
    else:
        program = f"source {file}; complete -C '{line}'"
    done = subprocess.run([shell, "-c", program], capture_output=True, text=True, check=True)
    assert not done.stderr
    return {answer.partition("\t")[0].rstrip("/") for answer in done.stdout.splitlines() if answer}


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_answers(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    monkeypatch.chdir(tmp_path)
    Path("runs/first").mkdir(parents=True)
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    assert {line: ask(shell, file, line) for line in ASKED} == ASKED


def test_zsh_can_read_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    file = tmp_path / "script"
    file.write_text(script("zsh", capsys))
    subprocess.run(["zsh", "-n", str(file)], check=True)


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
