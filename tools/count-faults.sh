#!/bin/sh
# Counts how faults of processes, memory and numbers end: kills, flipped bits, divergence, and runs without any fault. Each count is
# one or several portions of a test of the suite, which does a few trials by default. `--list` prints their names. Every
# portion that has held is kept in target/faults.tsv, with date and commit, and is not done again: stopped, the same command
# continues. A portion that fails ends the command with its output. In the end the table of docs/reliability.md is printed.
# Hosts need PLEACH_NETWORK=1, MPI needs PLEACH_MPI=1, and stores need PLEACH_S3, as in CONTRIBUTING.md.
# Arguments select counts by name; without, all are done, which takes hours. CLI and TRAIN may name test
# programs that are built already, at COMMIT; without, `cargo test --no-run` builds them.
set -eu
cd "$(dirname "$0")/.."
exec python3 - "$@" <<'PROGRAM'
import csv, datetime, glob, json, os, subprocess, sys

KEPT = "target/faults.tsv"
# Name, fault, what must hold, crate, test, cases, portions.
COUNTS = [
    ("kills", "a process of eight over TCP is killed, in each phase in turn",
     "the report has process, signal and instruction; all losses and the last weights are the same",
     "cli", "processes::kills::a_run_whose_processes_are_killed_again_and_again_has_the_bits_of_an_undisturbed_one",
     "200", 1),
    ("kills-of-one-run", "the same, a thousand times in one run", "the same", "cli",
     "processes::kills::a_run_whose_processes_are_killed_again_and_again_has_the_bits_of_an_undisturbed_one",
     "1000", 1),
    ("kills-on-hosts", "the same, two processes on each of four network namespaces", "the same", "cli",
     "processes::kills::so_has_a_run_on_four_hosts", "50", 4),
    ("kills-mpi", "a process of four under `mpiexec` of each library is killed while it trains",
     "all losses and the last weights are the same", "cli",
     "processes::mpi::restarts::a_killed_rank_restarts_the_job_with_the_same_bits", "30", 1),
    ("messages", "a byte of a message between hosts changes", "the sender is named; no loss is wrong", "cli",
     "processes::network::corruption::a_changed_byte_between_ranks_is_named_and_reaches_no_sum", "200", 1),
    ("stores", "requests to a server of S3 are cut, slowed, lost, or answered with 500", "the same; all uploads are whole",
     "cli", "processes::stores::resumptions::a_real_server_has_the_same", "100", 1),
    ("state", "a bit of weights or moments flips, with `recheck = \"all\"`", "rank and step are named", "train",
     "recheck::state::every_flip_in_weights_and_moments_is_found_before_the_next_update", "200", 1),
    ("gradients", "a bit of gradients flips between two operations, with `\"all\"`", "the same", "train",
     "recheck::memory::every_flip_in_gradients_is_found_by_the_next_operation", "200", 1),
    ("activations", "a bit of activations flips between two operations, with `\"all\"`", "the same", "train",
     "recheck::memory::every_flip_in_activations_is_found_by_the_next_operation", "200", 1),
    ("operations", "an operation has a wrong result once, with `\"all\"`", "the wrong computation is named, too",
     "train", "recheck::operations::every_wrong_result_of_an_operation_is_found_and_the_wrong_computation_named",
     "200", 1),
    ("samples", "one operation in 1,000 of a rank has a wrong result, with `\"sample\"`", "the rank is named in time",
     "train", "recheck::operations::a_rank_that_is_wrong_now_and_then_is_named_by_samples",
     "200", 1),
    ("clean", "nothing, in 1,000 steps under each of ten layouts, with `\"sample\"` and with `\"all\"`",
     "no alarm; all losses are the same", "train", "recheck::clean::checks_change_no_bit_and_raise_no_alarm",
     "1000", 1),
    ("diverging", "the learning rate rises until the run diverges", "a warning within 20 steps", "train",
     "diverging::runs_that_diverge_are_warned_about_within_twenty_steps", "30", 1),
    ("healthy", "nothing, in runs with a warm-up", "no warning", "train",
     "diverging::healthy_runs_with_a_warm_up_are_silent", "30", 1),
]


def kept():
    if not os.path.exists(KEPT):
        return []
    with open(KEPT, newline="") as file:
        return [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]


def keep(row):
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    with open(KEPT, "a", newline="") as file:
        file.write("\t".join(row) + "\n")


def program(package):
    """The path of a crate's test program, built where it is not given."""
    given = os.environ.get(package.upper())
    if given:
        return given
    words = ["cargo", "test", "--package", package, "--locked", "--test", "suite", "--no-run", "--message-format=json"]
    lines = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    targets = [json.loads(line) for line in lines if line.startswith("{")]
    return next(target["executable"] for target in targets
                if target.get("executable") and target["target"]["name"] == "suite")


def commit():
    given = os.environ.get("COMMIT")
    if given:
        return given
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], stdout=subprocess.PIPE, check=True).stdout
    hash = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return hash.strip() + (" and changes" if changed else "")


def said(output):
    """The lines that a test prints, without those of the runner of tests."""
    lines = [line.split(" ... ")[-1] if line.startswith("test ") else line for line in output.splitlines()]
    runner = ("running ", "test result:", "ok", "successes", "failures", "note: ")
    return [line.strip() for line in lines if line.strip() and not line.startswith(runner)]


def folder(package):
    """The folder of a crate."""
    return os.path.dirname(glob.glob(f"crates/*/{package}/Cargo.toml")[0])


def portion(count, number):
    name, _, _, package, test, cases, _ = count
    words = [program(package), "--exact", test, "--nocapture", "--test-threads", "1"]
    print(f"{name}: portion {number}", file=sys.stderr, flush=True)
    # Test programs run in the folder of their crate, as `cargo test` starts them.
    done = subprocess.run(words, env={**os.environ, "PLEACH_CASES": cases}, stdout=subprocess.PIPE, text=True, cwd=folder(package))
    if done.returncode != 0 or "1 passed" not in done.stdout:
        sys.exit(f"{name}: portion {number} failed\n{done.stdout}")
    printed = "; ".join(said(done.stdout))
    if not printed or "skipped: " in printed:
        sys.exit(f"{name}: portion {number} did nothing: {printed}")
    keep([name, str(number), datetime.date.today().isoformat(), commit(), printed])


def main(names):
    known = [count[0] for count in COUNTS]
    if names == ["--list"]:
        print("\n".join(known))
        return
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no count {', '.join(unknown)}; use {', '.join(known)}")
    chosen = [count for count in COUNTS if not names or count[0] in names]
    for count in chosen:
        done = {int(row[1]) for row in kept() if row[0] == count[0]}
        for number in sorted(set(range(1, count[6] + 1)) - done):
            portion(count, number)
    print("| | fault | must hold | date | commit | seen |\n|---|---|---|---|---|---|")
    for name, fault, must, *_ in chosen:
        for _, number, date, at, printed in (row for row in kept() if row[0] == name):
            print(f"| {name} {number} | {fault} | {must} | {date} | `{at}` | {printed} |")


main(sys.argv[1:])
PROGRAM
