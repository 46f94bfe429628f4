#!/bin/sh
# Runs every fuzz target for some seconds (600 without an argument), one after the other, and appends a line for each to
# target/fuzz.txt: the commit, the date, the target, its report, and the most memory that its process held. Targets that the file
# has for this commit are skipped, so that a run that was stopped continues. It ends with the first target that fails: by a
# crash, by an input that takes more than five minutes, or by more than 1 GiB.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-600}
[ "$#" = 0 ] || shift
wanted=" $* "
results=target/fuzz.txt
commit=$(git rev-parse --short=12 HEAD)
mkdir -p target
touch "$results"

# Package, argument of cargo that chooses the test program (with its name, if it has one), and the names of its targets.
run() {
    package=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    file=$(cargo test --no-run -p "$package" $program 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    for name in "$@"; do
        case "$wanted" in "  " | *" $name "*) ;; *) continue ;; esac
        if grep -q "^$commit [^ ]* $package $name " "$results"; then continue; fi
        line=$(limited "$(pwd)/$file" "$(dirname crates/*/"$package"/Cargo.toml)" "$name")
        printf '%s %s %s %s %ss: %s\n' "$commit" "$(date -u +%Y-%m-%d)" "$package" "$name" "$seconds" "$line" >> "$results"
        tail -n 1 "$results"
    done
}

# Runs one target of a test program in the folder of its package, and prints its report in one line.
limited() {
    BOLERO_RANDOM_ITERATIONS=1000000000 BOLERO_RANDOM_TEST_TIME_MS=$((seconds * 1000)) python3 - "$seconds" "$@" <<'PROGRAM'
import resource
import subprocess
import sys

MEMORY_MIB = 1024
PATIENCE_SECONDS = 300

seconds, file, folder, name = sys.argv[1:]
command = [file, "--exact", "--nocapture", "--test-threads=1", name]
try:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=int(seconds) + PATIENCE_SECONDS)
except subprocess.TimeoutExpired:
    sys.exit(f"{name}: it runs {PATIENCE_SECONDS} s longer than it should")
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
if ran.returncode != 0 or "1 passed" not in ran.stdout or mib > MEMORY_MIB:
    sys.exit(f"{ran.stdout}{ran.stderr}\n{name}: failed with exit code {ran.returncode} and {mib} MiB")
said = [line for line in ran.stdout.splitlines() if "inputs in" in line or line.startswith("test result: ok")]
print(f"{said[0]}; at most {mib} MiB")
PROGRAM
}

run testkit "--test fuzz" run_files manifests safetensors_headers token_files tokenizer_files \
    chats::templates chats::templates_in_json chats::conversations \
    folders::hugging_face_configurations folders::hugging_face_indices \
    texts::cluster_files texts::software_files texts::schedule_files texts::host_files texts::node_lists \
    texts::json_lines texts::tables_and_packed_texts texts::ptx \
    records::rings records::metrics records::tables_of_runs records::megatron_indices
run data "--test hostile_templates" templates_of_a_grammar
run comm --lib processes::fuzz::any_header_is_read_as_written_or_refused \
    processes::fuzz::any_preamble_is_read_as_written_or_refused processes::fuzz::any_stream_ends_or_is_refused \
    processes::fuzz::any_sound_frames_leave_a_world_that_fails_by_name_or_continues
run rendezvous --lib tests::fuzz::any_bytes_are_read_or_refused tests::fuzz::any_payload_is_read_or_refused \
    tests::fuzz::any_message_is_read_as_it_was_written \
    tests::fuzz::a_changed_payload_in_a_sound_frame_is_read_or_refused
