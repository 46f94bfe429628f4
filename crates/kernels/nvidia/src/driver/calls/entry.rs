//! The driver's tables, and the calls that need no GPU.

use std::ffi::{CStr, CString, c_int};
use std::ptr::{NonNull, null, null_mut};

use gpu::DriverError;

use super::super::functions::{
    Code, Devices, EarlierElapsed, Elapsed, Entry, Event, Graphs, Lookup, LookupFlags, LookupResult, Memory,
    Parameters, Status, Streams,
};
use super::super::status::{SUCCESS, kind, remedy};
use crate::library::{LibraryError, Opened};
use crate::table::{Name, Symbol};

/// All functions of the driver.
pub(in crate::driver) struct Api {
    entry: Entry,
    pub(super) devices: Devices,
    pub(super) memory: Memory,
    pub(super) streams: Streams,
    /// In the newest form that the driver has.
    pub(super) elapsed: unsafe extern "C" fn(*mut f32, Event, Event) -> Status,
    pub(super) code: Code,
    /// `None` where the driver lacks it.
    pub(super) parameters: Option<Parameters>,
    /// `None` where the driver lacks one of them.
    pub(super) graphs: Option<Graphs>,
}

impl Entry {
    /// The newest version of CUDA that the driver supports.
    pub(in crate::driver) fn cuda_version(&self) -> Result<u32, Status> {
        let mut version = 0;
        // SAFETY: the call may be made at any time and writes one int.
        let status = unsafe { (self.version)(&mut version) };
        if status == SUCCESS { Ok(u32::try_from(version).unwrap_or(0)) } else { Err(status) }
    }
}

impl Api {
    /// Binds every function of a driver for CUDA `version`: by the function's version where the driver offers that,
    /// else by its symbol.
    pub(in crate::driver) fn bind(entry: Entry, opened: &Opened, version: u32) -> Result<Api, LibraryError> {
        let lookup = Lookup::bind(|name| opened.symbol(name.symbol)).ok();
        let find = |name: Name| {
            // For a version that the driver does not know it returns an earlier form of the function.
            if name.since.is_some_and(|since| since > version) {
                return Err(opened.lacks(name.symbol));
            }
            let versioned = lookup.and_then(|lookup| lookup.function(name));
            versioned.map_or_else(|| opened.symbol(name.symbol), Ok)
        };
        Ok(Api {
            entry,
            devices: Devices::bind(find)?,
            memory: Memory::bind(find)?,
            streams: Streams::bind(find)?,
            elapsed: match Elapsed::bind(find) {
                Ok(newest) => newest.elapsed,
                Err(_) => EarlierElapsed::bind(find)?.elapsed,
            },
            code: Code::bind(find)?,
            parameters: Parameters::bind(find).ok(),
            graphs: Graphs::bind(find).ok(),
        })
    }

    /// Starts the driver in this process. More than once is permitted.
    pub(in crate::driver) fn init(&self) -> Result<(), (Status, DriverError)> {
        // SAFETY: the call may be made at any time; flags must be 0.
        let status = unsafe { (self.entry.init)(0) };
        self.checked("cuInit", status).map_err(|error| (status, error))
    }

    /// The error of a result that is not success.
    pub(in crate::driver) fn checked(&self, call: &'static str, status: Status) -> Result<(), DriverError> {
        if status == SUCCESS {
            return Ok(());
        }
        let (name, text) = (self.text(status, self.entry.error_name), self.text(status, self.entry.error_text));
        let mut text = format!("{}: {}", name.unwrap_or_else(|| status.0.to_string()), text.unwrap_or_default());
        if let Some(remedy) = remedy(status) {
            text = format!("{text}; {remedy}");
        }
        Err(DriverError { call, kind: kind(status), text })
    }

    fn text(
        &self,
        status: Status,
        call: unsafe extern "C" fn(Status, *mut *const std::ffi::c_char) -> Status,
    ) -> Option<String> {
        let mut text = null();
        // SAFETY: the call accepts any number and writes one address, which stays valid.
        let found = unsafe { call(status, &mut text) };
        if found != SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver returns a constant text that ends with a zero.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl Lookup {
    /// The function whose declaration took this form in the version that the name has.
    fn function(self, name: Name) -> Option<Symbol> {
        let version = c_int::try_from(name.since?).ok()?;
        let base = CString::new(base(name.symbol)).ok()?;
        let (mut address, mut result) = (null_mut(), LookupResult(0));
        // SAFETY: the call may be made at any time; the text lives during it, and it writes one address and one number.
        let status = unsafe { (self.lookup)(base.as_ptr(), &mut address, version, LookupFlags(0), &mut result) };
        NonNull::new(address).filter(|_| status == SUCCESS).map(Symbol)
    }
}

/// A symbol without the number of its form.
fn base(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((base, form)) if form.bytes().all(|byte| byte.is_ascii_digit()) => base,
        Some(_) | None => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn the_number_of_a_form_is_no_part_of_the_name() {
        assert_eq!(base("cuMemGetInfo_v2"), "cuMemGetInfo");
        assert_eq!(base("cuMemCreate"), "cuMemCreate");
        assert_eq!(base("cuLaunch_verbose"), "cuLaunch_verbose");
    }
}
