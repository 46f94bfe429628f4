#!/bin/sh
# Measures the price of `run.recheck` on a release build: steps of GPT-2's 124M shape on two ranks with "off", "sample" and, once,
# "all", in turns, so that a machine that changes its speed changes all of them. Prints the median of each in milliseconds, and
# their ratio to "off". Ends with 1 where "sample" costs more than 1 % of a step. The machine must be idle. With a program as the
# argument that one is measured; without, `cargo build --release -p cli` is.
set -eu
cd "$(dirname "$0")/.."

program=${1:-}
if [ -z "$program" ]; then
    cargo build --release -p cli
    program=target/release/pleach
fi
turns=${TURNS:-6}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 - "$program" "$folder" "$turns" <<'PROGRAM'
import json, statistics, subprocess, sys

program, folder, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
SHAPE = {
    "model.num_layers": 12, "model.hidden": 768, "model.num_heads": 12, "model.context": 256,
    "parallelism.dp": 2, "parallelism.tp": 1, "parallelism.pp": 1, "parallelism.microbatch_size": 1,
    "train.global_batch": 4, "train.steps": 6, "run.save_every": 0, "data.tokenizer": "\"bytes\"",
    "model.vocabulary": 50304,
}


def seconds(recheck):
    """Seconds of the steps but the first, which touches memory for the first time."""
    keys = {**SHAPE, "run.recheck": f'"{recheck}"', "run.folder": f'"{folder}/run"'}
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([program, "train", "--quiet", "--overwrite", *sets], check=True)
    lines = map(json.loads, open(f"{folder}/run/metrics.jsonl"))
    return [line["seconds"] for line in lines if "loss" in line and line["step"] > 1]


times = {"off": [], "sample": [], "all": []}
for turn in range(turns):
    for recheck in ("off", "sample") if turn % 2 == 0 else ("sample", "off"):
        times[recheck] += seconds(recheck)
times["all"] = seconds("all")
usual = {recheck: statistics.median(steps) for recheck, steps in times.items()}
print("| run.recheck | steps | median, ms | to off |\n|---|---|---|---|")
for recheck, steps in times.items():
    print(f"| {recheck} | {len(steps)} | {1e3 * usual[recheck]:.1f} | {usual[recheck] / usual['off']:.4f} |")
sys.exit(usual["sample"] > 1.01 * usual["off"])
PROGRAM
