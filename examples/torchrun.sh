#!/bin/sh
# A run on several hosts by torchrun. Start this on every host with the same arguments:
#   torchrun.sh FIRST_HOST NUMBER_OF_HOSTS PROCESSES_PER_HOST RUN.toml
# All hosts need the same PLEACH_TOKEN, or a shared home folder.
set -eu

if [ "$#" -ne 4 ]; then
    echo "usage: $0 FIRST_HOST NUMBER_OF_HOSTS PROCESSES_PER_HOST RUN.toml" >&2
    exit 2
fi

exec torchrun \
    --nnodes "$2" \
    --nproc-per-node "$3" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$1:29500" \
    --no-python \
    pleach train "$4"
