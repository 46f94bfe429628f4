#!/bin/sh
# Measures checkpoints in the memory of hosts on a release build, for GPT-2's 124M shape with moments in two processes, as on
# two hosts: the median time of a step without them and with one every 2 steps, in turns; and the seconds from the start of a
# process to its first step after a resumption from memory and from the disk. The machine must be idle; it needs 7 GB in
# /dev/shm. With a program as the argument that one is measured; without, `cargo build --release -p cli` is.
set -eu
cd "$(dirname "$0")/.."

program=${1:-}
if [ -z "$program" ]; then
    cargo build --release -p cli
    program=target/release/pleach
fi
turns=${TURNS:-4}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 - "$(realpath "$program")" "$folder" "$turns" <<'PROGRAM'
import glob, json, os, signal, socket, statistics, subprocess, sys, time

program, folder, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
SHAPE = {
    "model.num_layers": 12, "model.hidden": 768, "model.num_heads": 12, "model.context": 256,
    "parallelism.dp": 2, "parallelism.tp": 1, "parallelism.pp": 1, "parallelism.microbatch_size": 1,
    "train.global_batch": 4, "data.tokenizer": '"bytes"', "model.vocabulary": 50304, "run.recheck": '"off"',
}


def start(arguments):
    """Both processes, each on a host of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    common = {"PLEACH_PROCESSES": "2", "PLEACH_RENDEZVOUS": address, "PLEACH_TOKEN": "5a" * 32}
    return [
        subprocess.Popen([program, "train", "--quiet", *arguments], env={
            **os.environ, **common, "JOB_COMPLETION_INDEX": str(process), "PLEACH_HOST": f"price{process}"})
        for process in (0, 1)
    ]


def sets(keys):
    return [word for key, value in {**SHAPE, **keys}.items() for word in ("--set", f"{key}={value}")]


def steps(run):
    try:
        lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl") if line.endswith("\n")]
    except FileNotFoundError:
        return []
    return [line for line in lines if "loss" in line and "seconds" in line]


def ended(processes):
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"processes ended with {codes}")


def step_seconds(number, every):
    """Seconds of the steps but the first two, which touch memory for the first time."""
    run = f"{folder}/steps-{number}"
    ended(start(sets({"train.steps": 10, "run.memory_every": every, "run.folder": f'"{run}"'})))
    return [step["seconds"] for step in steps(run) if step["step"] > 2]


def restored(number, key, there):
    """Kills a run after a checkpoint, and returns the seconds from its start to the end of the next step."""
    run = f"{folder}/restored-{number}"
    processes = start(sets({"train.steps": 1000, key: 3, "run.folder": f'"{run}"'}))
    while not glob.glob(f"{run}/{there}/step-*"):
        if any(process.poll() is not None for process in processes):
            sys.exit("a process has ended")
        time.sleep(0.05)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait()
    # A run resumes without the records of its past; then its first one is that of its first step.
    os.remove(f"{run}/metrics.jsonl")
    began = time.monotonic()
    processes = start(["--resume", run])
    while not steps(run):
        if any(process.poll() is not None for process in processes):
            sys.exit("a process has ended")
        time.sleep(0.01)
    seconds = time.monotonic() - began
    step = steps(run)[0]["seconds"]
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait()
    for left in glob.glob("/dev/shm/pleach-*-price[01]"):
        subprocess.run(["rm", "-rf", left], check=True)
    return seconds - step


times = {0: [], 2: []}
for turn in range(turns):
    for every in (0, 2) if turn % 2 == 0 else (2, 0):
        times[every] += step_seconds(f"{turn}-{every}", every)
usual = {every: statistics.mean(seconds) for every, seconds in times.items()}
print("| run.memory_every | steps | mean, ms | to 0 |\n|---|---|---|---|")
for every, seconds in times.items():
    print(f"| {every} | {len(seconds)} | {1e3 * usual[every]:.1f} | {usual[every] / usual[0]:.4f} |")
print("\n| restored from | seconds to the first step, median |\n|---|---|")
for name, key, there in (("memory", "run.memory_every", "memory"), ("disk", "run.save_every", "checkpoints")):
    seconds = [restored(f"{turn}-{name}", key, there) for turn in range(turns)]
    print(f"| {name} | {statistics.median(seconds):.2f} |")
PROGRAM
