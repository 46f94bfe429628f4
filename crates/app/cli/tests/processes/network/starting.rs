//! Runs that cannot start: every process that is there ends, with the reason and the remedy where no other one prints
//! them.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Ended, Folder, LIMIT, PORT, Plan, Process};
use super::namespaces::Network;

const RENDEZVOUS: &str = "run.rendezvous_seconds=3";
/// `run.rendezvous_seconds`, two seconds for the answer of process 0, and two for starting processes and reading texts.
const DEADLINE: Duration = Duration::from_secs(3 + 2 + 2);

/// Who knows why a run does not start.
#[derive(Clone, Copy)]
enum Knows {
    /// Process 0, which tells the others and prints for all.
    First,
    /// Each process by itself.
    Each,
}

fn assert_end(ended: &[Ended], began: Instant, knows: Knows, expected: &str) {
    for Ended { number, code, text, at } in ended {
        assert_eq!(*code, Some(1), "process {number}: {text}");
        match (knows, number) {
            (Knows::First, 1..) => assert_eq!(text, "", "process {number} leaves it to process 0"),
            (Knows::First, 0) | (Knows::Each, _) => assert!(text.contains(expected), "process {number}: {text}"),
        }
        assert!(at.duration_since(began) <= DEADLINE, "process {number} ended after {:?}", at.duration_since(began));
    }
}

#[needs::namespaces]
#[test]
fn a_host_that_never_starts_is_named_once() {
    let network = Network::of(4);
    let folder = Folder::new("absent");
    let (run, began) = (folder.key("run"), Instant::now());
    let rendezvous = |_| network.socket(0, PORT);
    let plan = Plan { network: &network, processes_per_host: 2, keys: vec![RENDEZVOUS, &run], rendezvous: &rendezvous };
    let ended = plan.start_of(vec![0, 1, 2, 3, 6, 7]).end_within(LIMIT);
    let expected = "processes 4, 5 of 8 did not arrive at 10.77.0.1:29400 within 3s; start all processes, or raise \
                    run.rendezvous_seconds";
    assert_end(&ended, began, Knows::First, expected);
}

#[needs::namespaces]
#[test]
fn a_first_host_that_never_starts_is_named_by_all_others() {
    let network = Network::of(4);
    let folder = Folder::new("headless");
    let (run, began) = (folder.key("run"), Instant::now());
    let rendezvous = |_| network.socket(0, PORT);
    let plan = Plan { network: &network, processes_per_host: 2, keys: vec![RENDEZVOUS, &run], rendezvous: &rendezvous };
    let ended = plan.start_of((2..8).collect()).end_within(LIMIT);
    assert_end(&ended, began, Knows::Each, "found no process 0 at 10.77.0.1:29400 within 3s: ");
}

#[needs::namespaces]
#[test]
fn a_port_in_use_is_one_line_with_the_address_and_the_remedy() {
    let network = Network::of(1);
    let folder = Folder::new("port");
    let used = network.on(0, || TcpListener::bind(network.socket(0, PORT)).expect("a free port"));
    let (run, rendezvous) = (folder.key("run"), |_| network.socket(0, PORT));
    let plan = Plan { network: &network, processes_per_host: 2, keys: vec![RENDEZVOUS, &run], rendezvous: &rendezvous };
    let ended = plan.start().end_within(LIMIT);
    drop(used);
    let expected = "process 0 cannot listen at 10.77.0.1:29400: Address already in use (os error 98); the address must be one \
                    of its own host, with a port that no other program has, maybe of another user; set \
                    PLEACH_RENDEZVOUS=HOST:PORT for all processes. The token can stay: no process shows it";
    assert_eq!((ended[0].code, ended[0].text.lines().last()), (Some(1), Some(expected)));
    // The other process has reached the one that uses the port.
    let expected = "process 1 got no proof of the token from 10.77.0.1:29400: it is silent; see the messages of process 0, \
                    and whether another program, maybe of another user, has its port. The token can stay";
    assert!(ended[1].code == Some(1) && ended[1].text.contains(expected), "{}", ended[1].text);
}

#[needs::namespaces]
#[test]
fn a_wrong_number_of_processes_is_refused_with_the_command_to_use() {
    let network = Network::of(3);
    let folder = Folder::new("size");
    let (run, rendezvous) = (folder.key("run"), |_| network.socket(0, PORT));
    let plan = Plan { network: &network, processes_per_host: 1, keys: vec![RENDEZVOUS, &run], rendezvous: &rendezvous };
    for ended in plan.start().end_within(LIMIT) {
        let expected = "pleach launch: 8 ranks must be divided equally among processes; got 3; start 1, 2, 4 or 8 processes, or \
                        change the degrees of [parallelism]; e.g. `pleach launch --nproc 2 -- train ...`";
        assert_eq!((ended.code, ended.text.lines().last()), (Some(2), Some(expected)));
    }
    // Two that expect two, and one that expects four.
    let plan = |hosts: &'static str, processes: &'static str, number: usize| {
        let mut command = plan.command(number);
        command.envs([("PLEACH_HOSTS", hosts), ("PLEACH_PROCESSES", processes)]);
        Process::start(number, command)
    };
    let began = Instant::now();
    let processes = vec![plan("h0:1,h1:1", "2", 0), plan("h0:1,h1:1,h2:2", "4", 1)];
    let ended = Cluster { processes }.end_within(LIMIT);
    let expected = "process 1 (host h1) expects 4 processes, and process 0 expects 2; start all with the same number";
    assert_end(&ended, began, Knows::First, expected);
}
