"""PyTorch's data parallelism on two cores: two processes of one thread (DDP over Gloo) against one process of two threads, in turns.

    python bench/compare/replicas.py RUN.toml [--pairs 9]

The counterpart of `cargo bench -p train --bench ranks -- "dp 2"`; the same model as `reference.py`, half of the sequences for each replica.
"""

import argparse
import os
import statistics
import tempfile
import tomllib

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

from reference import Step

REPLICAS = 2
WARM_UP = 2


def steps(run: dict, sequences: int, threads: int, wrap, turns, times) -> None:
    torch.set_num_threads(threads)
    step = Step(run, sequences, sequences, wrap, torch.autocast("cpu", enabled=False))
    for _ in iter(turns.get, None):
        times.put(step.take()[0])


def replica(rank: int, meeting: str, run: dict, turns, times) -> None:
    os.sched_setaffinity(0, {rank})
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=REPLICAS)
    sequences = run["train"]["global_batch"] // REPLICAS
    steps(run, sequences, 1, DistributedDataParallel, turns, times)
    dist.destroy_process_group()


def alone(run: dict, turns, times) -> None:
    steps(run, run["train"]["global_batch"], REPLICAS, lambda gpt: gpt, turns, times)


def in_turns(run: dict, pairs: int, meeting: str) -> list[tuple[float, float]]:
    """Seconds of a step of the replicas, which find each other by the file `meeting`, and of the process alone."""
    context = multiprocessing.get_context("spawn")
    turns, times = [context.SimpleQueue() for _ in range(REPLICAS + 1)], [context.SimpleQueue() for _ in range(REPLICAS + 1)]
    sides = [context.Process(target=replica, args=(rank, meeting, run, turns[rank], times[rank])) for rank in range(REPLICAS)]
    sides.append(context.Process(target=alone, args=(run, turns[REPLICAS], times[REPLICAS])))
    for side in sides:
        side.start()

    def take(indices: range) -> float:
        for index in indices:
            turns[index].put(True)
        return max(times[index].get() for index in indices)

    taken = [(take(range(REPLICAS)), take(range(REPLICAS, REPLICAS + 1))) for _ in range(WARM_UP + pairs)]
    for turn in turns:
        turn.put(None)
    for side in sides:
        side.join()
    return taken[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--pairs", type=int, default=9)
    asked = parser.parse_args()
    with open(asked.run, "rb") as file:
        run = tomllib.load(file)
    with tempfile.TemporaryDirectory() as folder:        steps = in_turns(run, asked.pairs, os.path.join(folder, "meeting"))
    replicas, one = (statistics.median(side) for side in zip(*steps))
    ratio = statistics.median(one / replicas for replicas, one in steps)
    print(f"DDP, {REPLICAS} processes of one thread: {replicas:.3f} s a step, one process of {REPLICAS}: {one:.3f} s: {ratio:.3f} of its tokens/s")


if __name__ == "__main__":
    main()
