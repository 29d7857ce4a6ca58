"""What is refused, with which exit code, and in one paragraph that names what was found and what to type."""

import shlex
from pathlib import Path

import pytest
import torch

from scornn.program.cli import main

REFUSED = [
    ("trian", 2, "unknown command 'trian'; did you mean train?"),
    ("\udcff", 2, "scornn: "),
    ("train", 2, "TASK is missing: expected one of adding, arrays, copying"),
    ("train copyng", 2, "unknown task 'copyng'; did you mean copying?"),
    ("train copying --model lsmt", 2, "unknown model 'lsmt'; did you mean lstm?"),
    ("train copying --hiden 3", 2, "--hidden"),
    ("train copying --hidden x", 2, "invalid literal for int"),
    ("train copying --hidden 3 --hidden 4", 2, "--hidden is given 2 times"),
    ("train copying --recurrent-lr 1 --recurrent_lr=2", 2, "--recurrent-lr is given 2 times"),
    ("train copying --set seed=1 --set seed=2", 2, "--set gives seed twice"),
    ("train copying --set task.name=adding", 2, "TASK is copying, but --set is for adding"),
    ("train mnist --set task.permuted=true", 2, "TASK is mnist, but --set is for task.permuted = true"),
    ("train copying --lr nan", 2, "optimizer.rest.lr = nan"),
    ("train copying --rho 191", 2, "expected an integer from 0 to 190"),
    ("train copying --rho half", 2, "model.options.rho = 'half'"),
    ("train copying --iterations 3 --epochs 1", 2, "both steps and epochs"),
    ("train copying --set learning_rate=1", 2, "unknown key learning_rate"),
    ("train copying --set task.lenght=5", 2, "unknown key task.lenght of copying; did you mean length?"),
    ("train copying --set seed", 2, "expected key=value"),
    ("train copying --until accuracy=0.9", 2, "stops on loss or recall"),
    ("train copying --until loss", 2, "--until 'loss': expected key=value, for example --until loss="),
    ("train copying --dataset fashion", 2, "unknown key task.dataset"),
    ("train copying --allow-partial", 2, "unknown key task.allow_partial of copying"),
    ("train mnist --length 9", 2, "unknown key task.length of mnist; known: batch"),
    ("train copying --name ../../etc", 2, "name = '../../etc': expected 1 to 100 letters"),
    ("train copying --config none.toml", 2, "no config file none.toml"),
    ("train copying --device cuda", 2, "device = cuda: PyTorch finds no GPU here"),
    ("train copying --out ''", 2, "--out is empty: expected a value"),
    ("train copying --model lstm --rho 2", 2, "model.options.rho: lstm takes no rho; its options are num_layers"),
    ("train copying --set model.options.speed=2", 2, "scornn takes no speed; its options are num_layers, nonlinearity"),
    ("train copying --set model.options.bias=no", 2, "model.options.bias = 'no': expected true or false"),
    ("resume nowhere", 2, "no run directory nowhere"),
    ("resume .", 2, "it has no config.json"),
    ("resume . --iterations 0", 2, "expected an integer >= 1"),
    ("eval nowhere", 2, "no run directory nowhere"),
    ("train speech --allow-partial --out run", 3, "scornn: "),
    ("train mnist --data nowhere", 3, "--data nowhere: no such folder"),
    ("doctor --data file", 3, "--data file: not a folder"),
    ("train copying --hidden 1048576", 6, "not enough memory"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED, ids=[line[:40] for line, _, _ in REFUSED])
def test_refusals(
    line: str,
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "cuda" in line and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCORNN_DATA", raising=False)
    Path("file").touch()
    assert main(shlex.split(line)) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not Path("runs").exists()
