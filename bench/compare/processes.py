"""Ranks as threads of one process and as processes, in turns: seconds of a step.

    cargo build --release
    python bench/compare/processes.py [RUN.toml] [--layouts dp=2 dp=2,tp=2,pp=2] [--rounds 5] [--steps 8]

A round is one run of every side, so that whatever else the machine does meets all of them. The figure of a run is the median of its
steps after the first two; a ratio is that of a round. Every rank has one thread.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
PLEACH = ROOT / "target/release/pleach"
WARM_UP = 2
SIDES = ["threads", "shared-memory", "tcp"]


def run(
    side: str, file: str, layout: dict[str, int], microbatch: int, steps: int, folder: str, options: list[str] | None = None
) -> float:
    """Seconds of a step in microbatches of `microbatch` sequences, with further `options` of `train`."""
    settings = {f"parallelism.{axis}": degree for axis, degree in layout.items()}
    settings |= {"parallelism.microbatch_size": microbatch, "run.threads_per_rank": 1, "train.steps": steps, "run.folder": folder}
    command = ["train", file, *(options or []), *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
    if side == "threads":
        command = [PLEACH, *command]
    else:
        ranks = str(math.prod(layout.values()))
        command = [PLEACH, "launch", "--nproc", ranks, "--", *command, "--set", f"run.transport={side}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{side}: {ended.stderr}")
    lines = pathlib.Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return statistics.median(json.loads(line)["seconds"] for line in lines[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", default=str(ROOT / "bench/compare/gpt_12m.toml"))
    parser.add_argument("--layouts", nargs="+", default=["dp=2", "dp=2,tp=2,pp=2"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    asked = parser.parse_args()
    for text in asked.layouts:
        layout = {axis: int(degree) for axis, degree in re.findall(r"(\w+)=(\d+)", text)}
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(asked.rounds):
            for side in SIDES:
                with tempfile.TemporaryDirectory() as folder:
                    seconds[side].append(run(side, asked.run, layout, 1, asked.steps, os.path.join(folder, "run")))
        for side in SIDES:
            ratios = [threads / own for threads, own in zip(seconds["threads"], seconds[side])]
            quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
            low, middle, high = quartiles[0], statistics.median(ratios), quartiles[2]
            quartile_text = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            print(f"{text:16} {side:14} {statistics.median(seconds[side]):.3f} s a step, {quartile_text} of the speed of threads")


if __name__ == "__main__":
    main()
