#!/usr/bin/env bash
# Slurm on this machine alone: a controller and two nodes, each with a daemon of its own, for trying batch scripts and for tests.
# The nodes have two names of this machine, so that each name has an address. Needs root and Debian's packages slurm-wlm and
# munge. Nothing outside of FOLDER is changed.
#
#     tools/slurm-on-one-machine.sh start FOLDER    prints the line that makes srun and sbatch use it
#     tools/slurm-on-one-machine.sh stop FOLDER     ends all jobs and all daemons that it started
set -euo pipefail

# Debian has the daemons in sbin.
PATH=$PATH:/usr/sbin:/sbin
readonly CORES_OF_NODE=8
# The exit code where the host is not fit for a daemon. Others: 1 for a part that is not there, 2 for wrong use.
readonly DAEMON_FAILED=3

fail() {
    printf 'slurm-on-one-machine: %s\n' "$1" >&2
    exit 1
}

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

check_host() {
    [ "$(id -u)" = 0 ] || fail "must run as root: slurmd starts tasks as their users"
    local missing=()
    for program in munged mungekey slurmctld slurmd srun sbatch scontrol; do
        command -v "$program" > /dev/null || missing+=("$program")
    done
    [ ${#missing[@]} = 0 ] || fail "${missing[*]}: not found; install them with apt-get install slurm-wlm munge"
    [ "$(hostname -s)" != localhost ] || fail "this host is called localhost, and the second node needs that name; rename it"
    getent hosts "$(hostname -s)" > /dev/null || fail "the name of this host, $(hostname -s), has no address; add it to /etc/hosts"
}

# Four ports that nobody listens at.
free_ports() {
    python3 -c '
import socket
sockets = [socket.socket() for _ in range(4)]
[s.bind(("127.0.0.1", 0)) for s in sockets]
print(*[s.getsockname()[1] for s in sockets])'
}

# Version 1 of control groups has a folder for each controller.
cgroup_plugin() {
    if [ -d /sys/fs/cgroup/cpu ]; then echo cgroup/v1; else echo autodetect; fi
}

write_configuration() {
    local folder=$1 host
    host=$(hostname -s)
    read -r controller first second _ < <(free_ports)
    mkdir -p "$folder"/{state,spool,log,munge}
    chmod 700 "$folder/munge"
    [ -f "$folder/munge/key" ] || mungekey --create --keyfile "$folder/munge/key"
    cat > "$folder/slurm.conf" << CONF
ClusterName=one-machine
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MinJobAge=3600
KillWait=20
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
NodeName=$host NodeHostname=$host NodeAddr=127.0.0.1 Port=$first CPUs=$CORES_OF_NODE
NodeName=localhost NodeHostname=$host NodeAddr=127.0.0.1 Port=$second CPUs=$CORES_OF_NODE
PartitionName=normal Nodes=$host,localhost Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=$host,localhost MaxTime=INFINITE State=UP PriorityTier=10
CONF
    echo "CgroupPlugin=$(cgroup_plugin)" > "$folder/cgroup.conf"
}

# Waits until COMMAND succeeds, or names the log that says why it does not.
await() {
    local log=$1
    shift
    for _ in $(seq 150); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.2
    done
    tail -n 5 "$log" >&2 || true
    printf 'slurm-on-one-machine: %s\n' "a daemon does not run on this host: no answer to \`$*\` after 30 s; the end of $log is above" >&2
    exit "$DAEMON_FAILED"
}

nodes_are_idle() {
    [ "$(sinfo --noheader --Node --partition normal --format %T | sort -u)" = idle ]
}

start() {
    local folder
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    check_host
    [ ! -e "$folder/slurm.conf" ] || fail "$folder has a slurm.conf; stop it first, or name another folder"
    write_configuration "$folder"
    export SLURM_CONF=$folder/slurm.conf
    munged --force --key-file "$folder/munge/key" --socket "$folder/munge/socket" --pid-file "$folder/munge/pid" \
        --log-file "$folder/log/munged.log" --seed-file "$folder/munge/seed"
    slurmctld
    await "$folder/log/slurmctld.log" scontrol ping
    slurmd -N "$(hostname -s)"
    slurmd -N localhost
    scontrol update nodename="$(hostname -s)",localhost state=resume > /dev/null 2>&1 || true
    await "$folder/log/slurmd-localhost.log" nodes_are_idle
    echo "export SLURM_CONF=$SLURM_CONF"
}

stop() {
    local folder pid
    folder=$(cd "$1" && pwd)
    export SLURM_CONF=$folder/slurm.conf
    scancel --user=root > /dev/null 2>&1 || true
    for file in "slurmd-$(hostname -s).pid" slurmd-localhost.pid slurmctld.pid munge/pid; do
        pid=$(cat "$folder/$file" 2> /dev/null) || continue
        kill "$pid" 2> /dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2> /dev/null || break
            sleep 0.1
        done
    done
    rm -f "$folder/slurm.conf"
}

[ $# = 2 ] || usage
case $1 in
    start) start "$2" ;;
    stop) stop "$2" ;;
    *) usage ;;
esac
