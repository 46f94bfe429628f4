//! Messages about kernels of GPUs that are compiled before a command computes.

use config::figures::counted;
use config::{DeviceChoice, RunConfig};
use device::Numerics;
use train::{RunDevice, ToCompile, check_numerics};

use crate::failure::Failure;
use crate::gpus::devices;
use crate::messages::stderr;

/// The kernels of the ranks of a run before they compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelStart {
    /// Code of an older GPU that a GPU runs, and why.
    pub substitute: Option<String>,
    /// The work of the compiler; `None` for other devices, and where all is kept.
    pub to_compile: Option<ToCompile>,
}

impl KernelStart {
    /// The kernels of `config`.
    ///
    /// # Errors
    /// A device that this machine does not have.
    pub fn of(config: &RunConfig) -> Result<KernelStart, Failure> {
        if !devices::has_gpus(config) {
            return Ok(KernelStart::default());
        }
        match devices::run_device(config)? {
            RunDevice::Cpu => Ok(KernelStart::default()),
            RunDevice::Gpus(gpus) => Ok(KernelStart { substitute: gpus.substitute(), to_compile: gpus.to_compile() }),
        }
    }

    /// The lines that are printed before ranks compute.
    pub fn lines(&self) -> String {
        let substitute = self.substitute.as_ref().map(|code| format!("kernels {code}\n"));
        substitute.unwrap_or_default() + &self.to_compile.as_ref().map(line).unwrap_or_default()
    }

    /// The warning where every start compiles again.
    pub fn warning(&self) -> Option<String> {
        self.to_compile.as_ref().and_then(warning)
    }
}

/// The line that is printed before the compiler begins.
fn line(work: &ToCompile) -> String {
    let files = counted(work.sources as u64, "file");
    format!("kernels {files} to compile before the GPU computes; this may take minutes\n")
}

/// The warning where every start compiles again.
fn warning(work: &ToCompile) -> Option<String> {
    let (folder, reason) = (work.folder.display(), work.refused.as_ref()?);
    Some(format!(
        "warning: compiled kernels cannot be kept in {folder}: {reason}; each start compiles them again; name a folder \
         that can be written in XDG_CACHE_HOME\n"
    ))
}

/// Says both on the standard error.
///
/// # Errors
/// The errors of [`KernelStart::of`].
pub fn tell(config: &RunConfig) -> Result<(), Failure> {
    let start = KernelStart::of(config)?;
    let said = start.lines() + &start.warning().unwrap_or_default();
    if !said.is_empty() {
        stderr::tell(&said);
    }
    Ok(())
}

/// Where kernels would have to be compiled once more, computes on cores instead, if they have the numerics of `config`:
/// the bits are the same.
///
/// # Errors
/// The errors of [`KernelStart::of`].
pub fn without_compiling_again(config: &mut RunConfig) -> Result<(), Failure> {
    let numerics = Numerics::of(config.train.precision, config.train.sums);
    if KernelStart::of(config)?.to_compile.is_some() && check_numerics(DeviceChoice::Cpu, numerics).is_ok() {
        (config.run.device, config.run.gpus) = (DeviceChoice::Cpu, None);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_code_is_named() {
        let work = ToCompile { sources: 22, folder: "/var/cache/pleach/kernels".into(), refused: None };
        assert_eq!(line(&work), "kernels 22 files to compile before the GPU computes; this may take minutes\n");
        assert_eq!(warning(&work), None);
        let refused = ToCompile { refused: Some("Not a directory (os error 20)".into()), ..work };
        assert_eq!(
            warning(&refused).as_deref(),
            Some(
                "warning: compiled kernels cannot be kept in /var/cache/pleach/kernels: Not a directory (os error 20); \
                 each start compiles them again; name a folder that can be written in XDG_CACHE_HOME\n"
            )
        );
    }
}
