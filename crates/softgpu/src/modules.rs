//! Code: texts of PTX as kernels, with memory for their variables.

use std::collections::HashMap;
use std::sync::Arc;

use crate::code::{Kernel, Place, Symbols, aligned, decode};
use crate::memory::global::Global;
use crate::ptx::{Immediate, Initial, Module, PtxError, Scalar, Space, Variable, parse};

/// Loaded code.
#[derive(Debug)]
pub struct LoadedModule {
    /// Kernels by name.
    pub kernels: HashMap<String, Arc<Kernel>>,
    /// Allocations of its variables.
    pub allocations: Vec<u64>,
}

/// Loads a text, and allocates its variables.
///
/// # Errors
/// PTX that this GPU does not run.
pub fn load(text: &str, global: &mut Global) -> Result<LoadedModule, PtxError> {
    let module = parse(text)?;
    let mut symbols = Symbols::default();
    // Everything is decoded once before memory is allocated, so that an error leaves none after.
    for variable in global_variables(&module) {
        symbols.insert(&variable.name, Place { space: variable.space, address: 0 });
    }
    let shared: Vec<Variable> =
        module.variables.iter().filter(|variable| variable.space == Space::Shared).cloned().collect();
    for kernel in &module.kernels {
        let decoded = decode(kernel, &shared, &symbols)?;
        if decoded.has_warpgroups && module.target != "sm_90a" {
            let text = format!("{}: wgmma needs .target sm_90a; got {}", kernel.name, module.target);
            return Err(PtxError::new(kernel.line, text));
        }
    }
    let mut allocations = Vec::new();
    for variable in global_variables(&module) {
        let start = global.allocate_variable(variable.bytes, variable.space);
        symbols.insert(&variable.name, Place { space: variable.space, address: start });
        allocations.push(start);
    }
    for (variable, start) in global_variables(&module).zip(&allocations) {
        initialise(variable, &symbols, *start, global)?;
    }
    let mut kernels = HashMap::new();
    for kernel in &module.kernels {
        kernels.insert(kernel.name.clone(), Arc::new(decode(kernel, &shared, &symbols)?));
    }
    Ok(LoadedModule { kernels, allocations })
}

fn global_variables(module: &Module) -> impl Iterator<Item = &Variable> {
    module.variables.iter().filter(|variable| matches!(variable.space, Space::Global | Space::Const))
}

fn initialise(variable: &Variable, symbols: &Symbols, start: u64, global: &mut Global) -> Result<(), PtxError> {
    let element = variable.scalar.bytes();
    let Some(memory) = global.range_mut(start, variable.bytes) else { return Ok(()) };
    for (value, place) in variable.initial.iter().zip(memory.chunks_exact_mut(element)) {
        let bits = match value {
            Initial::Number(Immediate::Integer(value)) => *value,
            Initial::Number(Immediate::Single(bits)) => u64::from(*bits),
            Initial::Number(Immediate::Double(bits)) if variable.scalar == Scalar::F32 => {
                u64::from((f64::from_bits(*bits) as f32).to_bits())
            }
            Initial::Number(Immediate::Double(bits)) => *bits,
            Initial::Address(name) => match symbols.get(name) {
                Some(place) => place.address,
                None => return Err(PtxError::new(1, format!("{} names {name}, which is unknown", variable.name))),
            },
        };
        place.copy_from_slice(&bits.to_le_bytes()[..element]);
    }
    Ok(())
}

/// The bytes of all arguments, each at its parameter's place; an error names the first that has another size.
pub fn parameters(kernel: &Kernel, values: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    if values.len() != kernel.parameters.len() {
        let expected = kernel.parameters.len();
        return Err(format!("{} takes {expected} arguments; got {}", kernel.name, values.len()));
    }
    let mut bytes = vec![0; aligned(kernel.parameter_bytes, 16)];
    for (number, (parameter, value)) in kernel.parameters.iter().zip(values).enumerate() {
        if parameter.bytes != value.len() {
            let (expected, got) = (parameter.bytes, value.len());
            return Err(format!("argument {number} of {} has {expected} bytes; got {got}", kernel.name));
        }
        bytes[parameter.offset..parameter.offset + parameter.bytes].copy_from_slice(value);
    }
    Ok(bytes)
}
