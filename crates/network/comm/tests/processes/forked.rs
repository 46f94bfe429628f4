//! Real processes: this program, started again.

use crate::processes::{PATIENT, communicator};
use crate::worlds::wire::Wire;
use comm::processes::{Listeners, LocalAddress, LocalRanks, Process, ProcessMap, WorldMember, WorldToken, open};
use comm::{CommError, ThreadTransport};
use mesh::Rank;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Set in the processes that are started: which test, and how ranks talk.
const PART: &str = "PLEACH_TEST_PART";
/// Ranks of each process.
const RANKS: [&[usize]; 3] = [&[0, 4], &[1, 2], &[3]];
const ROUNDS: usize = 20;
const LEN: usize = 120_001;

/// A started process, and both its pipes.
struct Started {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The lines until one that begins with `key`, which is returned without it.
    fn line_of(&mut self, key: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty() || self.child.try_wait().unwrap().is_none(), "no line with {key}");
            // The test program writes the name of the test before it.
            if let Some((_, value)) = line.split_once(key) {
                return value.to_owned();
            }
        }
    }
}

/// Whether the processes see each other by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// They do.
    Shared,
    /// Each is process 1 of a namespace of its own, as in a container, so that none reads the memory of another one.
    Own,
}

/// Starts all processes of `test` and gives them the process map.
fn start(test: &str, wire: Wire, sight: Sight) -> Vec<Started> {
    let start = || {
        let name = format!("processes::forked::{test}");
        let program = std::env::current_exe().unwrap();
        let mut command = match sight {
            Sight::Shared => Command::new(program),
            Sight::Own => {
                let mut command = Command::new("unshare");
                command.args(["--pid", "--fork", "--kill-child"]).arg(program);
                command
            }
        };
        command.args(["--exact", &name, "--nocapture"]).env(PART, if wire == Wire::Tcp { "tcp" } else { "memory" });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Started { child, input, output: BufReader::new(output) }
    };
    let mut all: Vec<Started> = RANKS.iter().map(|_| start()).collect();
    let addresses: Vec<String> = all.iter_mut().map(|process| process.line_of("listens at ")).collect();
    for (number, process) in all.iter_mut().enumerate() {
        writeln!(process.input, "{number}\n{}", addresses.join("\n")).unwrap();
    }
    all
}

/// The part of a started process: says where it listens, reads the process map and opens the world.
fn take_part(kind: &str) -> LocalRanks {
    let mut listeners = Listeners::default();
    if kind == "tcp" {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("listens at {}", tcp.local_addr().unwrap());
        listeners.tcp = Some(tcp);
    } else {
        let (local, address) = Listeners::open_local().unwrap();
        println!("listens at {}", address.name.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        listeners.local = Some(local);
    }
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let process = lines.next().unwrap().parse().unwrap();
    let processes = RANKS.iter().zip(lines).enumerate().map(|(number, (ranks, address))| {
        let ranks = ranks.iter().copied().map(Rank).collect();
        let host = format!("host{number}");
        let machine = comm::processes::this_machine().unwrap();
        let bytes =
            |hex: &str| (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        match kind {
            "tcp" => Process { ranks, host, tcp: Some(address.parse().unwrap()), local: None },
            _ => Process { ranks, host, tcp: None, local: Some(LocalAddress { machine, name: bytes(&address) }) },
        }
    });
    let process_map = ProcessMap::new(processes.collect()).unwrap();
    let token = WorldToken::new([0xa5; 32]);
    open(WorldMember { process, process_map, listeners, token, num_lanes: NonZeroUsize::MIN, timeouts: PATIENT })
        .unwrap()
}

fn input(rank: usize) -> Vec<f32> {
    (0..LEN).map(|at| 1.0 / (1 + rank * 7 + at) as f32 * if at % 3 == 0 { -1e3 } else { 1.0 }).collect()
}

/// The sums of some rounds, as a number; `after` runs after the first round.
fn sums(end: ThreadTransport, after: impl Fn()) -> Result<u64, CommError> {
    let mut data = input(end_rank(&end));
    let communicator = communicator(end, 0);
    let mut hash = 0u64;
    for round in 0..ROUNDS {
        communicator.all_reduce_sum(&mut data)?;
        for x in &mut data {
            hash = hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(x.to_bits());
            *x /= (2 + round + communicator.position()) as f32;
        }
        after();
    }
    Ok(hash)
}

fn end_rank(end: &ThreadTransport) -> usize {
    comm::Transport::rank(end).0
}

fn all_sums(ends: Vec<ThreadTransport>, after: impl Fn() + Sync) -> Vec<(usize, Result<u64, CommError>)> {
    let after = &after;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ends.into_iter().map(|end| (end_rank(&end), scope.spawn(move || sums(end, after)))).collect();
        threads.into_iter().map(|(rank, thread)| (rank, thread.join().unwrap())).collect()
    })
}

#[test]
fn processes_sum_as_threads_do() {
    match std::env::var(PART) {
        Ok(kind) => print_sums(&kind),
        Err(_) => compare_sums(&[(Wire::Tcp, Sight::Shared), (Wire::SharedMemory, Sight::Shared)]),
    }
}

#[needs::namespaces]
#[test]
fn processes_that_do_not_see_each_other_sum_as_threads_do() {
    compare_sums(&[(Wire::SharedMemory, Sight::Own)]);
}

fn print_sums(kind: &str) {
    let ends = take_part(kind).ends.into_iter().flatten().collect();
    for (rank, sum) in all_sums(ends, || ()) {
        println!("sum {rank} {}", sum.unwrap());
    }
    println!("sums end");
}

fn compare_sums(sights: &[(Wire, Sight)]) {
    let expected: Vec<String> = all_sums(ThreadTransport::world(5, PATIENT), || ())
        .into_iter()
        .map(|(rank, sum)| format!("{rank} {}", sum.unwrap()))
        .collect();
    for (wire, sight) in sights.iter().copied() {
        let mut got = Vec::new();
        for (mut process, ranks) in start("processes_sum_as_threads_do", wire, sight).into_iter().zip(RANKS) {
            got.extend(ranks.iter().map(|_| process.line_of("sum ")));
            process.line_of("sums end");
            assert!(process.child.wait().unwrap().success());
        }
        got.sort();
        assert_eq!(got, expected, "{wire:?} {sight:?}");
    }
}

#[test]
fn a_process_that_is_killed_is_named_by_all_others() {
    match std::env::var(PART) {
        Ok(kind) => sum_until_killed(&kind),
        Err(_) => kill_one_process("a_process_that_is_killed_is_named_by_all_others"),
    }
}

/// Process 0 does not give its rows before another one is killed, so all others are in the all-to-all then.
#[test]
fn a_process_that_is_killed_in_an_all_to_all_of_rows_is_named_by_all_others() {
    match std::env::var(PART) {
        Ok(kind) => exchange_until_killed(&kind),
        Err(_) => kill_one_process("a_process_that_is_killed_in_an_all_to_all_of_rows_is_named_by_all_others"),
    }
}

/// Rows of experts, of which members give each other different numbers.
fn exchange(end: ThreadTransport) -> Result<(), CommError> {
    const ROOM: usize = 300_000;
    let communicator = communicator(end, 0);
    let own = communicator.position();
    let [given, gotten] = [false, true].map(|is_gotten| {
        let bytes = |peer| if is_gotten { 50_000 * peer + own } else { 50_000 * own + peer };
        (0..communicator.size()).map(bytes).collect::<Vec<usize>>()
    });
    let mut to = vec![0; ROOM * communicator.size()];
    communicator.exchange_parts((&vec![1; to.len()], &given), (&mut to, &gotten))
}

fn exchange_until_killed(kind: &str) {
    let ends: Vec<ThreadTransport> = take_part(kind).ends.into_iter().flatten().collect();
    println!("is under way");
    if ends.iter().any(|end| end_rank(end) == 0) {
        assert!(std::io::stdin().lines().next().is_none(), "the end of the input is the signal");
    }
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || {
                let rank = end_rank(&end);
                let exchanged = exchange(end);
                println!(
                    "rank {rank} reports: {}",
                    exchanged.map_or_else(|error| error.to_string(), |()| "nothing".into())
                );
            });
        }
    });
}

fn sum_until_killed(kind: &str) {
    let local = take_part(kind);
    let is_first = std::sync::Once::new();
    let ends = local.ends.into_iter().flatten().collect();
    let sums = all_sums(ends, || {
        is_first.call_once(|| println!("is under way"));
        // The victim stays until it is killed.
        if std::io::stdin().lines().next().is_none() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    });
    for (rank, sum) in sums {
        println!("rank {rank} reports: {}", sum.map_or_else(|error| error.to_string(), |_| "nothing".into()));
    }
}

fn kill_one_process(test: &str) {
    for wire in [Wire::Tcp, Wire::SharedMemory] {
        let mut all = start(test, wire, Sight::Shared);
        all.iter_mut().for_each(|process| _ = process.line_of("is under way"));
        let mut victim = all.remove(1);
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        for (mut process, ranks) in all.into_iter().zip([RANKS[0], RANKS[2]]) {
            drop(process.input);
            for _ in ranks {
                let mut line = String::new();
                while !line.contains(" reports: ") {
                    line.clear();
                    assert_ne!(process.output.read_line(&mut line).unwrap(), 0);
                }
                assert!(
                    line.contains("stopped because rank 1 failed: process 1 (ranks 1, 2) on host host1 "),
                    "{wire:?}: {line}"
                );
            }
            assert!(process.child.wait().unwrap().success());
        }
    }
}
