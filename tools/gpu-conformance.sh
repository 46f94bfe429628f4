#!/bin/sh
# Compares a GPU with the CPU, bit by bit, on a machine that has a driver and needs neither a compiler nor a network.
#
#   tools/gpu-conformance.sh pack ARCHIVE.tar.gz CUDA_FOLDER   on a machine with cargo and NVRTC: tools/install-cuda.sh
#   tools/gpu-conformance.sh check ARCHIVE.tar.gz RESULTS.json [MINUTES [DRIVER]]
#
# A part of the check ends after MINUTES (7). DRIVER is the file of the driver's library, libcuda.so.1, where it is not in
# the places of the system. Exit codes: 0, all bits are equal; 1, some are not; 2, wrong arguments, or no check was possible;
# 3, the time is over: call it again, and it resumes.
set -eu

usage() {
    echo "$1" >&2
    sed -n '/^#   tools/s/^#  *//p' "$0" >&2
    exit 2
}

case ${1:-} in
pack | check) ;;
'') usage "gpu-conformance.sh needs a command: pack or check" ;;
*) usage "gpu-conformance.sh has no command $1: it is pack or check" ;;
esac
command=$1
[ $# -ge 3 ] || usage "gpu-conformance.sh $command needs an archive and, to pack, the folder of NVRTC, or else a file of results"
archive=$2
if [ "$command" = check ] && [ ! -f "$archive" ]; then
    usage "$archive is not there; \`gpu-conformance.sh pack\` makes an archive"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

case $command in
pack)
    cuda=$3
    cargo build --release -p surveys --bin survey
    "${CARGO_TARGET_DIR:-target}/release/survey" gpu-conformance pack "$folder/gpu-conformance" --cuda "$cuda"
    strip "$folder/gpu-conformance/survey" 2> /dev/null || true
    tar -czf "$archive" -C "$folder" gpu-conformance
    bytes=$(wc -c < "$archive")
    if [ "$bytes" -gt 52428800 ]; then
        echo "$archive has $bytes bytes, more than 50 MiB" >&2
        exit 1
    fi
    ;;
check)
    results=$3
    tar -xzf "$archive" -C "$folder"
    set -- --results "$results" --minutes "${4:-7}" ${5:+--driver "$5"}
    code=0
    "$folder/gpu-conformance/survey" gpu-conformance check "$folder/gpu-conformance" "$@" || code=$?
    exit "$code"
    ;;
esac
