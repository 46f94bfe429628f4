//! The place where ranks meet: a listener of the process that has made the name of a group. It has the calls of all
//! ranks, computes their results and sends them back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Result;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sync::lock;

use super::collective::{Kind, Request, results};
use super::launches::Counts;
use super::wire::{FromRank, Known, ToRank};

/// The part of a rank in a call.
struct Part {
    ticket: u64,
    request: Request,
    known: Known,
    launched: Counts,
    bytes: Vec<u8>,
}

impl Part {
    /// Whether two GPUs have launched as many collectives of each communicator that both are in: with another order,
    /// each can hold the multiprocessors that the other one's call waits for.
    fn is_in_order_of(&self, other: &Part, key: u64) -> bool {
        let shared = self.launched.iter().filter(|(communicator, _)| **communicator != key);
        shared
            .into_iter()
            .all(|(communicator, count)| other.launched.get(communicator).is_none_or(|others| others == count))
    }
}

/// Which call parts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Collective(u64),
    /// From a rank to another one.
    Message(usize, usize, u64),
}

#[derive(Default)]
struct Group {
    ranks: usize,
    /// Messages to ranks. A thread of each writes them, so that nobody waits for a rank here.
    connections: BTreeMap<usize, Sender<ToRank>>,
    finished: BTreeSet<usize>,
    left: BTreeSet<usize>,
    is_misused: bool,
    calls: BTreeMap<Place, BTreeMap<usize, Part>>,
}

type Groups = Arc<Mutex<HashMap<u64, Arc<Mutex<Group>>>>>;

/// Starts a hub; its port.
pub fn start() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let groups = Groups::default();
    std::thread::Builder::new().name("nccl hub".into()).spawn(move || {
        for connection in listener.incoming().flatten() {
            let groups = Arc::clone(&groups);
            // Without a thread the rank's connection closes, which it reports.
            let _ = std::thread::Builder::new().name("nccl hub".into()).spawn(move || serve(&groups, connection));
        }
    })?;
    Ok(port)
}

/// Serves a rank to its end. A connection that ends early is a rank that has left.
fn serve(groups: &Groups, mut connection: TcpStream) {
    let Ok(FromRank::Hello { key, ranks, rank }) = FromRank::read(&mut connection) else { return };
    let Ok(writer) = connection.set_nodelay(true).and_then(|()| connection.try_clone()) else { return };
    let (messages, all) = channel();
    if std::thread::Builder::new().name("nccl hub".into()).spawn(move || tell(&all, writer)).is_err() {
        return;
    }
    let group = Arc::clone(lock(groups).entry(key).or_default());
    lock(&group).join(ranks, rank, messages);
    loop {
        match FromRank::read(&mut connection) {
            Ok(FromRank::Call { ticket, number, request, known, launched, bytes }) => {
                let part = Part { ticket, request, known, launched, bytes };
                let whole = lock(&group).add(rank, (key, number), part);
                let Some(parts) = whole else { continue };
                // Results of different calls come in an order of their own.
                let mixed = (number ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
                std::thread::sleep(Duration::from_micros(100 * mixed));
                lock(&group).answer(parts);
            }
            Ok(FromRank::Finish) => lock(&group).finish(rank),
            Ok(FromRank::Misuse) => lock(&group).misuse(),
            Ok(FromRank::Leave | FromRank::Hello { .. }) | Err(_) => break,
        }
    }
    lock(&group).leave(rank);
}

/// Tells a rank everything.
fn tell(all: &Receiver<ToRank>, mut connection: TcpStream) {
    while let Ok(message) = all.recv() {
        if message.write(&mut connection).is_err() {
            // A rank that has left.
            return;
        }
    }
}

impl Group {
    fn tell(&self, rank: usize, message: &ToRank) {
        if let Some(connection) = self.connections.get(&rank) {
            // One that is gone is a rank that has left.
            let _ = connection.send(message.clone());
        }
    }

    fn tell_all(&self, message: &ToRank) {
        self.connections.keys().for_each(|rank| self.tell(*rank, message));
    }

    fn join(&mut self, ranks: usize, rank: usize, connection: Sender<ToRank>) {
        let is_first = self.connections.is_empty();
        self.ranks = if is_first { ranks } else { self.ranks };
        let fits = rank < ranks && ranks == self.ranks && !self.connections.contains_key(&rank);
        if !fits {
            // A rank that does not belong here hears so, and so do the others.
            let _ = connection.send(ToRank::Misused);
            return self.misuse();
        }
        self.connections.insert(rank, connection);
        if self.is_misused {
            self.tell(rank, &ToRank::Misused);
        } else if !self.left.is_empty() {
            self.tell(rank, &ToRank::PeerHasLeft);
        } else if self.connections.len() == self.ranks {
            self.tell_all(&ToRank::Met);
        }
    }

    /// Adds a rank's part; all parts of the call once they have come.
    fn add(&mut self, rank: usize, (key, number): (u64, u64), part: Part) -> Option<BTreeMap<usize, Part>> {
        let (place, members) = match part.request.kind.ends(rank) {
            Some([from, to]) => (Place::Message(from, to, number), 2),
            None => (Place::Collective(number), self.ranks),
        };
        let is_own = place == Place::Message(rank, rank, number);
        let parts = self.calls.entry(place).or_default();
        let is_out_of_order = parts.values().any(|other| !other.is_in_order_of(&part, key));
        if is_out_of_order {
            eprintln!("NCCL in software: ranks launch collectives of two communicators in different orders");
        }
        if is_own || is_out_of_order || parts.values().any(|other| !other.request.agrees(&part.request)) {
            self.misuse();
            return None;
        }
        parts.insert(rank, part);
        if parts.len() < members { None } else { self.calls.remove(&place) }
    }

    fn misuse(&mut self) {
        self.is_misused = true;
        self.tell_all(&ToRank::Misused);
    }

    /// Sends what each rank of a call writes.
    fn answer(&self, mut parts: BTreeMap<usize, Part>) {
        if self.is_misused {
            return;
        }
        // Who has a result knows what all who took part have known.
        let mut known = Known::new();
        for (gpu, read) in parts.values().flat_map(|part| &part.known) {
            let last = known.entry(*gpu).or_default();
            *last = (*last).max(*read);
        }
        let written = |ticket: u64, bytes: Vec<u8>| ToRank::Written { ticket, known: known.clone(), bytes };
        let Some(request) = parts.values().next().map(|part| part.request) else { return };
        if matches!(request.kind, Kind::Send(_) | Kind::Receive(_)) {
            let sent = parts.values_mut().find(|part| matches!(part.request.kind, Kind::Send(_)));
            let bytes = sent.map(|part| std::mem::take(&mut part.bytes)).unwrap_or_default();
            for (rank, part) in parts {
                let is_send = matches!(part.request.kind, Kind::Send(_));
                self.tell(rank, &written(part.ticket, if is_send { vec![] } else { bytes.clone() }));
            }
            return;
        }
        let bytes: Vec<Vec<u8>> = parts.values_mut().map(|part| std::mem::take(&mut part.bytes)).collect();
        for ((rank, part), bytes) in parts.into_iter().zip(results(&request, &bytes)) {
            self.tell(rank, &written(part.ticket, bytes));
        }
    }

    fn finish(&mut self, rank: usize) {
        self.finished.insert(rank);
        if self.finished.len() == self.ranks {
            self.tell_all(&ToRank::Over);
        }
    }

    fn leave(&mut self, rank: usize) {
        if self.finished.len() == self.ranks || !self.left.insert(rank) {
            return;
        }
        self.tell_all(&ToRank::PeerHasLeft);
    }
}
