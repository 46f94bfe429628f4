#!/bin/sh
# A run on several hosts by the mpiexec of MPICH, Intel MPI or Open MPI, with messages over that library:
#   mpirun.sh FIRST_HOST,SECOND_HOST,... PROCESSES_PER_HOST RUN.toml
# All hosts need the same PLEACH_TOKEN, or a shared home folder. MPIEXEC is the launcher, by default mpiexec.
set -eu

if [ "$#" -ne 3 ]; then
    echo "usage: $0 HOST[,HOST...] PROCESSES_PER_HOST RUN.toml" >&2
    exit 2
fi

mpiexec=${MPIEXEC:-mpiexec}
number=$(($(echo "$1" | tr ',' '\n' | wc -l) * $2))
export PLEACH_RENDEZVOUS="${1%%,*}:29400"

case $("$mpiexec" --version 2>&1) in
    *"Open MPI"* | *OpenRTE*)
        hosts=$(echo "$1" | sed "s/,/:$2,/g; s/\$/:$2/")
        exec "$mpiexec" --host "$hosts" -x PLEACH_RENDEZVOUS -x PLEACH_TOKEN -n "$number" \
            pleach train "$3" --set run.transport=mpi
        ;;
    *)
        # Without the option the launcher kills the others before they can say which process has ended.
        exec "$mpiexec" -disable-auto-cleanup -hosts "$1" -ppn "$2" -n "$number" pleach train "$3" --set run.transport=mpi
        ;;
esac
