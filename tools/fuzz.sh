#!/bin/sh
# Runs every fuzz target for some seconds (600 without an argument), one after the other, and appends a line for each to
# target/fuzz.txt: the commit, the date, the target and its report. Targets that the file has for this commit are skipped,
# so that a run that was stopped continues. It ends with the first target that fails.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-600}
results=target/fuzz.txt
commit=$(git rev-parse --short=12 HEAD)
mkdir -p target
touch "$results"

# Package, arguments of cargo that choose the test program, and the names of its targets.
run() {
    package=$1 program=$2
    shift 2
    for name in "$@"; do
        if grep -q "^$commit [^ ]* $package $name " "$results"; then continue; fi
        # shellcheck disable=SC2086
        report=$(BOLERO_RANDOM_ITERATIONS=1000000000 BOLERO_RANDOM_TEST_TIME_MS=$((seconds * 1000)) \
            /usr/bin/env cargo test --quiet -p "$package" $program -- --exact --nocapture --test-threads=1 "$name" 2>&1) || {
            printf '%s\n%s: failed\n' "$report" "$name" >&2
            exit 1
        }
        line=$(printf '%s\n' "$report" | grep -E 'inputs in|test result: ok' | head -n 1)
        printf '%s %s %s %s %ss: %s\n' "$commit" "$(date -u +%Y-%m-%d)" "$package" "$name" "$seconds" "$line" >> "$results"
        tail -n 1 "$results"
    done
}

run prove "--test fuzz" run_files manifests safetensors_headers token_files tokenizer_files \
    folders::hugging_face_configurations folders::hugging_face_indices \
    texts::cluster_files texts::software_files texts::schedule_files texts::host_files texts::node_lists \
    texts::json_lines texts::ptx
run comm --lib processes::fuzz::any_header_is_read_as_written_or_refused \
    processes::fuzz::any_preamble_is_read_as_written_or_refused processes::fuzz::any_stream_ends_or_is_refused \
    processes::fuzz::any_sound_frames_leave_a_world_that_fails_by_name_or_continues
run rendezvous "--test fuzz" any_bytes_are_read_or_refused any_payload_is_read_or_refused \
    any_message_is_read_as_it_was_written a_changed_payload_in_a_sound_frame_is_read_or_refused
