//! The settings of a copy of the library: the file `softgpu.settings` next to it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use gpu::Capability;
use softgpu::{Deal, HardwareQueues, Settings as GpuSettings};

/// The name of the file. It has lines `KEY = VALUE` and may be missing.
const FILE: &str = "softgpu.settings";

/// The version of CUDA of a driver whose settings name none, as drivers count.
pub const CUDA: c_int = 13_000;

/// Who can be given access to memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySharing {
    /// Nobody: `none`.
    None,
    /// Processes of the machine and network cards: `files`.
    Files,
    /// Machines of one fabric, too: `fabric`.
    Fabric,
    /// The same for processes that are permitted to, which this one is not: `unpermitted`.
    UnpermittedFabric,
}

impl MemorySharing {
    fn named(name: &str) -> Option<MemorySharing> {
        match name {
            "none" => Some(MemorySharing::None),
            "files" => Some(MemorySharing::Files),
            "fabric" => Some(MemorySharing::Fabric),
            "unpermitted" => Some(MemorySharing::UnpermittedFabric),
            _ => None,
        }
    }
}

/// See the top of the file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of GPUs, which are alike: `gpus`; 1 by default.
    pub gpus: usize,
    /// Each of them: `capability`, as 9.0, and `memory_bytes`; `hardware_queues`, otherwise as many as
    /// `CUDA_DEVICE_MAX_CONNECTIONS` says or 8, and their `deal`, `at creation` or `at first work`.
    pub gpu: GpuSettings,
    /// The place of PCI of all GPUs: `bus`, as 0000:1b:00.0. By default each has its own, which no other process has.
    pub bus: Option<String>,
    /// Who can be given access to memory: `sharing`; `files` by default.
    pub sharing: MemorySharing,
    /// The version of CUDA of the driver, as drivers count: `cuda`, as 12.8; 13.0 by default.
    pub cuda: c_int,
    /// NVRTC itself: `nvrtc`, the path of its file. Without it there is no compiler.
    pub nvrtc: Option<PathBuf>,
    /// The version that NVRTC states: `nvrtc_version`, as 12.8; its own by default.
    pub nvrtc_version: Option<(c_int, c_int)>,
    /// The newest compute capability that NVRTC knows: `nvrtc_newest`, as 10.0; all of its own by default.
    pub nvrtc_newest: Option<Capability>,
    /// The folder that keeps the PTX that NVRTC makes: `kernels`. Without it nothing is kept.
    pub kernels: Option<PathBuf>,
}

impl Settings {
    fn of(text: &str) -> Result<Settings, String> {
        let hardware_queues = Some(HardwareQueues { number: connections(), deal: Deal::AtCreation });
        let gpu = GpuSettings { hardware_queues, ..GpuSettings::default() };
        let mut settings = Settings {
            gpus: 1,
            gpu,
            bus: None,
            sharing: MemorySharing::Files,
            cuda: CUDA,
            nvrtc: None,
            nvrtc_version: None,
            nvrtc_newest: None,
            kernels: None,
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            settings.set(line).ok_or_else(|| format!("{FILE} has a line that is not a setting: {line}"))?;
        }
        Ok(settings)
    }

    fn set(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(" = ")?;
        match key {
            "gpus" => self.gpus = value.parse().ok()?,
            "capability" => {
                let (major, minor) = value.split_once('.')?;
                self.gpu.capability = Capability { major: major.parse().ok()?, minor: minor.parse().ok()? };
            }
            "sharing" => self.sharing = MemorySharing::named(value)?,
            "bus" => self.bus = Some(value.into()),
            "cuda" => {
                let (major, minor) = version(value)?;
                self.cuda = major * 1000 + minor * 10;
            }
            "memory_bytes" => self.gpu.memory_bytes = value.parse().ok()?,
            "hardware_queues" => self.gpu.hardware_queues.as_mut()?.number = value.parse().ok()?,
            "deal" => {
                self.gpu.hardware_queues.as_mut()?.deal = match value {
                    "at creation" => Deal::AtCreation,
                    "at first work" => Deal::AtFirstWork,
                    _ => return None,
                };
            }
            "nvrtc" => self.nvrtc = Some(value.into()),
            "nvrtc_version" => self.nvrtc_version = Some(version(value)?),
            "nvrtc_newest" => {
                let (major, minor) = value.split_once('.')?;
                self.nvrtc_newest = Some(Capability { major: major.parse().ok()?, minor: minor.parse().ok()? });
            }
            "kernels" => self.kernels = Some(value.into()),
            _ => return None,
        }
        Some(())
    }
}

/// The hardware queues of each GPU of a process, as NVIDIA's driver reads them when it starts: 1 to 32.
fn connections() -> NonZeroUsize {
    let asked = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|value| value.parse().ok());
    NonZeroUsize::MIN.saturating_add(asked.unwrap_or(8usize).clamp(1, 32) - 1)
}

/// Major and minor number: `12.8`.
fn version(text: &str) -> Option<(c_int, c_int)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `Dl_info` of the system's loader.
#[repr(C)]
struct Origin {
    path: *const c_char,
    base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, origin: *mut Origin) -> c_int;
}

/// The path by which this copy was opened.
fn own_path() -> Option<PathBuf> {
    static PLACE: u8 = 0;
    let mut origin =
        Origin { path: std::ptr::null(), base: std::ptr::null(), symbol: std::ptr::null(), address: std::ptr::null() };
    // SAFETY: the call accepts any address, and fills the place.
    let found = unsafe { dladdr((&raw const PLACE).cast(), &mut origin) };
    if found == 0 || origin.path.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the path, which ends with a zero.
    let path = unsafe { CStr::from_ptr(origin.path) };
    Some(OsStr::from_bytes(path.to_bytes()).into())
}

/// The settings of this copy.
///
/// # Errors
/// A line that is not one of settings.
pub fn settings() -> &'static Result<Settings, String> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = own_path().and_then(|path| std::fs::read_to_string(path.with_file_name(FILE)).ok());
        Settings::of(&text.unwrap_or_default())
    })
}
