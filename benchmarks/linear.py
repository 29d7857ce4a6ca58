"""The linear memory beside the native modReLU loop of the same size: what leaving out the loop over time gains.

python benchmarks/linear.py
"""

import torch
from recurrence import Step, peak_memory

from scornn.nn import LinearMemory, RecurrentLayer, ScoRNN
from scornn.program.cli._bench import shortest
from scornn.program.cli.bench import table

N, B, T = 256, 128, 784
GOALS = {"last state": 100.0, "every state": 5.0}
"""How many times faster than the loop, forward and in training."""
ROUNDS = 20


def step(layer: RecurrentLayer, steps: int, every: bool, train: bool) -> Step:
    """A forward pass to the last state or to every state, and for training the gradients of all parameters."""
    x = torch.randn(steps, B, 1, generator=torch.Generator().manual_seed(0))
    g = torch.ones(steps, B, N) if every else torch.ones(1, B, N)
    parameters = [p for p in layer.parameters() if p.numel()]

    def run() -> None:
        with torch.set_grad_enabled(train):
            output, h_n = layer(x, need_output=every)
            if train:
                torch.autograd.grad(output if every else h_n, parameters, g)

    return run


def main() -> None:
    torch.manual_seed(0)
    loop, memory = ScoRNN(1, N), LinearMemory(1, N)
    rows, grown = [], []
    for what, goal in GOALS.items():
        every = what == "every state"
        for train in (False, True):
            best = shortest({"loop": step(loop, T, every, train), "memory": step(memory, T, every, train)}, ROUNDS)
            row = {
                "linear memory against the modReLU loop": f"{what}, {'forward and backward' if train else 'forward'}"
            }
            row |= {f"{name} ms": 1e3 * seconds for name, seconds in best.items()}
            rows.append(row | {"× (goal)": f"{best['loop'] / best['memory']:.1f} ({goal:g})"})
        pair = {"short": step(memory, T // 10, every, True), "long": step(memory, T // 10 * 10, every, True)}
        best = shortest(pair, ROUNDS)
        cost = f"× {best['long'] / best['short']:.2f}"
        grown.append({"linear memory, training": f"cost of T × 10, {what}", "measured": cost, "goal": "≤ × 11"})
    print(table(rows), end="\n\n")
    held = peak_memory(step(memory, T, every=False, train=True))
    if held is not None:
        title, share = "last state: memory / states (T·B·n numbers)", f"{held / (4 * T * B * N):.2f}"
        grown.append({"linear memory, training": title, "measured": share, "goal": "no such term"})
    print(table(grown))


if __name__ == "__main__":
    main()
