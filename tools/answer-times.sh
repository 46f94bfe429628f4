#!/bin/sh
# Measures what the project promises about time, on a release build: schedules of `zb-auto` are made or refused within 2 s, and
# SIGTERM ends commands that wait or work within 1 s. Prints the processor's and the wall's seconds. With a program as the
# argument that one is measured; without, `cargo build --release -p cli` is. Ends with 1 where a time is too long.
set -eu
cd "$(dirname "$0")/.."

program=${1:-}
if [ -z "$program" ]; then
    cargo build --release -p cli
    program=target/release/pleach
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 - "$program" "$folder" <<'PROGRAM'
import os, random, signal, subprocess, sys, time

program, folder = sys.argv[1:]
is_late = False


def row(name, code, seconds, wall, limit):
    global is_late
    is_late |= seconds > limit
    print(f"| {name} | {code} | {seconds:.2f} | {wall:.2f} | {limit} |", flush=True)


def run(arguments, seconds_before_signal=None):
    """Exit code, seconds of the processor, and of the wall; from the signal on if there is one."""
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    if seconds_before_signal is not None:
        time.sleep(seconds_before_signal)
        started = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, time.monotonic() - started


print("| command | exit code | seconds of processor | of wall | limit |\n|---|---|---|---|---|")
layout = {
    "parallelism.dp": 1, "parallelism.tp": 1, "parallelism.pp": 8, "parallelism.microbatch_size": 1,
    "model.num_layers": 8, "train.global_batch": 4096, "parallelism.schedule": "zb-auto",
    "run.rank_memory_bytes": 10**15,
}
for percent in (100, 200, 1000, 100_000, 2**31 - 1):
    keys = {**layout, "parallelism.schedule_memory_percent": percent}
    arguments = ["check", *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]
    code, seconds, wall = run(arguments)
    row(f"zb-auto, pp 8, 4,096 microbatches, {percent} %", code, seconds, wall, 2)

draw = random.Random(1)
text = os.path.join(folder, "text")
with open(text, "w") as file:
    file.write(" ".join("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=39)) for _ in range(50_000)))
pipe = os.path.join(folder, "pipe")
os.mkfifo(pipe)
to = os.path.join(folder, "out.tokens")
waits = [
    ("a tokenizer of 4,000,000 tokens is trained", ["data", "tokenize", text, "--tokenizer", "bpe:4000000", "--out", to]),
    ("text from a pipe that nobody writes", ["data", "tokenize", pipe, "--out", to]),
    ("a run file from such a pipe", ["check", pipe]),
    ("a profile from such a pipe", ["simulate", "--cluster", pipe]),
]
for name, arguments in waits:
    code, _, wall = run(arguments, seconds_before_signal=2)
    # Waiting costs no processor time: what counts is how long after the signal it ends.
    row(f"SIGTERM: {name}", code, wall, wall, 1)
sys.exit(is_late)
PROGRAM
