"""Completion scripts of the shells, from a list of commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Takes = Literal["nothing", "words", "file", "folder", "text"]


@dataclass(frozen=True)
class Argument:
    """An option, or with an empty name a positional; what it takes: nothing, one of some words, a path, or any text."""

    name: str
    help: str
    metavar: str
    takes: Takes
    words: tuple[str, ...] = ()
    repeats: bool = False


@dataclass(frozen=True)
class Command:
    """A command, its line in the help, and what may follow it."""

    name: str
    help: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.name]

    @property
    def positionals(self) -> list[Argument]:
        return [argument for argument in self.arguments if not argument.name]


def bash(commands: Sequence[Command]) -> str:
    """Words are given by ``compgen``; after an option come its values, elsewhere options or the positional's values."""
    after: dict[str, list[str]] = {}
    others = []
    for command in commands:
        for option in command.options:
            if option.takes != "nothing":
                after.setdefault(_bash_values(option), []).append(f"'{command.name} {option.name}'")
        names = " ".join(option.name for option in command.options)
        other = "; ".join(_bash_values(positional) for positional in command.positionals) or ":"
        others.append(f"    {command.name}) if [[ $cur == -* ]]; then _scornn_words '{names}'; else {other}; fi ;;")
    values = "\n".join(f"    {'|'.join(options)}) {given}; return ;;" for given, options in after.items())
    plain = "\n".join(others)
    every = " ".join([*(command.name for command in commands), "--help", "--version"])
    return f"""\
_scornn_words() {{ local IFS=$' \\t\\n'; COMPREPLY+=($(compgen -W "$1" -- "$cur")); }}
_scornn_paths() {{ local IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen "$1" -- "$cur")); }}
_scornn() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then _scornn_words '{every}'; return; fi
  case "${{COMP_WORDS[1]}} $prev" in
{values}
  esac
  case "${{COMP_WORDS[1]}}" in
{plain}
  esac
}}
complete -F _scornn scornn
"""


def zsh(commands: Sequence[Command]) -> str:
    """``_arguments`` for each command."""
    described = "\n".join(f"    {_quoted(command.name + ':' + command.help)}" for command in commands)
    lines = []
    for command in commands:
        specs = []
        for option in command.options:
            value = "" if option.takes == "nothing" else f":{option.metavar.replace(':', ' ')}:{_zsh_values(option)}"
            help_ = option.help.translate(str.maketrans("[]:", "();"))
            specs.append(_quoted(f"{'*' if option.repeats else ''}{option.name}[{help_}]{value}"))
        for place, positional in enumerate(command.positionals, 1):
            where = "*" if positional.repeats else str(place)
            specs.append(_quoted(f"{where}:{positional.metavar.rstrip('.')}:{_zsh_values(positional)}"))
        lines.append(f"    {command.name}) _arguments {' '.join(specs)} ;;")
    cases = "\n".join(lines)
    return f"""\
#compdef scornn
_scornn() {{
  local -a known=(
{described}
  )
  if (( CURRENT == 2 )); then _describe command known; return; fi
  shift words; (( CURRENT-- ))
  case $words[1] in
{cases}
  esac
}}
compdef _scornn scornn
"""


def fish(commands: Sequence[Command]) -> str:
    """One ``complete`` for each command, option and positional, on the condition that the command was typed."""
    lines = [
        "function __scornn_is; set -l typed (commandline -opc); test (count $typed) -ge 2; "
        "and test $typed[2] = $argv[1]; end",
        "function __scornn_none; test (count (commandline -opc)) -eq 1; end",
        "complete -c scornn -e",
        "complete -c scornn -f",
    ]
    for command in commands:
        lines.append(f"complete -c scornn -n __scornn_none -a {command.name} -d {_quoted(command.help)}")
        when = f"complete -c scornn -n '__scornn_is {command.name}'"
        for option in command.options:
            said = f"-l {option.name.removeprefix('--')} -d {_quoted(option.help)}"
            lines.append(f"{when} {said}{_fish_values(option)}")
        lines += [f"{when}{_fish_values(positional)}" for positional in command.positionals]
    return "\n".join(lines) + "\n"


def _bash_values(argument: Argument) -> str:
    paths = {"file": "_scornn_paths -f", "folder": "_scornn_paths -d"}
    return f"_scornn_words '{' '.join(argument.words)}'" if argument.words else paths.get(argument.takes, ":")


def _zsh_values(argument: Argument) -> str:
    paths = {"file": "_files", "folder": "_files -/"}
    return f"({' '.join(argument.words)})" if argument.words else paths.get(argument.takes, " ")


def _fish_values(argument: Argument) -> str:
    if argument.words:
        return f" -x -a {_quoted(' '.join(argument.words))}"
    paths = {"file": " -rF", "folder": " -x -a '(__fish_complete_directories)'", "nothing": ""}
    return paths.get(argument.takes, " -x")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
