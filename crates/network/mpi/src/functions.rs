//! The functions of a library, bound by name, and its constants.
//!
//! Every call is here, but for those that begin collectives. `H` is the type of handles: `c_int` with MPICH, an address
//! with the others.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use libloading::os::unix::Library as Loaded;

use crate::abi::{Abi, ThreadLevel};
use crate::collective::{Collective, Collectives};

/// Longest text of a library: `MPI_MAX_LIBRARY_VERSION_STRING` of all of them, which no error text exceeds.
const TEXT_BYTES: usize = 8192;
const SUCCESS: c_int = 0;
/// `MPI_ERR_COMM` in all three ABIs.
const NO_COMMUNICATOR: Code = Code(5);
/// `MPI_UNDEFINED` in all three ABIs: no request is active.
const UNDEFINED: c_int = -32766;

/// A number other than `MPI_SUCCESS` that a function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

fn checked(code: c_int) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(Code(code)) }
}

/// A type of handles.
pub(crate) trait Handle: Copy + Send + 'static {
    /// A value for a place that a function fills.
    const EMPTY: Self;
}

impl Handle for c_int {
    const EMPTY: c_int = 0;
}

impl Handle for usize {
    const EMPTY: usize = 0;
}

/// The constants of a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants<H> {
    world: H,
    pub(crate) byte: H,
    pub(crate) float: H,
    /// `MPI_UINT64_T`, whose sums are modulo 2^64.
    pub(crate) integer: H,
    pub(crate) sum: H,
    errors_return: H,
}

type Text = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type AllReduce<H> = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
type GetCount<H> = unsafe extern "C" fn(*const c_void, H, *mut c_int) -> c_int;
type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Look<H> = unsafe extern "C" fn(c_int, c_int, H, *mut c_int, *mut c_void) -> c_int;
type BeginSend<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type BeginReceive<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type OfGroup<H> = unsafe extern "C" fn(H, c_int, *const c_int, *mut H) -> c_int;
type OpenGroup<H> = unsafe extern "C" fn(H, H, c_int, *mut H) -> c_int;
type TestSome<H> = unsafe extern "C" fn(c_int, *mut H, *mut c_int, *mut c_int, *mut c_void) -> c_int;

/// See the module.
pub(crate) struct Functions<H> {
    abi: Abi,
    constants: Constants<H>,
    init_thread: InitThread,
    initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    library_version: Text,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
    set_error_handler: unsafe extern "C" fn(H, H) -> c_int,
    rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    send: BeginSend<H>,
    receive: BeginReceive<H>,
    test_some: TestSome<H>,
    get_count: GetCount<H>,
    probe: Look<H>,
    all_reduce: AllReduce<H>,
    group_of: unsafe extern "C" fn(H, *mut H) -> c_int,
    group_part: OfGroup<H>,
    open_group: OpenGroup<H>,
    free_group: unsafe extern "C" fn(*mut H) -> c_int,
    free_communicator: unsafe extern "C" fn(*mut H) -> c_int,
    collectives: Collectives<H>,
    /// Communicators that were opened, by number; `None` once they are freed.
    communicators: Vec<Option<H>>,
    /// Messages under way.
    requests: Vec<H>,
    /// The form of each, in the same order.
    forms: Vec<Form>,
    /// For `MPI_Testsome`: indices, and statuses of the ABI's size.
    indices: Vec<c_int>,
    statuses: Vec<u64>,
    /// Last, so that it is dropped after all that points into it. It is never unloaded; see [`Functions::bind`].
    _library: std::mem::ManuallyDrop<Loaded>,
}

/// The symbol `name`.
pub(crate) fn symbol<T: Copy>(library: &Loaded, name: &'static str) -> Result<T, &'static str> {
    // SAFETY: the caller gives the type that the MPI standard declares for the function of this name, or asks for the
    // address of a variable as a number.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|found| *found).map_err(|_| name)
}

impl Functions<c_int> {
    /// The functions of a library with the ABI of MPICH, or the name of one that is missing.
    pub(crate) fn of_mpich(library: Loaded) -> Result<Functions<c_int>, &'static str> {
        let constants = Constants {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            float: 0x4c00_040a,
            integer: 0x4c00_083e,
            sum: 0x5800_0003,
            errors_return: 0x5400_0001,
        };
        Functions::bind(library, Abi::Mpich, constants)
    }
}

impl Functions<usize> {
    /// The functions of a library with the ABI of MPI 5.
    pub(crate) fn of_mpi5(library: Loaded) -> Result<Functions<usize>, &'static str> {
        let constants =
            Constants { world: 0x101, byte: 0x247, float: 0x210, integer: 0x259, sum: 0x21, errors_return: 0x143 };
        Functions::bind(library, Abi::Mpi5, constants)
    }

    /// The functions of Open MPI.
    pub(crate) fn of_open_mpi(library: Loaded) -> Result<Functions<usize>, &'static str> {
        let constants = Constants {
            world: symbol(&library, "ompi_mpi_comm_world")?,
            byte: symbol(&library, "ompi_mpi_byte")?,
            float: symbol(&library, "ompi_mpi_float")?,
            integer: symbol(&library, "ompi_mpi_uint64_t")?,
            sum: symbol(&library, "ompi_mpi_op_sum")?,
            errors_return: symbol(&library, "ompi_mpi_errors_return")?,
        };
        Functions::bind(library, Abi::OpenMpi, constants)
    }
}

impl<H: Handle> Functions<H> {
    /// Libraries of MPI start threads and register functions for the end of the process, so none is unloaded.
    fn bind(library: Loaded, abi: Abi, constants: Constants<H>) -> Result<Functions<H>, &'static str> {
        Ok(Functions {
            abi,
            constants,
            init_thread: symbol(&library, "MPI_Init_thread")?,
            initialized: symbol(&library, "MPI_Initialized")?,
            finalize: symbol(&library, "MPI_Finalize")?,
            library_version: symbol(&library, "MPI_Get_library_version")?,
            error_string: symbol(&library, "MPI_Error_string")?,
            set_error_handler: symbol(&library, "MPI_Comm_set_errhandler")?,
            rank: symbol(&library, "MPI_Comm_rank")?,
            size: symbol(&library, "MPI_Comm_size")?,
            send: symbol(&library, "MPI_Isend")?,
            receive: symbol(&library, "MPI_Irecv")?,
            test_some: symbol(&library, "MPI_Testsome")?,
            get_count: symbol(&library, "MPI_Get_count")?,
            probe: symbol(&library, "MPI_Iprobe")?,
            all_reduce: symbol(&library, "MPI_Allreduce")?,
            group_of: symbol(&library, "MPI_Comm_group")?,
            group_part: symbol(&library, "MPI_Group_incl")?,
            open_group: symbol(&library, "MPI_Comm_create_group")?,
            free_group: symbol(&library, "MPI_Group_free")?,
            free_communicator: symbol(&library, "MPI_Comm_free")?,
            collectives: Collectives::bind(&library)?,
            communicators: Vec::new(),
            requests: Vec::new(),
            forms: Vec::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            _library: std::mem::ManuallyDrop::new(library),
        })
    }
}

/// The purpose of a request. Only the status of a message that was received has a count: MPI leaves it undefined for
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Sent,
    Received,
    Joined,
}

/// A message that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Its place in the list of messages under way.
    pub(crate) index: usize,
    /// The bytes that have come; 0 for a message that was not received.
    pub(crate) len_bytes: usize,
}

/// The calls of a library, over handles of any type. Messages under way are numbered as they were posted; the end of
/// one moves the last into its place, as `Vec::swap_remove` does.
pub(crate) trait Calls: Send {
    /// `MPI_Get_library_version`, which may be called at any time.
    fn version(&self) -> String;

    /// The text of an error.
    fn error_text(&self, code: Code) -> String;

    /// `MPI_Init_thread`, unless somebody else has called it.
    fn init(&self, level: ThreadLevel) -> Result<Option<ThreadLevel>, Code>;

    /// Number of this process, and number of processes.
    fn world(&self) -> Result<(usize, usize), Code>;

    /// `MPI_Finalize`.
    fn finalize(&self) -> Result<(), Code>;

    /// Begins to send.
    ///
    /// # Safety
    /// `bytes` must stay where it is, and unchanged, until the message has ended or no further call is made.
    unsafe fn send(&mut self, peer: c_int, tag: c_int, bytes: *const [u8]) -> Result<(), Code>;

    /// Begins to receive.
    ///
    /// # Safety
    /// `place` must stay where it is, for nobody else's use, until the message has ended or no further call is made.
    unsafe fn receive(&mut self, peer: c_int, tag: c_int, place: *mut [u8]) -> Result<(), Code>;

    /// `MPI_Comm_create_group` of these processes of the world; its number. Only they call it, each with the same
    /// `tag`.
    fn open_communicator(&mut self, processes: &[c_int], tag: c_int) -> Result<usize, Code>;

    /// `MPI_Comm_free`. All processes of the communicator free it, and nobody uses it any more.
    fn free_communicator(&mut self, communicator: usize) -> Result<(), Code>;

    /// Begins `collective` over `memory`, in place. All processes of the communicator make the same calls in the same
    /// order.
    ///
    /// # Safety
    /// `memory` has [`Collective::size_bytes`] and must stay where it is, for nobody else's use, and `collective` must
    /// keep its parts, until the message has ended or no further call is made.
    unsafe fn begin(&mut self, communicator: usize, collective: &Collective, memory: *mut [u8]) -> Result<(), Code>;

    /// Appends the messages that have ended, by descending index.
    fn test(&mut self, done: &mut Vec<Done>) -> Result<(), Code>;

    /// Lets the library work on what it has accepted: a call that finds nothing.
    fn progress(&self, own: c_int, unused_tag: c_int) -> Result<(), Code>;

    /// `MPI_Allreduce` in place, a sum of fp32.
    fn all_reduce_sum(&self, data: &mut [f32]) -> Result<(), Code>;
}

impl<H: Handle> Functions<H> {
    fn note(&mut self, request: H, form: Form) {
        self.requests.push(request);
        self.forms.push(form);
    }

    /// The length of a message.
    ///
    /// # Safety
    /// `status` is that of a message that was received.
    unsafe fn received_bytes(&self, status: *const c_void) -> usize {
        let mut len = 0;
        // SAFETY: the call reads the status (contract of this function) and writes one int.
        let counted = unsafe { (self.get_count)(status, self.constants.byte, &mut len) };
        if counted == SUCCESS { usize::try_from(len).unwrap_or(0) } else { 0 }
    }
}

impl<H: Handle> Calls for Functions<H> {
    fn version(&self) -> String {
        let mut len = 0;
        // SAFETY: the buffer has the bytes that the standard asks for.
        text(|buffer| unsafe { (self.library_version)(buffer, &mut len) })
    }

    fn error_text(&self, code: Code) -> String {
        let mut len = 0;
        // SAFETY: as above; error texts are shorter.
        text(|buffer| unsafe { (self.error_string)(code.0, buffer, &mut len) })
    }

    fn init(&self, level: ThreadLevel) -> Result<Option<ThreadLevel>, Code> {
        let (mut is_initialized, mut provided) = (0, 0);
        // SAFETY: the call may be made at any time and writes one int.
        checked(unsafe { (self.initialized)(&mut is_initialized) })?;
        if is_initialized != 0 {
            return Ok(None);
        }
        // SAFETY: null arguments are allowed since MPI 2; the last is an int to write.
        checked(unsafe { (self.init_thread)(null_mut(), null_mut(), level.number(self.abi), &mut provided) })?;
        // SAFETY: MPI is initialised, and both handles are the library's own constants.
        checked(unsafe { (self.set_error_handler)(self.constants.world, self.constants.errors_return) })?;
        Ok(Some(ThreadLevel::from_number(self.abi, provided).unwrap_or(ThreadLevel::Single)))
    }

    fn world(&self) -> Result<(usize, usize), Code> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised; each call writes one int.
        checked(unsafe { (self.rank)(self.constants.world, &mut rank) })?;
        // SAFETY: as above.
        checked(unsafe { (self.size)(self.constants.world, &mut size) })?;
        Ok((usize::try_from(rank).unwrap_or(0), usize::try_from(size).unwrap_or(0)))
    }

    fn finalize(&self) -> Result<(), Code> {
        // SAFETY: called by the thread that has initialised MPI, once, with no message under way.
        checked(unsafe { (self.finalize)() })
    }

    unsafe fn send(&mut self, peer: c_int, tag: c_int, bytes: *const [u8]) -> Result<(), Code> {
        let Constants { world, byte, .. } = self.constants;
        let (mut request, len) = (H::EMPTY, c_int::try_from(bytes.len()).unwrap_or(c_int::MAX));
        // SAFETY: the caller keeps `bytes`; the request is a place of the ABI's size.
        checked(unsafe { (self.send)(bytes.cast(), len, byte, peer, tag, world, &mut request) })?;
        self.note(request, Form::Sent);
        Ok(())
    }

    unsafe fn receive(&mut self, peer: c_int, tag: c_int, place: *mut [u8]) -> Result<(), Code> {
        let Constants { world, byte, .. } = self.constants;
        let (mut request, len) = (H::EMPTY, c_int::try_from(place.len()).unwrap_or(c_int::MAX));
        // SAFETY: the caller keeps `place` for this message alone; the request is a place of the ABI's size.
        checked(unsafe { (self.receive)(place.cast(), len, byte, peer, tag, world, &mut request) })?;
        self.note(request, Form::Received);
        Ok(())
    }

    fn test(&mut self, done: &mut Vec<Done>) -> Result<(), Code> {
        let (count, stride) = (self.requests.len(), self.abi.status_bytes());
        self.indices.resize(count, 0);
        self.statuses.resize((count * stride).div_ceil(size_of::<u64>()), 0);
        let (incount, mut outcount) = (c_int::try_from(count).unwrap_or(c_int::MAX), 0);
        let statuses: *mut c_void = self.statuses.as_mut_ptr().cast();
        let (requests, indices) = (self.requests.as_mut_ptr(), self.indices.as_mut_ptr());
        // SAFETY: three arrays of `count` entries of the ABI's sizes; statuses are aligned for the widest of their
        // fields.
        checked(unsafe { (self.test_some)(incount, requests, &mut outcount, indices, statuses) })?;
        let ended = if outcount == UNDEFINED { 0 } else { usize::try_from(outcount).unwrap_or(0) };
        let first = done.len();
        for (number, index) in self.indices.iter().take(ended).enumerate() {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let len_bytes = match self.forms[index] {
                Form::Sent | Form::Joined => 0,
                // SAFETY: the library has written the status of a message that was received at this place.
                Form::Received => unsafe { self.received_bytes(statuses.byte_add(number * stride)) },
            };
            done.push(Done { index, len_bytes });
        }
        let ended = &mut done[first..];
        ended.sort_unstable_by_key(|done| std::cmp::Reverse(done.index));
        for done in ended {
            self.requests.swap_remove(done.index);
            self.forms.swap_remove(done.index);
        }
        Ok(())
    }

    fn open_communicator(&mut self, processes: &[c_int], tag: c_int) -> Result<usize, Code> {
        let (mut all, mut part, mut opened) = (H::EMPTY, H::EMPTY, H::EMPTY);
        let count = c_int::try_from(processes.len()).unwrap_or(c_int::MAX);
        // SAFETY: MPI is initialised; each call writes one handle, and the list has `count` entries.
        checked(unsafe { (self.group_of)(self.constants.world, &mut all) })?;
        // SAFETY: as above.
        checked(unsafe { (self.group_part)(all, count, processes.as_ptr(), &mut part) })?;
        // SAFETY: as above.
        checked(unsafe { (self.open_group)(self.constants.world, part, tag, &mut opened) })?;
        for mut group in [all, part] {
            // SAFETY: both handles are those of groups that nothing uses any more.
            checked(unsafe { (self.free_group)(&mut group) })?;
        }
        // SAFETY: the communicator has just been opened, and the other handle is the library's own constant.
        checked(unsafe { (self.set_error_handler)(opened, self.constants.errors_return) })?;
        self.communicators.push(Some(opened));
        Ok(self.communicators.len() - 1)
    }

    fn free_communicator(&mut self, communicator: usize) -> Result<(), Code> {
        let freed = self.communicators.get_mut(communicator).and_then(Option::take);
        let mut freed = freed.ok_or(NO_COMMUNICATOR)?;
        // SAFETY: the communicator was opened and is not in the list any more, so it is freed once.
        checked(unsafe { (self.free_communicator)(&mut freed) })
    }

    unsafe fn begin(&mut self, communicator: usize, collective: &Collective, memory: *mut [u8]) -> Result<(), Code> {
        let communicator = self.communicators.get(communicator).copied().flatten().ok_or(NO_COMMUNICATOR)?;
        let (mut request, in_place) = (H::EMPTY, self.abi.in_place());
        // SAFETY: the contract is that of this function.
        let begun = unsafe {
            self.collectives.begin(&self.constants, in_place, communicator, (collective, memory), &mut request)
        };
        checked(begun)?;
        self.note(request, Form::Joined);
        Ok(())
    }

    fn progress(&self, own: c_int, unused_tag: c_int) -> Result<(), Code> {
        let mut is_there = 0;
        let ignore = self.abi.status_ignore();
        // SAFETY: MPI is initialised; the call writes one int and ignores the status.
        checked(unsafe { (self.probe)(own, unused_tag, self.constants.world, &mut is_there, ignore) })
    }

    fn all_reduce_sum(&self, data: &mut [f32]) -> Result<(), Code> {
        let Constants { world, float, sum, .. } = self.constants;
        let len = c_int::try_from(data.len()).unwrap_or(c_int::MAX);
        let place = data.as_mut_ptr().cast();
        // SAFETY: `data` is borrowed for the call, which reads and writes `len` floats of it.
        checked(unsafe { (self.all_reduce)(self.abi.in_place(), place, len, float, sum, world) })
    }
}

/// The text that `write` puts into a buffer; empty where it fails.
fn text(write: impl FnOnce(*mut c_char) -> c_int) -> String {
    let mut buffer = vec![0u8; TEXT_BYTES + 1];
    if write(buffer.as_mut_ptr().cast()) != SUCCESS {
        return String::new();
    }
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    text.to_string_lossy().trim_end().to_owned()
}
