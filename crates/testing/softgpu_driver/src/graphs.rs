//! Graphs: kernels that are described as nodes, and launches of graphs.

use std::ffi::c_uint;

use gpu::{FunctionHandle, Gpu, GraphHandle, LaunchShape, StreamHandle};

use crate::code::arguments_of;
use crate::context::entered;
use crate::described::Node;
use crate::memory::enter;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, of, put, put_result};

/// `CUDA_KERNEL_NODE_PARAMS`
#[repr(C)]
pub struct NodeParameters {
    function: u64,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    arguments: *const *const std::ffi::c_void,
    extra: *const *const std::ffi::c_void,
    kernel: u64,
    context: u64,
}

/// Set in the handle of a described graph, and in no handle of the GPU.
const DESCRIBED: u64 = 1 << 38;

/// Bits of a node's handle that hold its place, from 1 on; those above hold its graph.
const PLACE_BITS: u32 = 24;

fn node_handle(graph: u64, place: usize) -> u64 {
    graph << PLACE_BITS | (place as u64 + 1)
}

/// The place of a node in its graph.
fn place_of(node: u64) -> Option<usize> {
    usize::try_from(node & ((1 << PLACE_BITS) - 1)).ok()?.checked_sub(1)
}

/// The node of these parameters; an error where something is asked for that this driver does not have.
///
/// # Safety
/// `parameters` is null or what the interface asks for.
unsafe fn node_of(parameters: *const NodeParameters, after: Option<usize>) -> Result<Node, Status> {
    // SAFETY: as the caller promises.
    let parameters = unsafe { parameters.as_ref() }.ok_or(INVALID_VALUE)?;
    if !parameters.extra.is_null() || parameters.kernel != 0 {
        return Err(NOT_SUPPORTED);
    }
    let function = FunctionHandle(parameters.function);
    // SAFETY: the interface asks for a pointer for each parameter of the function.
    let arguments = unsafe { arguments_of(function, parameters.arguments) }?;
    let NodeParameters { grid, block, shared_bytes, .. } = *parameters;
    Ok(Node { function, shape: LaunchShape { grid, block, shared_bytes }, arguments, after })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(graph: *mut u64, flags: c_uint) -> Status {
    let context = enter!();
    if flags != 0 {
        return INVALID_VALUE;
    }
    let handle = sync::lock(&context.described).add(vec![]) | DESCRIBED;
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(graph, handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut u64,
    graph: u64,
    after: *const u64,
    count: usize,
    parameters: *const NodeParameters,
) -> Status {
    let context = enter!();
    let after = match count {
        0 => None,
        // SAFETY: the interface asks for `count` nodes.
        1 if !after.is_null() => place_of(unsafe { *after }),
        1 => return INVALID_VALUE,
        _ => return NOT_SUPPORTED,
    };
    // SAFETY: the interface asks for parameters of a node.
    let added = match unsafe { node_of(parameters, after) } {
        Ok(added) => added,
        Err(status) => return status,
    };
    let mut described = sync::lock(&context.described);
    let Some(nodes) = described.get_mut(graph ^ DESCRIBED) else { return INVALID_VALUE };
    if after.is_some_and(|after| after >= nodes.len()) {
        return INVALID_VALUE;
    }
    nodes.push(added);
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(node, node_handle(graph, nodes.len() - 1)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    executable: u64,
    node: u64,
    parameters: *const NodeParameters,
) -> Status {
    let context = enter!();
    let Some(place) = place_of(node) else { return INVALID_VALUE };
    // SAFETY: the interface asks for parameters of a node.
    match unsafe { node_of(parameters, None) } {
        Ok(node) => of(context.gpu.set_node(GraphHandle(executable), place, &node.as_kernel())),
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) -> Status {
    let context = enter!();
    if flags != 0 {
        return INVALID_VALUE;
    }
    if let Some(nodes) = sync::lock(&context.described).get(graph ^ DESCRIBED) {
        let made = context.gpu.create_graph(&nodes.iter().map(Node::as_kernel).collect::<Vec<_>>()).map(|made| {
            sync::lock(&context.graphs).insert(made, 1);
            made.0
        });
        // SAFETY: the interface asks for a place for a handle.
        return unsafe { put_result(executable, made) };
    }
    let mut graphs = sync::lock(&context.graphs);
    let Some(users) = graphs.get_mut(&GraphHandle(graph)) else { return INVALID_VALUE };
    *users += 1;
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put_result(executable, Ok(graph)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: u64, stream: u64) -> Status {
    of(enter!().gpu.launch_graph(StreamHandle(stream), GraphHandle(executable)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: u64) -> Status {
    let removed = sync::lock(&enter!().described).remove(graph ^ DESCRIBED);
    if removed.is_some() { SUCCESS } else { drop_graph(graph) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: u64) -> Status {
    drop_graph(executable)
}

/// One user less; the last one destroys the graph.
fn drop_graph(graph: u64) -> Status {
    let context = enter!();
    let mut graphs = sync::lock(&context.graphs);
    let Some(users) = graphs.get_mut(&GraphHandle(graph)) else { return INVALID_VALUE };
    *users -= 1;
    if *users > 0 {
        return SUCCESS;
    }
    graphs.remove(&GraphHandle(graph));
    of(context.gpu.destroy_graph(GraphHandle(graph)))
}
