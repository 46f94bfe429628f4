//! Opening the part of a world that lives in one process.

use super::connection::{CREDIT_BYTES, Connection};
use super::frame::PIECE_BYTES;
use super::gate::{Admitted, Gate, LOCAL_LISTENER, PENDING, Refusals, TCP_LISTENER};
use super::input::BUFFER_BYTES;
use super::mpi_route::Tags;
use super::network::Network;
use super::pieces::Pieces;
use super::process_map::{Listeners, Process, ProcessMap, WorldToken};
use super::role::Role;
use super::sockets::{self, Sockets, wait};
use crate::error::AbortCause;
use crate::threads::remote::Remote;
use crate::threads::world::World;
use crate::threads::{ThreadTransport, WorldFailure};
use crate::transport::Timeouts;
use mesh::Rank;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use session::{Opener, Session};
use std::io::{self, ErrorKind::TimedOut};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Places for pieces in a process, at least.
const LEAST_PIECES: usize = 64;

/// Longest time of one attempt to connect, and between two looks whether the run continues.
const ATTEMPT: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(100);

/// A process as a member of a world of several.
#[derive(Debug)]
pub struct WorldMember {
    /// Its number in the process map.
    pub process: usize,
    /// All processes.
    pub process_map: ProcessMap,
    /// Its listeners; those that the process map names.
    pub listeners: Listeners,
    /// The secret of the world.
    pub token: WorldToken,
    /// Lanes of each rank.
    pub num_lanes: NonZeroUsize,
    /// Deadlines of the world; opening has `wait` in all.
    pub timeouts: Timeouts,
}

/// The part of a world that lives in this process.
pub struct LocalRanks {
    /// The ends of its ranks, by lane, then in rank order.
    pub ends: Vec<Vec<ThreadTransport>>,
    /// The failure of the world.
    pub failure: WorldFailure,
    /// Connections that were refused.
    pub refusals: Arc<Refusals>,
}

/// Why a world does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The number of the process.
    #[error("process {process} must be one of the {processes} of the process map")]
    NoSuchProcess {
        /// The number.
        process: usize,
        /// How many there are.
        processes: usize,
    },
    /// A process that another one has to reach listens nowhere that both can reach.
    #[error("{process} must listen where {by} reaches it; give it a TCP address, or a local one on the same machine")]
    NoAddress {
        /// The process that is to be reached.
        process: String,
        /// The process that needs it.
        by: String,
    },
    /// A connection to another process failed.
    #[error(
        "{process} is not reached at {address}: {source}; see whether it still runs, and whether a firewall lets it"
    )]
    Connect {
        /// The process.
        process: String,
        /// Its address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another process refused the connection.
    #[error("{process} {reason}")]
    Refused {
        /// The process.
        process: String,
        /// Its reason, as a clause.
        reason: String,
    },
    /// More ranks than MPI has tags for.
    #[error("run.transport = \"mpi\" has {tags} tags and needs {places}; use more ranks per process, or \"tcp\"")]
    Tags {
        /// Tags that a world needs.
        places: usize,
        /// Tags that every library has.
        tags: u32,
    },
    /// A library of MPI that opens no communicator.
    #[error(transparent)]
    Mpi(#[from] mpi::EndpointError),
    /// The run ended meanwhile, for this reason.
    #[error("{0}")]
    Ended(String),
    /// Processes that did not come.
    #[error(
        "after {waited_ms} ms there is no connection with {}; see what they do, or raise run.timeout_seconds = {}",
        missing.join("; "), setting.as_secs_f32()
    )]
    Missing {
        /// The processes.
        missing: Vec<String>,
        /// How long this process waited.
        waited_ms: u64,
        /// `run.timeout_seconds`, see [`Timeouts::setting`].
        setting: Duration,
    },
    /// The system refuses memory, a descriptor or a thread.
    #[error("the connections of process {process} need {what}: {source}")]
    System {
        /// The process.
        process: usize,
        /// The resource.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Places for pieces of process `process`.
pub(super) fn num_pieces(process_map: &ProcessMap, process: usize) -> usize {
    let own = process_map.processes().get(process).map_or(0, |process| process.ranks.len());
    // A receive from all ranks of other processes needs a piece of each at once; with two, one row is folded while the
    // next comes.
    LEAST_PIECES.max(2 * process_map.world_size().saturating_sub(own))
}

/// Bytes that process `process` of a process map allocates for what comes from other processes: places for pieces, and
/// for each connection a buffer and small messages that are not read yet. It is all of it, however much is sent.
pub fn receive_memory_bytes(process_map: &ProcessMap, process: usize) -> usize {
    let peers = process_map.processes().len().saturating_sub(1);
    if peers == 0 {
        return 0;
    }
    num_pieces(process_map, process) * PIECE_BYTES + peers * (BUFFER_BYTES + CREDIT_BYTES)
}

/// Connects this process with all others of the world and returns the ends of its ranks. Every process of the process
/// map has to call it; the call returns when all connections are open.
///
/// Processes whose local addresses name one machine share memory; all others talk over TCP. A process connects to those
/// of lower numbers. One thread per process moves the bytes of all connections. The last end that is dropped waits
/// until other processes have read its messages, at most for the deadline.
///
/// # Errors
/// See [`OpenError`]; each names the process.
pub fn open(member: WorldMember) -> Result<LocalRanks, OpenError> {
    open_unless(member, &|| None)
}

/// Returns the same as [`open`], until `ended` returns the reason for which the run has ended.
///
/// # Errors
/// See [`OpenError`].
pub fn open_unless(member: WorldMember, ended: &dyn Fn() -> Option<String>) -> Result<LocalRanks, OpenError> {
    let WorldMember { process, process_map, listeners, token, num_lanes, timeouts } = member;
    let num_lanes = num_lanes.get();
    let processes = process_map.processes().len();
    let Some(own) = process_map.processes().get(process) else {
        return Err(OpenError::NoSuchProcess { process, processes });
    };
    let mut is_local = vec![false; process_map.world_size()];
    own.ranks.iter().for_each(|rank| is_local[rank.0] = true);
    if processes == 1 {
        let world = Arc::new(World::new(&is_local, num_lanes, timeouts, None));
        let (ends, failure) = (ThreadTransport::ends(&world), WorldFailure::new(world));
        return Ok(LocalRanks { ends, failure, refusals: Arc::default() });
    }
    let system = |what| move |source: io::Error| OpenError::System { process, what, source };
    let count = u32::try_from(num_pieces(&process_map, process)).unwrap_or(u32::MAX);
    let pieces = Pieces::new(count).map_err(system("memory for pieces"))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| system("a descriptor")(error.into()))?;
    let tags = listeners.mpi.as_ref().map(|endpoint| mpi_tags(endpoint, &process_map)).transpose()?;
    let mpi = tags.as_ref().map(|tags| Arc::clone(tags.endpoint()));
    let mut gate = Gate::new(process, process_map.clone(), token, num_lanes, listeners, (Arc::clone(&pieces), tags));
    let refusals = gate.refusals();
    let (connections, openers) = establish(process, &process_map, (&mut gate, &epoll), timeouts, ended)?;
    let role = Role::new(epoll).map_err(|error| system("a descriptor")(error.into()))?;
    let network = Network::new(process_map, connections, pieces, mpi.clone(), role);
    let remote: Arc<dyn Remote> = Arc::clone(&network) as _;
    let world = Arc::new(World::new(&is_local, num_lanes, timeouts, Some(remote)));
    network.offer_memory();
    let sockets = Sockets::new(gate, Arc::clone(&network), Arc::clone(&world), openers);
    let sockets = sockets.map_err(|error| system("to watch its sockets")(error.into()))?;
    network.role.set(Some(sockets));
    let (its_network, its_world) = (Arc::clone(&network), Arc::clone(&world));
    let work = move || sockets::run(&its_network, &its_world);
    let thread = std::thread::Builder::new().name("sockets".into()).spawn(work);
    network.keep_thread(thread.map_err(system("a thread"))?);
    if let Some(mpi) = mpi {
        report_failures_of(&mpi, process, &network, &world);
    }
    Ok(LocalRanks { ends: ThreadTransport::ends(&world), failure: WorldFailure::new(world), refusals })
}

/// Tags of MPI for the places of every process of a world.
fn mpi_tags(endpoint: &Arc<mpi::Endpoint>, process_map: &ProcessMap) -> Result<Tags, OpenError> {
    let places = (0..process_map.processes().len()).map(|process| num_pieces(process_map, process)).max();
    let places = places.unwrap_or(LEAST_PIECES);
    Tags::of_next_world(endpoint, places).ok_or(OpenError::Tags { places, tags: mpi::IDLE_TAG })
}

/// A failure of the library is one of the world.
fn report_failures_of(mpi: &mpi::Endpoint, own: usize, network: &Arc<Network>, world: &Arc<World>) {
    let (network, world) = (Arc::downgrade(network), Arc::downgrade(world));
    mpi.on_failure(move |failure| {
        let (Some(network), Some(world)) = (network.upgrade(), world.upgrade()) else { return };
        let process_map = network.process_map();
        let process = failure.peer.unwrap_or(own);
        let first = process_map.processes().get(process).and_then(|process| process.ranks.first());
        let description = format!("{} {}", process_map.name(process), failure.description);
        world.abort(AbortCause { rank: first.copied().unwrap_or(Rank(0)), description });
    });
}

/// By process: its connection, and what opens its frames; none for this one.
type Connections = (Vec<Option<Arc<Connection>>>, Vec<Option<Opener>>);

/// Connects to the processes of lower numbers and waits for the others.
fn establish(
    own: usize,
    process_map: &ProcessMap,
    (gate, epoll): (&mut Gate, &OwnedFd),
    timeouts: Timeouts,
    ended: &dyn Fn() -> Option<String>,
) -> Result<Connections, OpenError> {
    let (started, wait_for_all) = (Instant::now(), timeouts.wait);
    let system =
        |error: rustix::io::Errno| OpenError::System { process: own, what: "its sockets", source: error.into() };
    gate.register(epoll.as_fd()).map_err(system)?;
    let processes = process_map.processes().len();
    let mut connections: Vec<Option<Arc<Connection>>> = vec![None; processes];
    let mut openers: Vec<Option<Opener>> = (0..processes).map(|_| None).collect();
    let mut next = 0;
    loop {
        ended().map_or(Ok(()), |reason| Err(OpenError::Ended(reason)))?;
        let left = wait_for_all.saturating_sub(started.elapsed());
        if next < own {
            match connect_to(own, next, process_map, left.clamp(Duration::from_millis(1), ATTEMPT)) {
                Err(OpenError::Connect { source, .. }) if source.kind() == TimedOut && left > ATTEMPT => {}
                connected => {
                    gate.introduce(epoll.as_fd(), next, connected?).map_err(system)?;
                    next += 1;
                }
            }
        } else if gate.missing().next().is_none() {
            return Ok((connections, openers));
        } else if left.is_zero() {
            let missing = gate.missing().map(|process| process_map.name(process)).collect();
            let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(OpenError::Missing { missing, waited_ms, setting: timeouts.setting() });
        }
        // A process that is asked for its proof answers before it connects to the next one.
        let timeout = gate.next_deadline().map_or(left, |deadline| deadline.min(left)).min(GLANCE);
        let timeout = if next < own { Duration::ZERO } else { timeout };
        for event in wait(epoll, Some(timeout)).map_err(system)? {
            match event {
                TCP_LISTENER | LOCAL_LISTENER => gate.accept(epoll.as_fd(), event),
                event if event & PENDING != 0 => {
                    let admitted = gate.read(epoll.as_fd(), event).map_err(|refused| OpenError::Refused {
                        process: process_map.name(refused.process),
                        reason: refused.reason,
                    })?;
                    if let Some(Admitted { process, socket, piece_path, session }) = admitted {
                        let Session { sealer, opener } = session;
                        connections[process] = Some(Arc::new(Connection::new(process, socket, piece_path, sealer)));
                        openers[process] = Some(opener);
                    }
                }
                _ => {}
            }
        }
        gate.expire();
    }
}

/// A connected socket to `process`, which does not block.
fn connect_to(own: usize, process: usize, process_map: &ProcessMap, wait: Duration) -> Result<OwnedFd, OpenError> {
    let failed = |address: String| {
        let process = process_map.name(process);
        move |source: io::Error| OpenError::Connect { process, address, source }
    };
    let Process { tcp, local, .. } = &process_map.processes()[process];
    match (local, tcp) {
        (Some(local), _) if process_map.share_memory(own, process) => {
            let address = format!("the local socket {}", String::from_utf8_lossy(&local.name));
            connect_local(&local.name, wait).map_err(failed(address))
        }
        (_, Some(tcp)) => {
            let connected = TcpStream::connect_timeout(tcp, wait).and_then(|stream| {
                stream.set_nonblocking(true)?;
                Ok(OwnedFd::from(stream))
            });
            connected.map_err(failed(tcp.to_string()))
        }
        (_, None) => Err(OpenError::NoAddress { process: process_map.name(process), by: process_map.name(own) }),
    }
}

fn connect_local(name: &[u8], wait: Duration) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The deadline of a connection to a listener whose queue is full.
    set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
