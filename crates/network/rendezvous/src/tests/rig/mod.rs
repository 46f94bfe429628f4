//! Processes of a run as threads of a test.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use launcher::Address;
use rendezvous::{
    Control, Identity, Introduction, Listening, Message, ProcessEntry, RendezvousError, SealedStream, TextHash, Times,
    Token, meet,
};
use session::Service;

/// Deadlines that a test waits for.
pub const QUICK: Times = Times { rendezvous: Duration::from_secs(1), heartbeat: Duration::from_secs(60) };
/// Deadlines that pass only where something is wrong.
pub const LONG: Duration = Duration::from_secs(60);

pub fn token() -> Token {
    Token::from_hex(&"5a".repeat(32)).expect("64 digits")
}

pub fn address(port: u16) -> Address {
    Address { host: "127.0.0.1".into(), port }
}

/// An address at which nothing listens.
pub fn free_address() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    address(listener.local_addr().expect("an address").port())
}

pub fn introduction(process: usize, processes: usize) -> Introduction {
    let entry = ProcessEntry { process, host: format!("h{}", process % 2), ranks: vec![2 * process, 2 * process + 1] };
    let identity = Identity {
        version: "0.1.0".into(),
        binary: 1,
        run_file: 2,
        program: 3,
        text: TextHash::Read(4),
        inputs: BTreeMap::from([("weights file".into(), 5)]),
    };
    Introduction { entry, processes, identity }
}

/// A process that has introduced itself, by hand.
pub fn introduced(address: &Address, introduction: Introduction) -> SealedStream {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).expect("connected");
    let mut stream =
        SealedStream::connect(stream, &token(), Service::Meeting, Instant::now() + LONG).expect("the same token");
    stream.send(&Message::Introduction(introduction)).expect("sent");
    stream
}

/// Processes that are about to meet.
pub struct Meeting {
    pub introductions: Vec<Introduction>,
    pub times: Times,
    listening: Listening,
}

impl Meeting {
    pub fn of(processes: usize) -> Meeting {
        let introductions = (0..processes).map(|process| introduction(process, processes)).collect();
        let listening = Listening::bind(&address(0)).expect("a free port");
        Meeting { introductions, times: QUICK, listening }
    }

    pub fn address(&self) -> Address {
        address(self.listening.local_address().port())
    }

    /// The outcome of each process, in the order of the introductions; the first is process 0.
    pub fn run(self) -> Vec<Result<Control, RendezvousError>> {
        let (address, times) = (self.address(), self.times);
        let mut introductions = self.introductions.into_iter();
        let first = introductions.next().expect("process 0");
        let listening = self.listening;
        std::thread::scope(|scope| {
            let first = scope.spawn(move || listening.meet(&token(), first, times));
            let address = &address;
            let others: Vec<_> = introductions
                .map(|introduction| scope.spawn(move || meet(Some(address), &token(), introduction, times)))
                .collect();
            std::iter::once(first).chain(others).map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    /// The control channels of all processes, which agree, however long they take.
    pub fn met(mut self) -> Vec<Control> {
        self.times.rendezvous = LONG;
        self.run().into_iter().map(|met| met.expect("met")).collect()
    }
}

/// Ends all processes without a failure.
pub fn finish(controls: Vec<Control>) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = controls.into_iter().map(|control| scope.spawn(move || control.finish(LONG))).collect();
        for thread in threads {
            thread.join().expect("no panic").expect("an end without a failure");
        }
    });
}
