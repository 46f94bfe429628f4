//! Processes that are started with the variables of a launcher, without it: they have the bits of threads, and show no
//! secret to whoever has the port of process 0.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use crate::harness::several::{Folder, on_threads, with_keys};
use crate::harness::{free_port, stderr};
use crate::processes::wait::wait;

const TOKEN: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
/// As torchrun itself has set them for process 5 of 8.
const RECORDED: &str = include_str!("../../../../network/launcher/src/tests/recorded/torchrun.env");

/// `train` in eight processes, of which each has the variables that `of` gives it.
fn trained(run: &str, of: impl Fn(usize) -> Vec<(String, String)>) -> Vec<Output> {
    let start = |process: usize| -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(with_keys(&["train"], &[run])).envs(of(process)).env("PLEACH_TOKEN", TOKEN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
    };
    let children: Vec<Child> = (0..8).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().expect("an end")).collect()
}

fn assert_same_as_threads(folder: &Folder, name: &str, of: impl Fn(usize) -> Vec<(String, String)>) {
    on_threads(&[&folder.run("threads")]);
    for (process, output) in trained(&folder.run(name), of).iter().enumerate() {
        assert_eq!(output.status.code(), Some(0), "process {process}: {}", stderr(output));
        assert!(process == 0 || output.stdout.is_empty(), "process {process} is silent");
    }
    assert_eq!(folder.losses(name), folder.losses("threads"));
    assert!(folder.weights(name) == folder.weights("threads"));
}

#[test]
fn the_variables_that_torchrun_has_set_start_a_run() {
    let folder = Folder::new("torchrun");
    // The agent listens at the port before this one.
    let port = free_port();
    assert_same_as_threads(&folder, "run", |process| {
        let recorded = RECORDED.lines().filter_map(|line| line.split_once('='));
        let value = |name: &str, recorded: &str| match name {
            "RANK" | "ROLE_RANK" => process.to_string(),
            "LOCAL_RANK" => (process % 4).to_string(),
            "GROUP_RANK" => (process / 4).to_string(),
            "MASTER_ADDR" => "127.0.0.1".into(),
            "MASTER_PORT" => (port - 1).to_string(),
            _ => recorded.into(),
        };
        let variables = recorded.filter(|(name, _)| !name.starts_with('#'));
        variables.map(|(name, recorded)| (name.into(), value(name, recorded))).collect()
    });
}

#[test]
fn the_variables_of_an_indexed_job_start_a_run() {
    let folder = Folder::new("kubernetes");
    let address = format!("localhost:{}", free_port());
    assert_same_as_threads(&folder, "run", |process| {
        let variables = [
            ("JOB_COMPLETION_INDEX", process.to_string()),
            ("PLEACH_PROCESSES", "8".into()),
            ("PLEACH_RENDEZVOUS", address.clone()),
            // Two pods on each node: shared memory within a node, TCP between nodes.
            ("PLEACH_HOST", format!("node{}", process / 2)),
        ];
        variables.map(|(name, value)| (name.to_string(), value)).into()
    });
}

/// Bytes with which a process begins a connection: they have a nonce.
const GREETING: usize = 40;

/// Variables of process 1 of 2 under each launcher; processes by ssh have those of `pleach launch`.
const LAUNCHERS: [(&str, &str); 6] = [
    ("pleach launch", "PLEACH_PROCESS=1 PLEACH_PROCESSES=2"),
    ("torchrun", "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2"),
    ("MPICH", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2"),
    ("Slurm", "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost SLURM_PROCID=1 SLURM_LOCALID=1"),
    ("Kubernetes", "JOB_COMPLETION_INDEX=1 PLEACH_PROCESSES=2"),
];

#[test]
fn whoever_has_the_port_of_process_0_hears_a_nonce_under_every_launcher() {
    for (launcher, variables) in LAUNCHERS {
        let squatter = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = squatter.local_addr().expect("an address").port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(with_keys(&["train"], &["run.rendezvous_seconds=5"])).env("PLEACH_TOKEN", TOKEN);
        command.envs(variables.split(' ').filter_map(|pair| pair.split_once('=')));
        match launcher {
            "torchrun" => command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &(port - 1).to_string())]),
            _ => command.env("PLEACH_RENDEZVOUS", format!("127.0.0.1:{port}")),
        };
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
        squatter.set_nonblocking(true).expect("a listener");
        let (mut stream, _) = wait("a process", || squatter.accept().ok());
        stream.set_nonblocking(false).expect("a socket");
        let mut heard = vec![0; GREETING];
        stream.read_exact(&mut heard).expect("a greeting");
        // It has no token, so it sends its own words back, and a proof of nothing.
        stream.write_all(&[&heard[..], &[9; 32]].concat()).expect("sent");
        stream.read_to_end(&mut heard).expect("an end");
        let ended = child.wait_with_output().expect("an end");
        assert_eq!(heard.len(), GREETING, "{launcher}: nothing follows a wrong proof");
        assert!(!heard.windows(8).any(|eight| eight == [0x5a; 8]), "{launcher}: the token");
        let expected = format!("process 1 got a wrong proof from 127.0.0.1:{port}: ");
        let said = stderr(&ended);
        assert!(ended.status.code() == Some(1) && said.contains(&expected), "{launcher}: {said}");
        assert!(said.contains("The token can stay"), "{launcher}: {said}");
    }
}
