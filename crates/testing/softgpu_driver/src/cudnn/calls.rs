//! The functions of the library.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::{Arc, LazyLock, Mutex};

use gpu::{AttentionLibrary as _, AttentionPass, AttentionPlaces, DevicePointer, StreamHandle};
use soft_products::SoftAttention;
use softgpu::SoftGpu;

use super::descriptors::{
    BAD_PARAMETER, Descriptor, Descriptors, EXECUTION_FAILED, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, Status,
    bytes_of, kind, part,
};
use super::passes::Pass;
use crate::context::entered;
use crate::handles::Handles;

/// 9.28.1.
const VERSION: usize = 92_801;

/// The mode of a heuristic that proposes the best engines.
const MODE_A: i32 = 3;

/// The library for a GPU.
struct Opened {
    gpu: Arc<SoftGpu>,
    stream: StreamHandle,
}

#[derive(Default)]
struct All {
    descriptors: Descriptors,
    /// Graphs that are passes of attention.
    passes: HashMap<u64, Pass>,
    opened: Handles<Opened>,
}

static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);

fn with<T>(call: impl FnOnce(&mut All) -> T) -> T {
    call(&mut sync::lock(&ALL))
}

fn status(result: Result<(), Status>) -> Status {
    result.map_or_else(|status| status, |()| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: Status) -> *const c_char {
    let text = match status {
        SUCCESS => c"CUDNN_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUDNN_STATUS_NOT_INITIALIZED",
        BAD_PARAMETER => c"CUDNN_STATUS_BAD_PARAM",
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
        EXECUTION_FAILED => c"CUDNN_STATUS_EXECUTION_FAILED",
        _ => return std::ptr::null(),
    };
    text.as_ptr()
}

/// The names of results are all that this library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(text: *mut c_char, bytes: usize) {
    if bytes > 0 && !text.is_null() {
        // SAFETY: the interface asks for a place for N bytes.
        unsafe { text.write(0) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(handle: *mut u64) -> Status {
    let Ok(context) = entered() else { return NOT_INITIALIZED };
    if handle.is_null() {
        return BAD_PARAMETER;
    }
    let opened = Opened { gpu: Arc::clone(&context.gpu), stream: StreamHandle(0) };
    // SAFETY: the interface asks for a place for a handle.
    unsafe { handle.write(with(|all| all.opened.add(opened))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroy(handle: u64) -> Status {
    status(with(|all| all.opened.remove(handle)).map(|_| ()).ok_or(BAD_PARAMETER))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: u64, stream: u64) -> Status {
    let set = with(|all| all.opened.get_mut(handle).map(|opened| opened.stream = StreamHandle(stream)));
    status(set.ok_or(BAD_PARAMETER))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_uint, descriptor: *mut u64) -> Status {
    if descriptor.is_null() {
        return BAD_PARAMETER;
    }
    let made = Descriptor { kind, parts: BTreeMap::new(), is_final: false };
    // SAFETY: the interface asks for a place for a handle.
    unsafe { descriptor.write(with(|all| all.descriptors.0.add(made))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: u64) -> Status {
    let removed = with(|all| {
        all.passes.remove(&descriptor);
        all.descriptors.0.remove(descriptor)
    });
    status(removed.map(|_| ()).ok_or(BAD_PARAMETER))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: u64,
    attribute: c_uint,
    type_: c_uint,
    count: i64,
    values: *const c_void,
) -> Status {
    let bytes = bytes_of(type_).zip(usize::try_from(count).ok()).map(|(bytes, count)| bytes * count);
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && !values.is_null()) else { return BAD_PARAMETER };
    // SAFETY: the interface asks for as many values of the type.
    let value = unsafe { std::slice::from_raw_parts(values.cast::<u8>(), bytes) }.to_vec();
    status(with(|all| {
        let found = all.descriptors.0.get_mut(descriptor).filter(|found| !found.is_final).ok_or(BAD_PARAMETER)?;
        found.parts.insert(attribute, value);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: u64) -> Status {
    status(with(|all| {
        let kind = all.descriptors.0.get(descriptor).ok_or(BAD_PARAMETER)?.kind;
        match kind {
            kind::GRAPH => {
                let pass = Pass::of(&all.descriptors, descriptor)?;
                all.passes.insert(descriptor, pass);
            }
            kind::HEURISTIC => {
                let graph = all.descriptors.one(descriptor, part::HEURISTIC_GRAPH)?;
                all.passes.get(&graph).ok_or(BAD_PARAMETER)?;
            }
            kind::PLAN => workspace_bytes(pass_of(all, descriptor)?).map(|_| ())?,
            kind::GPU_PROPERTIES => {
                let handle = all.descriptors.one(descriptor, part::GPU_HANDLE)?;
                all.opened.get(handle).ok_or(BAD_PARAMETER)?;
            }
            _ => {}
        }
        all.descriptors.0.get_mut(descriptor).ok_or(BAD_PARAMETER)?.is_final = true;
        Ok(())
    }))
}

/// The pass that a plan computes.
fn pass_of(all: &All, plan: u64) -> Result<&Pass, Status> {
    let config = all.descriptors.one(plan, part::PLAN_CONFIG)?;
    all.passes.get(&all.descriptors.one(config, part::ENGINE_GRAPH)?).ok_or(BAD_PARAMETER)
}

/// Bytes of the workspace of a pass; an error where the library does not have it.
fn workspace_bytes(pass: &Pass) -> Result<usize, Status> {
    let context = entered().map_err(|_| NOT_INITIALIZED)?;
    let library = SoftAttention::new(Arc::clone(&context.gpu));
    library.workspace_bytes(&pass.attention).ok().flatten().ok_or(NOT_SUPPORTED)
}

/// Gives the first of the descriptors at `place` the graph of another one; their number.
///
/// # Safety
/// `place` has `most` descriptors.
unsafe fn give_graph(all: &mut All, graph: u64, place: *mut c_void, most: i64) -> Result<i64, Status> {
    if most > 0 {
        // SAFETY: as the caller promises.
        let into = unsafe { *place.cast::<u64>() };
        let into = all.descriptors.0.get_mut(into).ok_or(BAD_PARAMETER)?;
        into.parts.insert(part::ENGINE_GRAPH, graph.to_le_bytes().to_vec());
        into.is_final = true;
    }
    Ok(1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: u64,
    attribute: c_uint,
    _type: c_uint,
    most: i64,
    count: *mut i64,
    values: *mut c_void,
) -> Status {
    let number = |number: i64| {
        if most < 1 || values.is_null() {
            return Err(BAD_PARAMETER);
        }
        // SAFETY: the interface asks for a place for a number.
        unsafe { values.cast::<i64>().write(number) };
        Ok(1)
    };
    let written = with(|all| {
        let kind = all.descriptors.0.get(descriptor).filter(|found| found.is_final).ok_or(BAD_PARAMETER)?.kind;
        match (kind, attribute) {
            (kind::HEURISTIC, part::HEURISTIC_RESULTS) => {
                if all.descriptors.choice(descriptor, part::HEURISTIC_MODE)? != MODE_A {
                    return Ok(0);
                }
                let graph = all.descriptors.one(descriptor, part::HEURISTIC_GRAPH)?;
                // SAFETY: the interface asks for as many descriptors.
                unsafe { give_graph(all, graph, values, most) }
            }
            (kind::ENGINE_CONFIG, part::CONFIG_ENGINE) => {
                let graph = all.descriptors.one(descriptor, part::ENGINE_GRAPH)?;
                // SAFETY: as above.
                unsafe { give_graph(all, graph, values, most) }
            }
            // Results have the same bits at every call: there is nothing to note.
            (kind::ENGINE, part::ENGINE_NOTES) => Ok(0),
            (kind::ENGINE, part::ENGINE_NUMBER) => number(0),
            (kind::PLAN, part::PLAN_WORKSPACE) => number(workspace_bytes(pass_of(all, descriptor)?)? as i64),
            _ => Err(NOT_SUPPORTED),
        }
    });
    match written {
        Ok(there) if !count.is_null() => {
            // SAFETY: the interface asks for a place for a count.
            unsafe { count.write(there) };
            SUCCESS
        }
        Ok(_) => BAD_PARAMETER,
        Err(status) => status,
    }
}

/// The addresses that a pack gives for the tensors of a pass.
struct Pack<'a> {
    all: &'a All,
    pass: &'a Pass,
    addresses: HashMap<u64, u64>,
}

impl Pack<'_> {
    fn address(&self, name: &str) -> Result<u64, Status> {
        let id = self.pass.id(&self.all.descriptors, name)?;
        self.addresses.get(&id).copied().ok_or(BAD_PARAMETER)
    }

    fn places<const N: usize>(&self, names: [&str; N]) -> Result<[DevicePointer; N], Status> {
        let mut places = [DevicePointer(0); N];
        for (place, name) in places.iter_mut().zip(names) {
            *place = DevicePointer(self.address(name)?);
        }
        Ok(places)
    }

    /// A number of the host.
    fn number(&self, name: &str) -> Result<f32, Status> {
        let address = self.address(name)?;
        // SAFETY: the interface asks for an address of the host for a tensor that is given by its value.
        Ok(unsafe { std::ptr::with_exposed_provenance::<f32>(address as usize).read_unaligned() })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(handle: u64, plan: u64, pack: u64) -> Status {
    status(with(|all| {
        let opened = all.opened.get(handle).ok_or(BAD_PARAMETER)?;
        let pass = pass_of(all, plan)?;
        let [ids, addresses] = [part::PACK_IDS, part::PACK_ADDRESSES].map(|part| all.descriptors.all(pack, part));
        let addresses = ids?.into_iter().zip(addresses?).map(|(id, address)| (id as u64, address as u64)).collect();
        let pack_of_pass = Pack { all, pass, addresses };
        let is_forward = pass.attention.pass == AttentionPass::Forward;
        if pack_of_pass.number("hidden")? != f32::NEG_INFINITY || !is_forward && pack_of_pass.number("one")? != 1.0 {
            return Err(NOT_SUPPORTED);
        }
        let gradients = match is_forward {
            true => [DevicePointer(0); 4],
            false => pack_of_pass.places(["dout", "dq", "dk", "dv"])?,
        };
        let [log_sum_exp] = pack_of_pass.places(["logs"])?;
        let places = AttentionPlaces { inputs: pack_of_pass.places(["q", "k", "v", "out"])?, log_sum_exp, gradients };
        let workspace = DevicePointer(all.descriptors.one(pack, part::PACK_WORKSPACE)?);
        let library = SoftAttention::new(Arc::clone(&opened.gpu));
        let scale = pack_of_pass.number("scale")?;
        let submitted = library.attend(opened.stream, &pass.attention, scale, &places, workspace);
        submitted.map_err(|_| EXECUTION_FAILED)
    }))
}
