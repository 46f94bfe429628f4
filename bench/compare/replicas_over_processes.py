"""Two replicas in two processes of one thread: pleach over shared memory and over TCP, and PyTorch's DDP over Gloo, in turns.

    cargo build --release
    python bench/compare/replicas_over_processes.py [RUN.toml] [--rounds 5] [--steps 8]

A round is one run of every side, with the same sequences in one microbatch for each replica. The figure of a run is the median
of its steps after the first two; a ratio is that of a round. Needs PyTorch.
"""

import argparse
import os
import statistics
import tempfile
import tomllib

import torch.multiprocessing as multiprocessing

from processes import ROOT, WARM_UP, run
from replicas import REPLICAS, replica

SIDES = ["shared-memory", "tcp"]


def ddp(config: dict, steps: int, meeting: str) -> float:
    """Seconds of a step of DDP; the slower replica counts."""
    context = multiprocessing.get_context("spawn")
    turns, times = [context.SimpleQueue() for _ in range(REPLICAS)], [context.SimpleQueue() for _ in range(REPLICAS)]
    sides = [context.Process(target=replica, args=(rank, meeting, config, turns[rank], times[rank])) for rank in range(REPLICAS)]
    for side in sides:
        side.start()
    seconds = []
    for _ in range(steps):
        for turn in turns:
            turn.put(True)
        seconds.append(max(time.get() for time in times))
    for turn in turns:
        turn.put(None)
    for side in sides:
        side.join()
    return statistics.median(seconds[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", default=str(ROOT / "bench/compare/gpt_12m.toml"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    asked = parser.parse_args()
    with open(asked.run, "rb") as file:
        config = tomllib.load(file)
    sequences = config["train"]["global_batch"] // REPLICAS
    taken: dict[str, list[float]] = {side: [] for side in ["ddp", *SIDES]}
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            taken["ddp"].append(ddp(config, asked.steps, os.path.join(folder, "meeting")))
            for side in SIDES:
                own = os.path.join(folder, side)
                taken[side].append(run(side, asked.run, {"dp": REPLICAS}, sequences, asked.steps, own))
    for side, seconds in taken.items():
        ratio = statistics.median(ddp / own for ddp, own in zip(taken["ddp"], seconds))
        print(f"{side:14} {statistics.median(seconds):.3f} s a step, {ratio:.2f} of the speed of DDP")


if __name__ == "__main__":
    main()
