//! Sets of variables as launchers set them, and what becomes known from each.

use launcher::{Launch, LaunchError, Launcher, launch};

fn of(variables: &str) -> Result<Option<Launch>, LaunchError> {
    launch(&|name: &str| {
        let pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(own, _)| *own == name).map(|(_, value)| value.to_string()).next_back()
    })
}

/// `launcher: process N of M, local L, on HOST, at ADDRESS, hosts`; `none`, or the error.
fn shown(variables: &str) -> String {
    let launch = match of(variables) {
        Ok(Some(launch)) => launch,
        Ok(None) => return "none".into(),
        Err(error) => return error.to_string(),
    };
    let mut text = launch.to_string();
    text += &launch.local_process.map_or(String::new(), |local| format!(", local {local}"));
    text += &launch.host.as_ref().map_or(String::new(), |host| format!(", on {host}"));
    text += &launch.rendezvous.as_ref().map_or(String::new(), |address| format!(", at {address}"));
    for host in launch.hosts.iter().flatten() {
        text += &format!(", {host}");
    }
    text
}

const TORCHRUN: &str = "TORCHELASTIC_RUN_ID=none RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 \
    GROUP_WORLD_SIZE=2 ROLE_RANK=3 ROLE_WORLD_SIZE=4 MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True \
    TORCHELASTIC_RESTART_COUNT=0 OMP_NUM_THREADS=1";
const SRUN: &str = "SLURM_JOB_ID=1234 SLURM_JOBID=1234 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_STEP_ID=0 SLURM_STEPID=0 \
    SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=2(x2) \
    SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=n2 SLURM_JOB_NODELIST=n[1-2]";
const SBATCH: &str = "SLURM_JOB_ID=1234 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 \
    SLURM_JOB_NODELIST=n[1-2] SLURM_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2) SLURMD_NODENAME=n1";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
    OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-30660@1 PMIX_HOSTNAME=vm";
const MPICH: &str =
    "HYDI_CONTROL_FD=7 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=11 PMI_HOSTNAME=vm PMI_RANK=1 PMI_SIZE=2";

/// As torchrun itself has set them: the first lines of the file say how it was started.
const RECORDED_TORCHRUN: &str = include_str!("recorded/torchrun.env");

#[test]
fn a_recorded_torchrun_is_known() {
    assert_eq!(shown(RECORDED_TORCHRUN), "torchrun: process 5 of 8, local 1, at 10.78.0.1:38914");
}

#[test]
fn each_launcher_has_a_command_for_messages() {
    let commands = Launcher::ALL.map(|launcher| launcher.command(2));
    let expected = [
        "pleach launch --nproc 2 -- train ...",
        "torchrun --nproc-per-node 2 --no-python pleach train ...",
        "mpiexec -n 2 pleach train ...",
        "mpiexec -n 2 pleach train ...",
        "mpiexec -n 2 pleach train ...",
        "srun --ntasks 2 pleach train ...",
        "spec.completions: 2",
    ];
    assert_eq!(commands, expected);
}

#[test]
fn each_launcher_is_known_by_its_variables() {
    let cases: [(&str, &str); 18] = [
        ("", "none"),
        ("PATH=/bin RANK=1", "none"),
        ("RANK=0 WORLD_SIZE=1", "torchrun: process 0 of 1"),
        (
            "RANK=1 WORLD_SIZE=2",
            "torchrun started this process as 1 of 2, but no address is known where process 0 listens; set \
             PLEACH_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, for all processes",
        ),
        ("WORLD_SIZE=1", "none"),
        (
            "WORLD_SIZE=2",
            "torchrun started this process, but RANK is missing; start all processes with the launcher itself, and do not \
             unset its variables",
        ),
        (TORCHRUN, "torchrun: process 3 of 4, local 1, at node0:29501"),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=job-0 MASTER_PORT=23456", "torchrun: process 1 of 2, at job-0:23456"),
        (SRUN, "Slurm: process 3 of 4, local 1, on n2, at n1:21234, n1 slots=2, n2 slots=2"),
        (OPEN_MPI, "Open MPI: process 1 of 2, local 1, on vm, at 127.0.0.1:29417"),
        (MPICH, "MPICH: process 1 of 2, local 1, on vm, at 127.0.0.1:29417"),
        (
            "JOB_COMPLETION_INDEX=2 PLEACH_PROCESSES=4 PLEACH_RENDEZVOUS=train-0.train:29400 PLEACH_HOST=node7",
            "Kubernetes: process 2 of 4, on node7, at train-0.train:29400",
        ),
        (
            "JOB_COMPLETION_INDEX=2 PLEACH_PROCESSES=4 MASTER_ADDR=train-0.train MASTER_PORT=29400",
            "Kubernetes: process 2 of 4, at train-0.train:29400",
        ),
        (
            "PMIX_RANK=0 PMIX_HOSTNAME=vm PLEACH_PROCESSES=2 PLEACH_RENDEZVOUS=vm:29400",
            "PMIx: process 0 of 2, on vm, at vm:29400",
        ),
        (
            "PLEACH_PROCESS=1 PLEACH_PROCESSES=2 PLEACH_LOCAL_PROCESS=0 PLEACH_HOST=b PLEACH_RENDEZVOUS=a:1 \
             PLEACH_HOSTS=a:1,b:1",
            "pleach launch: process 1 of 2, local 0, on b, at a:1, a slots=1, b slots=1",
        ),
        ("PLEACH_PROCESS=0 PLEACH_PROCESSES=1", "pleach launch: process 0 of 1"),
        (
            "PLEACH_PROCESS=0 PLEACH_PROCESSES=2 PLEACH_RENDEZVOUS=a:1 PLEACH_HOSTS=,,,",
            "PLEACH_HOSTS = \",,,\": it names no host; use a line per host, HOST or HOST slots=N; use entries with commas \
             between, such as node0:4,node1:4, or unset PLEACH_HOSTS",
        ),
        (
            "PLEACH_PROCESS=0 PLEACH_PROCESSES=2 PLEACH_RENDEZVOUS=a:1 PLEACH_HOSTS=a:1,b:x",
            "PLEACH_HOSTS = \"a:1,b:x\": line 2: \"b:x\" must be HOST, HOST slots=N or HOST:N with N from 1 to 65536; use \
             entries with commas between, such as node0:4,node1:4, or unset PLEACH_HOSTS",
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(shown(variables), expected, "{variables}");
    }
}

#[test]
fn a_batch_script_and_the_shell_of_an_allocation_are_no_launchers() {
    assert_eq!(shown(SBATCH), "none");
    let salloc = "SLURM_JOB_ID=1234 SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0";
    assert_eq!(shown(salloc), "none");
    // mpiexec within the script of a batch job counts.
    assert_eq!(shown(&format!("{SBATCH} {MPICH}")), "MPICH: process 1 of 2, local 1, on vm, at 127.0.0.1:29417");
}

#[test]
fn a_launcher_within_another_counts() {
    // An agent of torchrun for each task of a step.
    let agents = "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0";
    assert_eq!(shown(&format!("{SRUN} {agents} {TORCHRUN}")), "torchrun: process 3 of 4, local 1, at node0:29501");
    // Daemons of MPI as tasks of a step: fewer than processes.
    let world = "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALNRANKS=4";
    let expected = "MPICH started this process as 5 of 8, but no address is known where process 0 listens; set \
                    PLEACH_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, for all processes";
    assert_eq!(shown(&format!("{SRUN} {world}")), expected);
    let address = "PLEACH_RENDEZVOUS=n1:29400";
    assert_eq!(shown(&format!("{SRUN} {world} {address}")), "MPICH: process 5 of 8, at n1:29400");
    // A step whose tasks have variables of PMI, too: one place.
    let both = shown(&format!("{SRUN} PMI_RANK=3 PMI_SIZE=4"));
    assert_eq!(both, "MPICH: process 3 of 4, local 1, on n2, at n1:21234, n1 slots=2, n2 slots=2");
}

#[test]
fn contradictions_are_refused_by_name() {
    let remedy = "unset the variables of the launcher that did not start this process";
    let cases: [(String, String); 6] = [
        (
            "PLEACH_PROCESS=4 PLEACH_PROCESSES=4".into(),
            "PLEACH_PROCESS = 4 must be less than PLEACH_PROCESSES = 4; processes are counted from 0 (pleach launch started \
             this process)"
                .into(),
        ),
        (
            SRUN.replace("SLURM_PROCID=3", "SLURM_PROCID=7"),
            "SLURM_PROCID = 7 must be less than SLURM_STEP_NUM_TASKS = 4; processes are counted from 0 (Slurm started this \
             process)"
                .into(),
        ),
        (
            format!("{SRUN} PMI_RANK=2 PMI_SIZE=4"),
            format!("MPICH says process 2 of 4, but Slurm says process 3 of 4; {remedy}"),
        ),
        // One torchrun of its own for each task: four runs of one process each.
        (
            format!("{SRUN} TORCHELASTIC_RUN_ID=a RANK=0 WORLD_SIZE=1 GROUP_WORLD_SIZE=1"),
            format!("torchrun says process 0 of 1, but Slurm says process 3 of 4; {remedy}"),
        ),
        (
            format!("{OPEN_MPI} PMI_RANK=0 PMI_SIZE=3"),
            format!("Open MPI says process 1 of 2, but MPICH says process 0 of 3; {remedy}"),
        ),
        (
            format!("{MPICH} PLEACH_PROCESS=0 PLEACH_PROCESSES=2"),
            format!("pleach launch says process 0 of 2, but MPICH says process 1 of 2; {remedy}"),
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(shown(&variables), expected, "{variables}");
    }
}

#[test]
fn missing_and_malformed_variables_are_named_with_the_remedy() {
    let cases: [(&str, &str); 10] = [
        (
            "PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-1@1",
            "PMIx started this process, but PLEACH_PROCESSES is missing; set it to the number of processes, for all of them",
        ),
        (
            "PLEACH_PROCESS=0",
            "pleach launch started this process, but PLEACH_PROCESSES is missing; set PLEACH_PROCESS and PLEACH_PROCESSES, or \
             neither",
        ),
        (
            "PLEACH_PROCESSES=2",
            "pleach launch started this process, but PLEACH_PROCESS is missing; set PLEACH_PROCESS and PLEACH_PROCESSES, or \
             neither",
        ),
        (
            "JOB_COMPLETION_INDEX=0",
            "Kubernetes started this process, but PLEACH_PROCESSES is missing; set it to spec.completions of the Job",
        ),
        (
            "JOB_COMPLETION_INDEX=0 PLEACH_PROCESSES=2",
            "Kubernetes started this process as 0 of 2, but no address is known where process 0 listens; set \
             PLEACH_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, for all processes",
        ),
        (
            "TORCHELASTIC_RUN_ID=a RANK=0",
            "torchrun started this process, but WORLD_SIZE is missing; start all processes with the launcher itself, and do \
             not unset its variables",
        ),
        (
            "JOB_COMPLETION_INDEX=0 PLEACH_PROCESSES=2 MASTER_ADDR=a",
            "Kubernetes started this process, but MASTER_PORT is missing; set it to a free port of MASTER_ADDR, for all \
             processes",
        ),
        (
            "PLEACH_PROCESS=x PLEACH_PROCESSES=2",
            "PLEACH_PROCESS = \"x\" must be a whole number; pleach launch started this process",
        ),
        (
            "PLEACH_PROCESS=0 PLEACH_PROCESSES=2 PLEACH_RENDEZVOUS=node0",
            "PLEACH_RENDEZVOUS: \"node0\" must be HOST:PORT with a port from 1 to 65535; use e.g. node0:29400 or \
             [fd00::1]:29400",
        ),
        (
            "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=n[1-",
            "SLURM_STEP_NODELIST: \"n[1-\" must be a list such as node[01-03,7]: its brackets do not match",
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(shown(variables), expected, "{variables}");
    }
}

#[test]
fn starts_on_one_machine_meet_at_different_ports() {
    let shown_by = |launcher: &str, job: &str| shown(&format!("{launcher} PLEACH_JOB={job}"));
    assert_eq!(shown_by(MPICH, "4711"), "MPICH: process 1 of 2, local 1, on vm, at 127.0.0.1:24711");
    assert_eq!(shown_by(MPICH, "124712"), "MPICH: process 1 of 2, local 1, on vm, at 127.0.0.1:24712");
    assert_eq!(shown_by(OPEN_MPI, "4711"), "Open MPI: process 1 of 2, local 1, on vm, at 127.0.0.1:24711");
    assert_eq!(shown_by(MPICH, "x"), "PLEACH_JOB = \"x\" must be a whole number; MPICH started this process");
    // An address that is given counts.
    assert_eq!(
        shown_by(&format!("{MPICH} PLEACH_RENDEZVOUS=a:1"), "4711"),
        "MPICH: process 1 of 2, local 1, on vm, at a:1"
    );
}

#[test]
fn all_processes_of_a_step_meet_at_one_address_and_steps_at_different_ones() {
    let address = |variables: &str| of(variables).expect("legal").expect("a launch").rendezvous.expect("an address");
    let other_process =
        SRUN.replace("SLURM_PROCID=3", "SLURM_PROCID=0").replace("SLURMD_NODENAME=n2", "SLURMD_NODENAME=n1");
    assert_eq!(address(SRUN), address(&other_process));
    let other_step = SRUN.replace("SLURM_STEP_ID=0", "SLURM_STEP_ID=1");
    assert_ne!(address(SRUN), address(&other_step));
}
