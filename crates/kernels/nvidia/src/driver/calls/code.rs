//! Code and launches.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use gpu::{Arguments, DriverError, FunctionFacts, LaunchShape, TensorMap, TensorTiles};

use super::super::constants::{
    ERROR_LOG, ERROR_LOG_BYTES, LOCAL_BYTES, MAX_DYNAMIC_SHARED, MAX_THREADS, NOT_INTERLEAVED, REGISTERS, SHARED_BYTES,
    ZEROS_OUTSIDE, promotion, swizzle, tensor_type,
};
use super::super::cubin::Cubin;
use super::super::functions::{Function, FunctionAttribute, Module, Parameters, Status, Stream, Wide};
use super::super::status::SUCCESS;
use super::super::structs::EncodedTensorMap;
use super::entry::Api;

/// Room for the log of the compiler of PTX.
const LOG_BYTES: usize = 16 << 10;
/// `CUDA_ERROR_INVALID_VALUE`, after a kernel's last parameter.
const INVALID_VALUE: Status = Status(1);
/// The most bytes of parameters of a kernel are 32,764.
const MAX_PARAMETERS: usize = 32_764;

impl Api {
    /// Compiles PTX and loads the result.
    pub(in crate::driver) fn load_ptx(&self, text: &CStr) -> Result<Module, DriverError> {
        self.load(text.as_ptr().cast())
    }

    /// Loads a CUBIN.
    pub(in crate::driver) fn load_cubin(&self, cubin: Cubin<'_>) -> Result<Module, DriverError> {
        self.load(cubin.bytes().as_ptr().cast())
    }

    /// `image` ends with a zero, or is an ELF file whose parts are within it.
    fn load(&self, image: *const c_void) -> Result<Module, DriverError> {
        let mut module = Module(null_mut());
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        // The size is a value in the place of an address.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
        // SAFETY: the driver reads the image to its end, two options and their values, and writes the log within its
        // size, whose last byte stays zero.
        let status = unsafe { (self.code.load)(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        self.checked("cuModuleLoadDataEx", status).map_err(|mut error| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            if !log.trim().is_empty() {
                error.text = format!("{}:\n{}", error.text, log.trim());
            }
            error
        })?;
        Ok(module)
    }

    pub(in crate::driver) fn unload(&self, module: Module) -> Result<(), DriverError> {
        // SAFETY: see the module; its functions are used no more.
        self.checked("cuModuleUnload", unsafe { (self.code.unload)(module) })
    }

    pub(in crate::driver) fn function(&self, module: Module, name: &CStr) -> Result<Function, DriverError> {
        let mut function = Function(null_mut());
        // SAFETY: see the module; the name lives during the call, which writes one address.
        let status = unsafe { (self.code.function)(&mut function, module, name.as_ptr()) };
        self.checked("cuModuleGetFunction", status)?;
        Ok(function)
    }

    /// Sizes of a kernel's parameters, in their order; `None` from a driver that does not tell them.
    pub(in crate::driver) fn parameters(&self, function: Function) -> Result<Option<Vec<usize>>, DriverError> {
        let Some(Parameters { parameter }) = self.parameters else { return Ok(None) };
        let mut sizes = vec![];
        while sizes.len() <= MAX_PARAMETERS {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: see the module; the call writes two sizes.
            match unsafe { parameter(function, sizes.len(), &mut offset, &mut size) } {
                SUCCESS => sizes.push(size),
                INVALID_VALUE => break,
                failed => self.checked("cuFuncGetParamInfo", failed)?,
            }
        }
        Ok(Some(sizes))
    }

    pub(in crate::driver) fn function_facts(&self, function: Function) -> Result<FunctionFacts, DriverError> {
        Ok(FunctionFacts {
            registers: self.function_attribute(function, REGISTERS)?,
            shared_bytes: self.function_attribute(function, SHARED_BYTES)?,
            local_bytes: self.function_attribute(function, LOCAL_BYTES)?,
            max_threads_per_block: self.function_attribute(function, MAX_THREADS)?,
        })
    }

    fn function_attribute(&self, function: Function, attribute: FunctionAttribute) -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: see the module; the call writes one int.
        let status = unsafe { (self.code.attribute)(&mut value, attribute, function) };
        self.checked("cuFuncGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    pub(in crate::driver) fn allow_shared(&self, function: Function, bytes: u32) -> Result<(), DriverError> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: see the module.
        let status = unsafe { (self.code.set_attribute)(function, MAX_DYNAMIC_SHARED, bytes) };
        self.checked("cuFuncSetAttribute", status)
    }

    /// Encodes tiles whose rules were checked.
    pub(in crate::driver) fn tensor_map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        let wide = |values: &[u64]| values.iter().map(|value| Wide(*value)).collect::<Vec<Wide>>();
        let (dims, mut strides) = (wide(&tiles.dims), wide(&tiles.strides_bytes));
        let rank = dims.len();
        // One stride more than the driver reads, so that a tensor of one dim has a place, too.
        strides.push(Wide(0));
        let element_strides = vec![1u32; rank];
        let mut map = EncodedTensorMap { bytes: [0; TensorMap::BYTES] };
        // SAFETY: `check` holds, so there are `rank` dims and box dims and `rank - 1` strides; the driver reads those
        // and `rank` element strides, keeps the address without reading from it, and writes one map.
        let status = unsafe {
            (self.code.encode_tiled)(
                &mut map,
                tensor_type(tiles.element),
                rank as u32,
                std::ptr::without_provenance_mut(tiles.address.0 as usize),
                dims.as_ptr(),
                strides.as_ptr(),
                tiles.box_dims.as_ptr(),
                element_strides.as_ptr(),
                NOT_INTERLEAVED,
                swizzle(tiles.swizzle),
                promotion(tiles.promotion),
                ZEROS_OUTSIDE,
            )
        };
        self.checked("cuTensorMapEncodeTiled", status)?;
        Ok(TensorMap::from_bytes(map.bytes))
    }

    /// Launches a kernel whose parameters have the arguments' sizes, by the driver's word or else by the caller's.
    pub(in crate::driver) fn launch(
        &self,
        stream: Stream,
        function: Function,
        LaunchShape { grid, block, shared_bytes }: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let mut places: Vec<*mut c_void> =
            arguments.values().iter().map(|value| value.as_ptr().cast_mut().cast()).collect();
        let ([x, y, z], [block_x, block_y, block_z]) = (grid, block);
        // SAFETY: see the module; the driver copies each argument by its parameter's size during the call and writes
        // none.
        let status = unsafe {
            (self.code.launch)(
                function,
                x,
                y,
                z,
                block_x,
                block_y,
                block_z,
                shared_bytes,
                stream,
                places.as_mut_ptr(),
                null_mut(),
            )
        };
        self.checked("cuLaunchKernel", status)
    }
}
