//! GPUs and their contexts.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

use gpu::{Capability, DeviceFacts, DriverError};

use super::super::constants::{
    FABRIC_HANDLES, FILE_HANDLES, HAS_DIRECT_ACCESS, HAS_FABRIC_HANDLES, HAS_FILE_HANDLES, MAJOR, MAX_SHARED, MINOR,
    MULTIPROCESSORS, VIRTUAL_MEMORY,
};
use super::super::functions::{Context, Device, DeviceAttribute};
use super::super::structs::Uuid;
use super::entry::Api;
use super::memory::Sharing;

/// Bytes of a text, its zero included.
const NAME_BYTES: usize = 256;

impl Api {
    /// The number of GPUs.
    pub(in crate::driver) fn count(&self) -> Result<usize, DriverError> {
        let mut count = 0;
        // SAFETY: the call writes one int.
        self.checked("cuDeviceGetCount", unsafe { (self.devices.count)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// A GPU by its ordinal.
    pub(in crate::driver) fn device(&self, ordinal: usize) -> Result<Device, DriverError> {
        let mut device = Device(0);
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the call writes one int.
        self.checked("cuDeviceGet", unsafe { (self.devices.get)(&mut device, ordinal) })?;
        Ok(device)
    }

    /// All facts of a GPU.
    pub(in crate::driver) fn facts(&self, ordinal: usize) -> Result<DeviceFacts, DriverError> {
        let device = self.device(ordinal)?;
        let mut name = [0u8; NAME_BYTES];
        // SAFETY: the place has the size that the call is given.
        let status = unsafe { (self.devices.name)(name.as_mut_ptr().cast(), NAME_BYTES as c_int, device) };
        self.checked("cuDeviceGetName", status)?;
        let mut memory = 0;
        // SAFETY: the call writes one size.
        self.checked("cuDeviceTotalMem", unsafe { (self.devices.total_memory)(&mut memory, device) })?;
        let mut uuid = Uuid { bytes: [0; 16] };
        // SAFETY: the call writes 16 bytes.
        self.checked("cuDeviceGetUuid", unsafe { (self.devices.uuid)(&mut uuid, device) })?;
        let mut bus_id = [0u8; NAME_BYTES];
        // SAFETY: the place has the size that the call is given.
        let status = unsafe { (self.devices.bus_id)(bus_id.as_mut_ptr().cast(), NAME_BYTES as c_int, device) };
        self.checked("cuDeviceGetPCIBusId", status)?;
        let text =
            |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().trim().to_owned();
        let capability = Capability { major: self.attribute(device, MAJOR)?, minor: self.attribute(device, MINOR)? };
        Ok(DeviceFacts {
            ordinal,
            name: text(&name),
            capability,
            memory_bytes: memory as u64,
            multiprocessors: self.attribute(device, MULTIPROCESSORS)?,
            max_shared_bytes: self.attribute(device, MAX_SHARED)?,
            uuid: uuid.bytes,
            bus_id: text(&bus_id).to_ascii_lowercase(),
        })
    }

    /// Whether ranges of addresses can be mapped on the GPU.
    pub(in crate::driver) fn has_virtual_memory(&self, device: Device) -> Result<bool, DriverError> {
        Ok(self.attribute(device, VIRTUAL_MEMORY)? != 0)
    }

    /// Who can be given access to memory of the GPU. A driver that does not know a question has none of the answer.
    pub(in crate::driver) fn sharing(&self, device: Device) -> Sharing {
        let has = |attribute| self.attribute(device, attribute).is_ok_and(|value| value != 0);
        let types = [(HAS_FILE_HANDLES, FILE_HANDLES), (HAS_FABRIC_HANDLES, FABRIC_HANDLES)];
        let handle_types = types.into_iter().filter(|(question, _)| has(*question)).map(|(_, handles)| handles).sum();
        Sharing { handle_types, gpu_direct: has(HAS_DIRECT_ACCESS).into() }
    }

    fn attribute(&self, device: Device, attribute: DeviceAttribute) -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: the call writes one int.
        self.checked("cuDeviceGetAttribute", unsafe { (self.devices.attribute)(&mut value, attribute, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The context that all users of a GPU in this process share.
    pub(in crate::driver) fn retain(&self, device: Device) -> Result<Context, DriverError> {
        let mut context = Context(null_mut());
        // SAFETY: the call writes one address.
        self.checked("cuDevicePrimaryCtxRetain", unsafe { (self.devices.retain)(&mut context, device) })?;
        Ok(context)
    }

    /// Ends one use of a GPU's context.
    pub(in crate::driver) fn release(&self, device: Device) -> Result<(), DriverError> {
        // SAFETY: it was retained once, and nothing of it is used any more.
        self.checked("cuDevicePrimaryCtxRelease", unsafe { (self.devices.release)(device) })
    }

    /// Makes a context the one of the calling thread.
    pub(in crate::driver) fn set_current(&self, context: Context) -> Result<(), DriverError> {
        // SAFETY: the context is retained for as long as its owner lives.
        self.checked("cuCtxSetCurrent", unsafe { (self.devices.set_current)(context) })
    }
}
