//! The meeting of as many processes as the run has ranks: process 0 is the real one, and the others are connections of
//! a few processes. They introduce themselves, receive the directory, show its hash, and exchange addresses.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use launcher::Address;
use rendezvous::{
    Identity, Introduction, Listening, MAX_BYTES, Message, ProcessEntry, SealedStream, Service, TextHash, Times, Token,
    decode, encode, hash_bytes,
};

use super::{Figures, peak_bytes};

/// Processes that stand for all others.
const GUEST_PROCESSES: usize = 4;
const PROCESSES_OF_A_HOST: usize = 8;
/// The longest wait.
const LONG: Duration = Duration::from_secs(600);

/// Connections of one process, each in place of a process: `first` and further ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoiningProcesses {
    /// Port of process 0.
    pub port: u16,
    /// Number of the first.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// Processes of the run.
    pub processes: usize,
}

/// Process 0 of `processes`; `start` starts a process that does [`JoiningProcesses::take_part`].
///
/// # Errors
/// Processes that do not meet.
pub fn meeting(processes: usize, start: &dyn Fn(&JoiningProcesses) -> io::Result<Command>) -> Result<Figures, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let listening = Listening::bind(&Address { host: "127.0.0.1".into(), port: 0 }).map_err(|error| text(&error))?;
    let port = listening.local_address().port();
    let share = (processes - 1).div_ceil(GUEST_PROCESSES);
    let mut children = Children(vec![]);
    let started = Instant::now();
    for first in (1..processes).step_by(share) {
        let guests = JoiningProcesses { port, first, count: share.min(processes - first), processes };
        children.0.push(start(&guests).and_then(|mut command| command.spawn()).map_err(|error| text(&error))?);
    }
    let times = Times { rendezvous: LONG, heartbeat: LONG };
    let control = listening.meet(&token(), introduction(0, processes), times).map_err(|error| text(&error))?;
    let mut figures = Figures::default();
    figures
        .put("introduction_bytes", encode(&Message::Introduction(introduction(processes - 1, processes))).len() as f64);
    figures.put("introduced_seconds", started.elapsed().as_secs_f64());
    let directory = encode(&Message::Directory(control.directory().clone()));
    let own = hash_bytes(&directory);
    let hashes = control.gather("directory", own.to_le_bytes().to_vec(), LONG).map_err(|error| text(&error))?;
    let hashes = hashes.ok_or("process 0 gathers")?;
    if let Some(process) = hashes.iter().position(|hash| *hash != own.to_le_bytes()) {
        return Err(format!("process {process} has another directory"));
    }
    figures.put("met_seconds", started.elapsed().as_secs_f64());
    figures.put("directory_bytes", directory.len() as f64);
    let exchanged = Instant::now();
    let addresses = control.gather("addresses", address(0), LONG).map_err(|error| text(&error))?;
    let all = addresses.ok_or("process 0 gathers")?.concat();
    figures.put("addresses_bytes", all.len() as f64);
    control.broadcast("addresses", all, LONG).map_err(|error| text(&error))?;
    figures.put("descriptors", open_descriptors(Path::new("/proc/self/fd")) as f64);
    control.finish(LONG).map_err(|error| text(&error))?;
    figures.put("exchanged_seconds", exchanged.elapsed().as_secs_f64());
    figures.put("peak_bytes", peak_bytes());
    children.succeed()?;
    Ok(figures)
}

impl JoiningProcesses {
    /// Introduces all of them, and does what processes do until they have each other's addresses.
    ///
    /// # Errors
    /// A connection that ends early, or something else than a directory.
    pub fn take_part(&self) -> Result<(), String> {
        self.met().map_err(|error| format!("processes from {} on: {error}", self.first))
    }

    fn met(&self) -> io::Result<()> {
        let numbers = self.first..self.first + self.count;
        let connect = |process| {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            let mut stream = SealedStream::connect(stream, &token(), Service::Meeting, Instant::now() + LONG)?;
            stream.set_patience(Some(LONG))?;
            let introduction = introduction(process, self.processes);
            stream.send(&Message::Introduction(introduction)).map(|()| stream)
        };
        let mut streams = numbers.clone().map(connect).collect::<io::Result<Vec<SealedStream>>>()?;
        for (stream, process) in streams.iter_mut().zip(numbers.clone()) {
            let directory = next_message(stream)?;
            // All are the same bytes, so that one of them is enough to be read.
            if process == self.first {
                let read = decode(&directory, MAX_BYTES).map_err(|error| io::Error::other(error.to_string()))?;
                let Some((Message::Directory(read), _)) = read else {
                    return Err(io::Error::other("the answer must be a directory"));
                };
                assert_eq!(read.processes.len(), self.processes, "all processes are in the directory");
            }
            let bytes = hash_bytes(&directory).to_le_bytes().to_vec();
            stream.send(&Message::Parcel { topic: "directory".into(), bytes })?;
            stream.send(&Message::Parcel { topic: "addresses".into(), bytes: address(process) })?;
        }
        for stream in &mut streams {
            next_message(stream)?;
            stream.send(&Message::Goodbye)?;
        }
        // Process 0 answers, and closes its ends once all have left.
        streams.iter_mut().try_for_each(|stream| next_message(stream).map(drop))
    }
}

/// The bytes of the next message except heartbeats.
fn next_message(stream: &mut SealedStream) -> io::Result<Vec<u8>> {
    let heartbeat = encode(&Message::Heartbeat);
    loop {
        let message = stream.receive_bytes(MAX_BYTES, None)?;
        if message != heartbeat {
            return Ok(message);
        }
    }
}

fn introduction(process: usize, processes: usize) -> Introduction {
    let entry =
        ProcessEntry { process, host: format!("node{:05}", process / PROCESSES_OF_A_HOST), ranks: vec![process] };
    let identity = Identity {
        version: env!("CARGO_PKG_VERSION").into(),
        binary: 0x9e37_79b9_7f4a_7c15,
        run_file: 0xbf58_476d_1ce4_e5b9,
        program: 0x94d0_49bb_1331_11eb,
        text: TextHash::Read(0x2545_f491_4f6c_dd1d),
        inputs: [("weights file".to_string(), 1)].into(),
    };
    Introduction { entry, processes, identity }
}

/// As long as the addresses of a process are.
fn address(process: usize) -> Vec<u8> {
    format!("[\"tcp 10.0.{}.{}:29400\"],", process / 256 % 256, process % 256).into_bytes()
}

/// A secret of this program: the connections are on the loopback.
fn token() -> Token {
    Token::from_hex(&"5a".repeat(Token::BYTES)).unwrap_or_else(|| unreachable!("64 digits"))
}

fn open_descriptors(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Processes that end with this value.
struct Children(Vec<Child>);

impl Children {
    fn succeed(&mut self) -> Result<(), String> {
        for child in &mut self.0 {
            let status = child.wait().map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("a process of guests ended with {status}"));
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended cannot be ended again.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
