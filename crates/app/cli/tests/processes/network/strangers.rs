//! Connections that are not of a run, to every port at which its processes listen: nothing is accepted, memory and
//! descriptors stay bounded, and the run has the losses of an undisturbed one.
//!
//! A sample is tried by default; the figures of `docs/clusters.md` are those of
//!
//! ```text
//! PLEACH_CASES=10000 cargo test -p cli --test suite processes::network::strangers -- --nocapture
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Folder, LIMIT, PORT, Plan, Process, TOKEN};
use super::namespaces::Network;
use super::relay::{self, ByteRange, Way, Wire};

/// Connections, unless `PLEACH_CASES` has another number.
const SAMPLE: usize = 500;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Connections that are made between two steps of the run.
const PER_STEP: usize = 10;
/// Steps before the first connection and after the last.
const CALM: usize = 10;
/// Connections that the strangers keep open: more than the run does.
const HELD: usize = 300;
/// Most bytes that a stranger sends.
const LONGEST: usize = 8 << 10;
/// Connections without a process that the meeting point keeps, and those without a preamble of the ranks: 128 each, and
/// one of each process.
const KEPT: usize = 2 * (128 + 8);
/// Bytes of a greeting, of both ends before their first frame, and of a challenge.
const GREETING: usize = 40;
const HANDSHAKE: usize = 72;
const CHALLENGE: usize = 72;
/// Descriptors that each process may have.
const DESCRIPTORS: usize = 400;
/// Memory that strangers may take of a process: their bytes in a buffer that doubles as it grows, a page for the state
/// of each, and 4 MiB for what the allocator keeps of blocks of 64 KiB in which it reads.
const STRANGERS_BYTES: usize = KEPT * (2 * LONGEST + 4096) + (4 << 20);

/// The behavior of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Garbage,
    HalfOpen,
    PartOfAGreeting,
    WrongProof,
    Replayed,
    Truncated,
    TooLong,
    SlowLoris,
}

const KINDS: [Kind; 8] = [
    Kind::Garbage,
    Kind::HalfOpen,
    Kind::PartOfAGreeting,
    Kind::WrongProof,
    Kind::Replayed,
    Kind::Truncated,
    Kind::TooLong,
    Kind::SlowLoris,
];

/// The bytes that a process sends at the start of a sound connection, as the relay has recorded them.
type Records = BTreeMap<Wire, Vec<u8>>;

/// Numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A connection that is kept open.
struct Held {
    socket: TcpStream,
    /// Bytes that a slow loris still has to send, one at a time.
    rest: VecDeque<u8>,
}

/// The strangers, and what they have seen.
struct Strangers {
    numbers: Numbers,
    records: Records,
    held: VecDeque<Held>,
    count: usize,
    /// By kind: connections, and those that were read to their end, which was that of a challenge.
    seen: BTreeMap<Kind, (usize, usize)>,
}

impl Strangers {
    /// Connects once to `address`, where connections begin as the record of `wire` does.
    fn connect(&mut self, address: SocketAddr, wire: Wire) {
        let kind = KINDS[self.count % KINDS.len()];
        self.count += 1;
        let bytes = self.bytes(kind, wire);
        let mut socket =
            TcpStream::connect_timeout(&address, LIMIT).unwrap_or_else(|error| panic!("{address}: {error}"));
        socket.set_read_timeout(Some(LIMIT)).expect("a socket");
        if kind == Kind::SlowLoris {
            self.held.push_back(Held { socket, rest: bytes.into() });
            self.trickle();
            self.seen.entry(kind).or_default().0 += 1;
            return;
        }
        // The other end may have closed already.
        let is_sent = socket.write_all(&bytes).is_ok();
        let answered = is_sent && kind == Kind::Replayed && is_challenged(&until_end(&mut socket));
        let seen = self.seen.entry(kind).or_default();
        *seen = (seen.0 + 1, seen.1 + usize::from(answered));
        // Some go at once, others stay.
        if kind == Kind::HalfOpen || self.numbers.below(2) == 0 {
            self.held.push_back(Held { socket, rest: VecDeque::new() });
        }
        while self.held.len() > HELD {
            self.held.pop_front().into_iter().for_each(Held::end);
        }
    }

    fn bytes(&mut self, kind: Kind, wire: Wire) -> Vec<u8> {
        let record = self.records[&wire].clone();
        match kind {
            Kind::HalfOpen => vec![],
            Kind::Garbage => {
                let len = 1 + self.numbers.below(LONGEST);
                self.numbers.bytes(len)
            }
            Kind::PartOfAGreeting | Kind::SlowLoris => record[..1 + self.numbers.below(GREETING - 1)].to_vec(),
            Kind::WrongProof => {
                let mut bytes = record;
                bytes[GREETING + self.numbers.below(HANDSHAKE - GREETING)] ^= 1 << self.numbers.below(8);
                bytes
            }
            Kind::Replayed => record,
            Kind::Truncated => {
                let len = self.numbers.below(record.len());
                record[..len].to_vec()
            }
            Kind::TooLong => [&record[..GREETING], &self.numbers.bytes(LONGEST - GREETING)].concat(),
        }
    }

    /// Sends a byte of each slow loris.
    fn trickle(&mut self) {
        for Held { socket, rest, .. } in &mut self.held {
            if let Some(byte) = rest.pop_front() {
                let _ = socket.write_all(&[byte]);
            }
        }
    }
}

impl Held {
    /// Nothing but a challenge may have come.
    fn end(mut self) {
        self.socket.set_nonblocking(true).expect("a socket");
        is_challenged(&until_end(&mut self.socket));
    }
}

/// All bytes that come, up to the end of the connection or of what is there.
fn until_end(socket: &mut TcpStream) -> Vec<u8> {
    let mut answer = vec![];
    // A connection may end in any way.
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// Whether an answer is a challenge; it must be that or nothing.
fn is_challenged(answer: &[u8]) -> bool {
    assert!(answer.is_empty() || answer.len() == CHALLENGE && answer.starts_with(b"plch"), "{answer:?}");
    !answer.is_empty()
}

/// The state of a process that strangers might change.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    resident_bytes: usize,
    descriptors: usize,
}

impl State {
    fn of(process: &Process) -> State {
        let folder = std::path::Path::new("/proc").join(process.id().to_string());
        let status = std::fs::read_to_string(folder.join("status")).expect("a process");
        let kilobytes =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| rest.split_whitespace().next());
        let resident_bytes = 1024 * kilobytes.and_then(|number| number.parse::<usize>().ok()).expect("a number");
        State { resident_bytes, descriptors: std::fs::read_dir(folder.join("fd")).expect("descriptors").count() }
    }
}

/// The largest values of each process over a run, beyond those at its start.
struct Watched {
    first: Vec<State>,
    largest: Vec<State>,
}

impl Watched {
    fn new(cluster: &Cluster) -> Watched {
        let first: Vec<State> = cluster.processes.iter().map(State::of).collect();
        Watched { largest: first.clone(), first }
    }

    fn look(&mut self, cluster: &Cluster) {
        for (largest, process) in self.largest.iter_mut().zip(&cluster.processes) {
            let State { resident_bytes, descriptors } = State::of(process);
            largest.resident_bytes = largest.resident_bytes.max(resident_bytes);
            largest.descriptors = largest.descriptors.max(descriptors);
        }
    }

    fn grown_bytes(&self) -> Vec<usize> {
        self.largest
            .iter()
            .zip(&self.first)
            .map(|(largest, first)| largest.resident_bytes - first.resident_bytes)
            .collect()
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (process, (largest, first)) in self.largest.iter().zip(&self.first).enumerate() {
            let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
            let (before, most) = (mib(first.resident_bytes), mib(largest.resident_bytes));
            writeln!(
                f,
                "process {process}: {before:.1} MiB and {} descriptors before, at most {most:.1} MiB and {}",
                first.descriptors, largest.descriptors
            )?;
        }
        Ok(())
    }
}

/// The ports at which processes of a host listen, with the bytes that a connection there begins with.
fn listeners(network: &Network, cluster: &Cluster) -> Vec<(SocketAddr, Wire)> {
    let mut found = vec![];
    for (host, process) in cluster.processes.chunks(2).enumerate() {
        let path = format!("/proc/{}/net/tcp", process[0].id());
        let text = std::fs::read_to_string(path).expect("sockets");
        for line in text.lines().skip(1) {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next().expect("an address"), fields.nth(1).expect("a state"));
            let (address, port) = local.split_once(':').expect("a port");
            let address = Ipv4Addr::from(u32::from_str_radix(address, 16).expect("an address").to_le_bytes());
            let port = u16::from_str_radix(port, 16).expect("a port");
            // Listening.
            if state == "0A" {
                assert_eq!(address, network.address(host), "processes listen at no other address");
                found.push((SocketAddr::from((address, port)), if port == PORT { Wire::Meeting } else { Wire::Data }));
            }
        }
    }
    found
}

/// The steps that a run has done.
fn steps_done(folder: &Folder, run: &str) -> usize {
    folder.text(run, "metrics.jsonl").lines().count()
}

/// Waits until a run has done `steps` steps.
fn wait_for_steps(folder: &Folder, run: &str, steps: usize) {
    let until = Instant::now() + LIMIT;
    while steps_done(folder, run) < steps {
        assert!(Instant::now() < until, "{run} has not done {steps} steps");
        sleep(Duration::from_millis(1));
    }
}

/// A run of eight processes on four hosts, whose connections are recorded; `between` runs after each step.
fn run(
    network: &Network,
    folder: &Folder,
    (run, steps): (&str, usize),
    mut between: impl FnMut(&Cluster, &Records),
) -> Watched {
    let records: Arc<Mutex<Records>> = Arc::default();
    let recorded = Arc::clone(&records);
    let relayed = relay::start(network, move |range: ByteRange, _, bytes| {
        // Those of one process on another host: to process 0, and to its ranks.
        let is_first = (range.way, range.from, range.to) == (Way::There, 2, 0);
        if is_first && range.wire != Wire::Control {
            let mut records = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            let record = records.entry(range.wire).or_default();
            record.extend(&bytes[..bytes.len().min(LONGEST - record.len())]);
        }
    });
    let rendezvous = |process| if process == 0 { network.socket(0, PORT) } else { relayed };
    let key = folder.key(run);
    // It ends by a signal: the strangers may take longer than the steps.
    let keys = vec!["train.steps=1000000", "run.rendezvous_seconds=60", "run.heartbeat_seconds=30", &key];
    let plan = Plan { network, processes_per_host: 2, keys, rendezvous: &rendezvous };
    let limited = |number| {
        let mut command = plan.command_under(number, &format!("ulimit -n {DESCRIPTORS}"));
        command.env("PLEACH_TOKEN", TOKEN);
        Process::start(number, command)
    };
    let cluster = Cluster { processes: (0..8).map(limited).collect() };
    wait_for_steps(folder, run, CALM);
    let records = records.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut watched = Watched::new(&cluster);
    for step in CALM..steps - CALM {
        wait_for_steps(folder, run, step);
        between(&cluster, &records);
        watched.look(&cluster);
    }
    wait_for_steps(folder, run, steps);
    cluster.process(0).signal("TERM");
    for ended in cluster.end_within(LIMIT) {
        // The process that got the signal has its exit code; the others have done what there was to do.
        let expected = if ended.number == 0 { 143 } else { 0 };
        assert_eq!(ended.code, Some(expected), "process {}: {}", ended.number, ended.text);
    }
    watched
}

#[needs::namespaces]
#[test]
fn strangers_at_every_port_disturb_no_run() {
    let network = Network::of(4);
    let count = needs::cases!(SAMPLE);
    let steps = count.div_ceil(PER_STEP) + 2 * CALM;
    let folder = Folder::new("strangers");
    let calm = run(&network, &folder, ("calm", steps), |_, _| ());
    let mut strangers: Option<Strangers> = None;
    let disturbed = run(&network, &folder, ("disturbed", steps), |cluster, records| {
        let strangers = strangers.get_or_insert_with(|| Strangers {
            numbers: Numbers(SEED),
            records: records.clone(),
            held: VecDeque::new(),
            count: 0,
            seen: BTreeMap::new(),
        });
        let listeners = listeners(&network, cluster);
        assert_eq!(listeners.len(), 9, "a port of each process, and the meeting point");
        network.on(network.outsider(), || {
            for _ in 0..PER_STEP.min(count - strangers.count) {
                // Half of them at the meeting point.
                let at = strangers.numbers.below(2 * listeners.len());
                let place = listeners.iter().find(|(_, wire)| *wire == Wire::Meeting);
                let (address, wire) = listeners.get(at).or(place).copied().expect("a port");
                strangers.connect(address, wire);
            }
        });
    });
    let strangers = strangers.expect("strangers");
    assert_eq!(strangers.count, count);
    let (losses, expected) = (folder.losses("disturbed"), folder.losses("calm"));
    assert!(losses.len().min(expected.len()) >= steps, "{} and {} steps", losses.len(), expected.len());
    assert!(losses.iter().zip(&expected).all(|(loss, expected)| loss == expected), "a loss differs");
    for (kind, (connections, challenged)) in &strangers.seen {
        println!("{kind:?}: {connections} connections, of which {challenged} were read to their end: a challenge");
    }
    println!(
        "{count} connections
{disturbed}undisturbed
{calm}"
    );
    for (process, (grown, calm)) in disturbed.grown_bytes().into_iter().zip(calm.grown_bytes()).enumerate() {
        let bound = calm + STRANGERS_BYTES;
        assert!(grown <= bound, "process {process} took {grown} bytes more; at most {bound} are explained");
    }
    for (process, (largest, first)) in disturbed.largest.iter().zip(&disturbed.first).enumerate() {
        let bound = first.descriptors + KEPT;
        assert!(largest.descriptors <= bound, "process {process} had {} descriptors", largest.descriptors);
    }
}
