#!/bin/sh
# Compares a GPU with the CPU, bit by bit, on a machine that has a driver and needs neither a compiler nor a network.
#
#   tools/gpu-conformance.sh pack ARCHIVE.tar.gz CUDA_FOLDER   on a machine with cargo and NVRTC: tools/install-cuda.sh
#   tools/gpu-conformance.sh check ARCHIVE.tar.gz RESULTS.json [MINUTES [DRIVER]]
#
# A part of the check ends after MINUTES (7). Exit code 3: call it again, and it resumes. 0: all bits are equal. 1: some are not.
set -eu

command=${1:?pack or check}
archive=${2:?an archive}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

case $command in
pack)
    cuda=${3:?the folder of NVRTC}
    cargo build --release -p surveys --bin gpu_conformance
    "${CARGO_TARGET_DIR:-target}/release/gpu_conformance" pack "$folder/gpu-conformance" --cuda "$cuda"
    strip "$folder/gpu-conformance/gpu_conformance" 2> /dev/null || true
    tar -czf "$archive" -C "$folder" gpu-conformance
    bytes=$(wc -c < "$archive")
    if [ "$bytes" -gt 52428800 ]; then
        echo "$archive has $bytes bytes, more than 50 MiB" >&2
        exit 1
    fi
    ;;
check)
    results=${3:?a file of results}
    tar -xzf "$archive" -C "$folder"
    set -- --results "$results" --minutes "${4:-7}" ${5:+--driver "$5"}
    code=0
    "$folder/gpu-conformance/gpu_conformance" check "$folder/gpu-conformance" "$@" || code=$?
    exit "$code"
    ;;
*)
    echo "pack or check, not $command" >&2
    exit 2
    ;;
esac
