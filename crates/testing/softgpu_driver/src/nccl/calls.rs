//! The functions of the library.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use gpu::{DevicePointer, DriverError, DriverErrorKind, StreamHandle};
use softgpu::SoftGpu;

use super::collective::{Call, Element, Kind, Request};
use super::hub;
use super::launches::{Launches, Submission, launch};
use super::member::{Ends, Member, Order, Refusal, State, UnderWay};
use crate::context::{Context, entered};
use crate::handles::Handles;

/// 2.19.0, the oldest that serves.
const VERSION: c_int = 21_900;

/// A result of the library: 0 is success.
type Status = u32;

const SUCCESS: Status = 0;
const UNHANDLED_CUDA_ERROR: Status = 1;
const SYSTEM_ERROR: Status = 2;
const INVALID_ARGUMENT: Status = 4;
const INVALID_USAGE: Status = 5;
const REMOTE_ERROR: Status = 6;
const IN_PROGRESS: Status = 7;

/// The only reduction.
const SUM: c_uint = 0;

/// Names a group: the port of its hub, and its key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Id {
    bytes: [u8; 128],
}

/// The first settings of a communicator.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl Id {
    fn new(port: u16, key: u64) -> Id {
        let mut bytes = [0; 128];
        bytes[..2].copy_from_slice(&port.to_le_bytes());
        bytes[2..10].copy_from_slice(&key.to_le_bytes());
        Id { bytes }
    }

    fn port_and_key(&self) -> (u16, u64) {
        let mut key = [0; 8];
        key.copy_from_slice(&self.bytes[2..10]);
        (u16::from_le_bytes([self.bytes[0], self.bytes[1]]), u64::from_le_bytes(key))
    }
}

/// The hub of this context, and ranks in groups.
#[derive(Debug, Default)]
struct Groups {
    /// Its port, where it could be started.
    hub: OnceLock<Option<u16>>,
    ids: Mutex<u64>,
    /// By GPU.
    ends: Mutex<HashMap<usize, Ends>>,
    members: Mutex<Handles<Arc<Member>>>,
}

static GROUPS: LazyLock<Groups> = LazyLock::new(Groups::default);

thread_local! {
    /// How many groups of calls this thread has open, and the calls.
    static OPEN: RefCell<(usize, Vec<Submission>)> = const { RefCell::new((0, vec![])) };
}

impl From<State> for Status {
    fn from(state: State) -> Status {
        match state {
            State::Met => SUCCESS,
            State::Continues => IN_PROGRESS,
            State::Failed => UNHANDLED_CUDA_ERROR,
            State::PeerHasLeft => REMOTE_ERROR,
            State::Misused => INVALID_USAGE,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::Group(state @ (State::Met | State::Failed | State::PeerHasLeft | State::Misused)) => state.into(),
            Refusal::Gpu(error) if error.kind == DriverErrorKind::InvalidArgument => INVALID_ARGUMENT,
            Refusal::Gpu(_) => UNHANDLED_CUDA_ERROR,
            // A call while the last one is in progress is an error, and does not continue.
            Refusal::Misused | Refusal::Group(State::Continues) => INVALID_USAGE,
            Refusal::Threads => SYSTEM_ERROR,
        }
    }
}

/// Writes a value where a caller asks for it.
///
/// # Safety
/// `to` is null or a place for a value.
unsafe fn put<T>(to: *mut T, value: T) -> Status {
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
    SUCCESS
}

fn member(communicator: u64) -> Option<Arc<Member>> {
    sync::lock(&GROUPS.members).get(communicator).cloned()
}

/// The ends of ranks of a GPU, which continues by itself from here on.
fn ends(gpu: &Arc<SoftGpu>, seed: u64) -> Result<Ends, DriverError> {
    let (under_way, own) = (Arc::<UnderWay>::default(), Arc::clone(gpu));
    let order = Arc::new(Order::new(Arc::clone(gpu))?);
    let ends = Ends { under_way: Arc::clone(&under_way), order, launches: Arc::new(Launches::new(seed)) };
    // Without the thread the GPU continues when it is asked.
    let _ = std::thread::Builder::new().name("nccl GPU".into()).spawn(move || under_way.advance(&own));
    Ok(ends)
}

/// The ends of a GPU, from the first call on.
fn ends_of(context: &Context) -> Result<Ends, DriverError> {
    let mut all = sync::lock(&GROUPS.ends);
    if let Some(ends) = all.get(&context.ordinal) {
        return Ok(ends.clone());
    }
    let seed = RandomState::new().hash_one(context.ordinal);
    let ends = ends(&context.gpu, seed)?;
    all.insert(context.ordinal, ends.clone());
    Ok(ends)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(version, VERSION) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(status: Status) -> *const c_char {
    let text = match status {
        SUCCESS => c"no error",
        UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        SYSTEM_ERROR => c"unhandled system error",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: u64) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut Id) -> Status {
    let Some(port) = *GROUPS.hub.get_or_init(|| hub::start().ok()) else { return SYSTEM_ERROR };
    let mut ids = sync::lock(&GROUPS.ids);
    *ids += 1;
    // Another hub of the port, before or after this one, has other keys.
    let key = RandomState::new().hash_one((*ids, std::process::id()));
    // SAFETY: the interface asks for a place for 128 bytes.
    unsafe { put(id, Id::new(port, key)) }
}

/// Whether calls may wait for other ranks: they must not, as threads that wait for each other in calls would hang.
///
/// # Safety
/// `config` is null or settings.
unsafe fn is_blocking(config: *const Config) -> bool {
    // SAFETY: as the caller promises.
    unsafe { config.as_ref() }.is_none_or(|config| config.blocking != 0)
}

/// Gives a rank its place in a group.
///
/// # Safety
/// `communicator` is null or a place for a handle.
unsafe fn keep_seat(communicator: *mut u64, member: Result<Arc<Member>, std::io::Error>) -> Status {
    let Ok(member) = member else { return SYSTEM_ERROR };
    let state = member.state();
    let handle = sync::lock(&GROUPS.members).add(member);
    // SAFETY: as the caller promises.
    let put = unsafe { put(communicator, handle) };
    if put == SUCCESS { state.into() } else { put }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut u64,
    ranks: c_int,
    id: Id,
    rank: c_int,
    config: *mut Config,
) -> Status {
    let Ok(context) = entered() else { return UNHANDLED_CUDA_ERROR };
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else { return INVALID_ARGUMENT };
    // SAFETY: the interface asks for settings or null.
    if rank >= ranks || unsafe { is_blocking(config) } {
        return INVALID_ARGUMENT;
    }
    let Ok(ends) = ends_of(context) else { return UNHANDLED_CUDA_ERROR };
    let member = Member::take(id.port_and_key(), (ranks, rank), ends);
    // SAFETY: the interface asks for a place for a handle.
    unsafe { keep_seat(communicator, member) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(communicator: u64) -> Status {
    member(communicator).map_or(INVALID_ARGUMENT, |member| member.finish().into())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(communicator: u64) -> Status {
    let mut members = sync::lock(&GROUPS.members);
    let Some(member) = members.get(communicator) else { return INVALID_ARGUMENT };
    if !member.is_over() {
        return INVALID_USAGE;
    }
    member.disconnect();
    members.remove(communicator);
    SUCCESS
}

/// Refused alone while another communicator of the GPU has calls under way: its peers may wait there, and this rank
/// would wait for them here. In one group all end together.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(communicator: u64) -> Status {
    let Some(aborted) = member(communicator) else { return INVALID_ARGUMENT };
    let is_in_group = OPEN.with(|open| open.borrow().0 > 0);
    let waits = |other: &Arc<Member>| !Arc::ptr_eq(other, &aborted) && other.shares_gpu(&aborted) && other.is_waiting();
    let others_wait = || sync::lock(&GROUPS.members).iter().any(waits);
    if !is_in_group && others_wait() {
        aborted.misuse("a communicator is aborted alone while others have calls under way");
        return INVALID_USAGE;
    }
    aborted.leave();
    sync::lock(&GROUPS.members).remove(communicator);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(communicator: u64, state: *mut Status) -> Status {
    let Some(member) = member(communicator) else { return INVALID_ARGUMENT };
    let _in_call = member.enter();
    // SAFETY: the interface asks for a place for a result.
    unsafe { put(state, member.state().into()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Status {
    OPEN.with(|open| open.borrow_mut().0 += 1);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> Status {
    let calls = OPEN.with(|open| {
        let mut open = open.borrow_mut();
        open.0 = open.0.checked_sub(1)?;
        Some(if open.0 == 0 { std::mem::take(&mut open.1) } else { vec![] })
    });
    calls.map_or(INVALID_USAGE, submitted)
}

fn submitted(calls: Vec<Submission>) -> Status {
    if calls.is_empty() {
        return SUCCESS;
    }
    launch(calls).map_or_else(Status::from, |()| IN_PROGRESS)
}

/// Submits a call, or keeps it until the group of calls ends that this thread has open.
fn call(
    name: &'static str,
    (communicator, stream): (u64, u64),
    kind: Kind,
    (from, to): (u64, u64),
    (count, element): (usize, c_uint),
) -> Status {
    let (Some(member), Some(element)) = (member(communicator), Element::of(element)) else { return INVALID_ARGUMENT };
    let is_sum = matches!(kind, Kind::AllReduce | Kind::ReduceScatter);
    let ranks = member.ranks();
    let is_of_ranks = kind.ends(0).is_none_or(|ends| ends.iter().all(|rank| *rank < ranks));
    if is_sum && element == Element::Bytes || !is_of_ranks {
        return INVALID_ARGUMENT;
    }
    let request = Request { kind, element, count };
    let call = Call { request, from: DevicePointer(from), to: DevicePointer(to) };
    let submission = Submission { member, name, call, stream: StreamHandle(stream) };
    let now = OPEN.with(|open| {
        let mut open = open.borrow_mut();
        if open.0 > 0 {
            open.1.push(submission);
            return None;
        }
        Some(vec![submission])
    });
    now.map_or(SUCCESS, submitted)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_uint,
    reduction: c_uint,
    communicator: u64,
    stream: u64,
) -> Status {
    if reduction != SUM {
        return INVALID_ARGUMENT;
    }
    let places = (from.addr() as u64, to.addr() as u64);
    call("ncclAllReduce", (communicator, stream), Kind::AllReduce, places, (count, element))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_uint,
    reduction: c_uint,
    communicator: u64,
    stream: u64,
) -> Status {
    if reduction != SUM {
        return INVALID_ARGUMENT;
    }
    let places = (from.addr() as u64, to.addr() as u64);
    call("ncclReduceScatter", (communicator, stream), Kind::ReduceScatter, places, (count, element))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_uint,
    communicator: u64,
    stream: u64,
) -> Status {
    let places = (from.addr() as u64, to.addr() as u64);
    call("ncclAllGather", (communicator, stream), Kind::AllGather, places, (count, element))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    element: c_uint,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> Status {
    let Ok(peer) = usize::try_from(peer) else { return INVALID_ARGUMENT };
    let place = from.addr() as u64;
    call("ncclSend", (communicator, stream), Kind::Send(peer), (place, place), (count, element))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    element: c_uint,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> Status {
    let Ok(peer) = usize::try_from(peer) else { return INVALID_ARGUMENT };
    let place = to.addr() as u64;
    call("ncclRecv", (communicator, stream), Kind::Receive(peer), (place, place), (count, element))
}
