#!/bin/sh
# Libraries of MPI for the tests of run.transport = "mpi": Debian's MPICH and Open MPI, and the wheels of MPICH 5 and of Intel MPI.
# Needs root on Debian 12, Python 3 with venv and pip. Wheels go to target/mpi. It prints what it finds.
set -eu
cd "$(dirname "$0")/.."

debian="mpich libmpich12 openmpi-bin libopenmpi3"
# shellcheck disable=SC2086
if ! dpkg -s $debian > /dev/null 2>&1; then
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $debian > /dev/null
fi
for wheel in mpich:mpich intel:impi-rt; do
    folder=target/mpi/${wheel%%:*}
    if [ ! -x "$folder/bin/mpiexec" ]; then
        python3 -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${wheel#*:}"
    fi
done

missing=0
for found in /usr/bin/mpiexec.mpich /usr/bin/mpiexec.openmpi target/mpi/mpich/bin/mpiexec target/mpi/intel/bin/mpiexec; do
    if [ -x "$found" ]; then
        echo "$found: $("$found" --version 2> /dev/null | grep -m 1 -E '[0-9]+\.[0-9]+' | tr -s ' ')"
    else
        echo "$found: missing" >&2
        missing=1
    fi
done
exit "$missing"
