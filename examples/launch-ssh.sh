#!/bin/sh
# A run on several hosts by ssh, restarted up to three times from its newest checkpoint:
#   launch-ssh.sh RUN.toml HOST...
# pleach, the run file and its folder must have the same paths on all hosts; ssh must not ask for a password.
set -eu

if [ "$#" -lt 2 ]; then
    echo "usage: $0 RUN.toml HOST..." >&2
    exit 2
fi
run=$1
shift

hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
printf '%s slots=2\n' "$@" > "$hosts"

pleach check "$run" --hosts "$hosts"
pleach launch --hosts "$hosts" --restarts 3 -- train "$run"
