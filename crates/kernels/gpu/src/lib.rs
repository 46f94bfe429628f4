//! The functions of a GPU's driver, as traits with values and errors.
//!
//! Two things implement them: a library of the system that is opened at run time, and a GPU in software. Code above
//! these traits has no unsafe code and no addresses of host memory.

mod attention;
mod capability;
mod driver;
mod error;
mod forward;
mod handle;
mod launch;
mod products;
mod tensor_map;

pub use attention::{
    AttentionLibrary, AttentionPass, AttentionPlaces, AttentionStrides, CausalAttention, GradientStrides,
};
pub use capability::Capability;
pub use driver::{DeviceFacts, Driver, FreeMemory, FunctionFacts, Gpu, ModuleImage};
pub use error::{DriverError, DriverErrorKind};
pub use handle::{DevicePointer, EventHandle, FunctionHandle, GraphHandle, ModuleHandle, PinnedHandle, StreamHandle};
pub use launch::{Arguments, KernelNode, LaunchShape};
pub use products::{
    BiasForm, FactorForm, MatrixElement, MatrixPlaces, MatrixProduct, ProductAlgorithm, ProductLibrary, ProductLimits,
    ResultForm, SumForm, alignment,
};
pub use tensor_map::{MAX_TENSOR_DIMS, TensorElement, TensorMap, TensorPromotion, TensorSwizzle, TensorTiles};
