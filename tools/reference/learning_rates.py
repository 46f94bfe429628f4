"""Makes crates/step/config/src/tests/learning_rates.txt: the rates of schedules of PyTorch and transformers, step by step.

    pip install torch transformers
    python tools/reference/learning_rates.py

Schedules of transformers count their warm-up from 0, ours from 1, so rates are listed from the end of the warm-up on.
"""

import pathlib

import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from transformers import get_cosine_with_hard_restarts_schedule_with_warmup, get_wsd_schedule

from tensors import single

FILE = pathlib.Path(__file__).parents[2] / "crates/step/config/src/tests/learning_rates.txt"
PEAK, MINIMUM = single(3e-3), single(2e-4)


def rates(schedule, warmup: int, steps: int) -> list[float]:
    """The rates of steps `warmup` to `steps - 1`."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = schedule(optimizer)
    listed = []
    for step in range(steps):
        if step >= warmup:
            listed.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return listed


def wsd(warmup: int, steps: int, decay: int, shape: str) -> list[float]:
    return rates(
        lambda optimizer: get_wsd_schedule(
            optimizer,
            num_warmup_steps=warmup,
            num_decay_steps=decay,
            num_stable_steps=steps - warmup - decay,
            decay_type=shape,
            min_lr_ratio=MINIMUM / PEAK,
        ),
        warmup,
        steps,
    )


def main() -> None:
    of_run = "learning_rate=3e-3 min_learning_rate=2e-4"
    cases = {}
    for shape in ("linear", "cosine", "1-sqrt"):
        keys = f"{of_run} schedule=wsd steps=40 warmup_steps=5 decay_length=12 decay_shape={shape}"
        cases[keys] = wsd(5, 40, 12, shape)
    cases[f"{of_run} schedule=wsd steps=50 warmup_steps=5 decay_length=0.3"] = wsd(5, 50, 15, "linear")
    for first, growth in ((7, 1), (5, 2), (1, 3)):
        keys = f"{of_run} schedule=cosine-restarts steps=40 warmup_steps=0 restart_steps={first} restart_growth={growth}"
        cases[keys] = rates(lambda optimizer: CosineAnnealingWarmRestarts(optimizer, first, growth, MINIMUM), 0, 40)
    keys = "learning_rate=3e-3 min_learning_rate=0 schedule=cosine-restarts steps=34 warmup_steps=4 restart_steps=10"
    cycles = lambda optimizer: get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 4, 34, 3)
    cases[keys] = rates(cycles, 4, 34)
    lines = [line for keys, listed in cases.items() for line in (keys, " ".join(f"{rate!r}" for rate in listed))]
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
