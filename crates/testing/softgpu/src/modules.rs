//! Code: texts of PTX as kernels, with memory for their variables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sync::lock;

use crate::code::{Kernel, Place, Symbols, aligned, decode};
use crate::memory::global::Global;
use crate::ptx::{Function, Immediate, Initial, PtxError, Scalar, Space, Variable, merge_registers, parse};

/// Loaded code.
#[derive(Debug)]
pub struct LoadedModule {
    /// Kernels by name.
    pub kernels: HashMap<String, Arc<Kernel>>,
    /// Allocations of its variables.
    pub allocations: Vec<u64>,
}

/// Texts of PTX that are decoded once for all GPUs that share this. It keeps them as long as it exists.
#[derive(Clone, Debug, Default)]
pub struct SharedCode {
    texts: Arc<Mutex<HashMap<String, Arc<Decoded>>>>,
}

/// The code of a text, wherever its variables will be.
#[derive(Debug)]
pub struct Decoded {
    /// In global and constant memory.
    variables: Vec<Variable>,
    /// In shared memory, of all kernels.
    shared: Vec<Variable>,
    kernels: Vec<DecodedKernel>,
}

#[derive(Debug)]
enum DecodedKernel {
    /// Without addresses of variables.
    Whole(Arc<Kernel>),
    /// It is decoded again where the addresses of its variables are known.
    OfAddresses(Function),
}

impl SharedCode {
    /// The code of a text. Who needs a text that another one is decoding waits for it.
    ///
    /// # Errors
    /// The errors of [`Decoded::of`].
    pub(crate) fn decoded(&self, text: &str) -> Result<Arc<Decoded>, PtxError> {
        let mut texts = lock(&self.texts);
        if let Some(decoded) = texts.get(text) {
            return Ok(Arc::clone(decoded));
        }
        let decoded = Arc::new(Decoded::of(text)?);
        texts.insert(text.into(), Arc::clone(&decoded));
        Ok(decoded)
    }
}

impl Decoded {
    /// Allocates the text's variables.
    ///
    /// # Errors
    /// A variable with the address of another one that does not exist.
    pub fn load(&self, global: &mut Global) -> Result<LoadedModule, PtxError> {
        let mut symbols = Symbols::default();
        let mut allocations = Vec::new();
        for variable in &self.variables {
            let start = global.allocate_variable(variable.bytes, variable.space);
            symbols.insert(&variable.name, Place { space: variable.space, address: start });
            allocations.push(start);
        }
        for (variable, start) in self.variables.iter().zip(&allocations) {
            initialise(variable, &symbols, *start, global)?;
        }
        let mut kernels = HashMap::new();
        for kernel in &self.kernels {
            let kernel = match kernel {
                DecodedKernel::Whole(kernel) => Arc::clone(kernel),
                DecodedKernel::OfAddresses(function) => Arc::new(decode(function, &self.shared, &symbols)?),
            };
            kernels.insert(kernel.name.clone(), kernel);
        }
        Ok(LoadedModule { kernels, allocations })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// PTX that this GPU does not run.
    pub fn of(text: &str) -> Result<Decoded, PtxError> {
        let module = parse(text)?;
        let in_space = |is_meant: fn(Space) -> bool| -> Vec<Variable> {
            module.variables.iter().filter(|variable| is_meant(variable.space)).cloned().collect()
        };
        let variables = in_space(|space| matches!(space, Space::Global | Space::Const));
        let shared = in_space(|space| space == Space::Shared);
        let mut symbols = Symbols::default();
        for variable in &variables {
            symbols.insert(&variable.name, Place { space: variable.space, address: 0 });
        }
        let mut kernels = Vec::new();
        for mut function in module.kernels {
            merge_registers(&mut function);
            let kernel = decode(&function, &shared, &symbols)?;
            if kernel.has_warpgroups && module.target != "sm_90a" {
                let text = format!("{}: wgmma needs .target sm_90a; got {}", function.name, module.target);
                return Err(PtxError::new(function.line, text));
            }
            kernels.push(if kernel.has_addresses {
                DecodedKernel::OfAddresses(function)
            } else {
                DecodedKernel::Whole(Arc::new(kernel))
            });
        }
        Ok(Decoded { variables, shared, kernels })
    }
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
