//! From the key `run.device` to what engines open ranks on.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use config::DeviceChoice;
use cuda::GraphUse;
use device::{DeviceError, DeviceKind, Numerics};
use gpu::{DeviceFacts, Driver};
use nvidia::nvrtc::{Cache, Compiler};
use nvidia::{LibraryError, Search};

use crate::engine::attention_source::{AttentionSource, AttentionUse};
use crate::engine::carried_kernels::compiled_or_carried;
use crate::engine::gpu_code::{CodeForm, CompiledKernels, KernelCode};
use crate::engine::gpu_error::GpuError;
use crate::engine::gpus::{Gpus, usable_gpus};
use crate::engine::kernel_archive::ArchivedKernels;
use crate::engine::product_source::ProductSource;

/// The devices of a run's ranks, ready for engines.
#[derive(Clone)]
pub enum RunDevice {
    /// Cores of this machine.
    Cpu,
    /// GPUs of this machine.
    Gpus(Arc<Gpus>),
}

/// Where the libraries and the code are that GPUs need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuPlaces {
    /// Folders and files of NVIDIA's libraries, which are looked at before those of the system's loader.
    pub libraries: Vec<PathBuf>,
    /// Where compiled kernels are kept.
    pub code: PathBuf,
    /// An archive of compiled kernels that the program carries, used where there is no compiler, or none that knows the
    /// GPU; empty where it carries
    /// none, and then the file `pleach-kernels` of the first folder of libraries that has one is used.
    pub carried: &'static [u8],
}

impl GpuPlaces {
    fn search(&self) -> Search {
        Search::with(self.libraries.clone())
    }
}

impl RunDevice {
    /// Opens what `choice` names: of GPUs the first `wanted`, or all. Their ranks launch kernels as `graphs` say.
    ///
    /// # Errors
    /// A driver, a GPU or a compiler that is missing or too old.
    pub fn open(
        choice: DeviceChoice,
        wanted: Option<usize>,
        graphs: GraphUse,
        places: &GpuPlaces,
    ) -> Result<RunDevice, GpuError> {
        RunDevice::open_with_attention(choice, wanted, graphs, AttentionUse::Kernels, places)
    }

    /// Returns the same as [`RunDevice::open`], with attention by a library, if runs may use one.
    ///
    /// # Errors
    /// The errors of [`RunDevice::open`].
    pub fn open_with_attention(
        choice: DeviceChoice,
        wanted: Option<usize>,
        graphs: GraphUse,
        attention: AttentionUse,
        places: &GpuPlaces,
    ) -> Result<RunDevice, GpuError> {
        let Some(Opened { driver, products, attention: found }) = driver(choice, places)? else {
            return Ok(RunDevice::Cpu);
        };
        let attention = match attention {
            AttentionUse::Kernels => AttentionSource::None,
            AttentionUse::LibraryIfFound => found,
        };
        // The driver's list is judged first: without a GPU nobody needs a compiler.
        let facts = usable_gpus(&*driver, wanted)?;
        let code = kernels(Compiler::open(&places.search()), places, &facts)?;
        let gpus = Gpus::new(driver, DeviceKind::CUDA, code, wanted)?.with_products(products).with_attention(attention);
        Ok(RunDevice::Gpus(Arc::new(gpus.with_graphs(graphs))))
    }
}

/// The file of compiled kernels in a folder of libraries: the archive of `kernel_archive`.
const ARCHIVE: &str = "pleach-kernels";

/// The kernels of `compiler`, or else those that the program carries or that are among the libraries; the latter also
/// for those of `gpus` that the compiler does not know.
fn kernels(
    compiler: Result<Compiler, LibraryError>,
    places: &GpuPlaces,
    gpus: &[DeviceFacts],
) -> Result<Box<dyn KernelCode>, GpuError> {
    match compiler {
        Ok(compiler) => {
            let compiled = CompiledKernels::new(compiler, Cache::in_folder(&places.code), CodeForm::Cubin);
            compiled_or_carried(compiled, gpus, || archive(places))
        }
        Err(error) => match archive(places)? {
            Some(archive) => Ok(Box::new(ArchivedKernels::read(&archive)?)),
            None => Err(GpuError::NoCompiler(DeviceKind::CUDA, error.to_string())),
        },
    }
}

/// The archive that the program carries, or the first one in a folder of libraries.
fn archive(places: &GpuPlaces) -> Result<Option<Cow<'static, [u8]>>, GpuError> {
    if !places.carried.is_empty() {
        return Ok(Some(Cow::Borrowed(places.carried)));
    }
    let mut files = places.libraries.iter().map(|folder| folder.join(ARCHIVE));
    let Some(file) = files.find(|file| file.is_file()) else { return Ok(None) };
    match std::fs::read(&file) {
        Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
        Err(cause) => Err(GpuError::UnreadArchive { file, cause }),
    }
}

/// The GPUs that [`RunDevice::open`] would have, without a compiler: none for other devices.
///
/// # Errors
/// A driver or a GPU that is missing or too old.
pub fn gpus_of(choice: DeviceChoice, wanted: Option<usize>, places: &GpuPlaces) -> Result<Vec<DeviceFacts>, GpuError> {
    driver(choice, places)?.map_or(Ok(vec![]), |opened| usable_gpus(&*opened.driver, wanted))
}

/// A driver, and the libraries of its GPUs.
struct Opened {
    driver: Arc<dyn Driver>,
    products: ProductSource,
    attention: AttentionSource,
}

/// The driver of a choice that has GPUs, and their libraries.
fn driver(choice: DeviceChoice, places: &GpuPlaces) -> Result<Option<Opened>, GpuError> {
    match choice {
        DeviceChoice::Cpu => Ok(None),
        DeviceChoice::Cuda => {
            let opened = nvidia::driver::Library::open(&places.search());
            let driver = opened.map_err(|error| GpuError::NoDriver(error.to_string()))?;
            let search = || places.search();
            let (products, attention) = (ProductSource::nvidia(search()), AttentionSource::nvidia(search()));
            Ok(Some(Opened { driver: Arc::new(driver), products, attention }))
        }
    }
}

/// The kind of the devices of a choice.
pub fn kind(choice: DeviceChoice) -> DeviceKind {
    match choice {
        DeviceChoice::Cpu => DeviceKind::CPU,
        DeviceChoice::Cuda => DeviceKind::CUDA,
    }
}

/// Compares the numerics of a run with those that its device has, whichever GPU of NVIDIA it is.
///
/// # Errors
/// [`DeviceError::Refused`] with the first choice that the device does not have.
pub fn check_numerics(device: DeviceChoice, numerics: Numerics) -> Result<(), DeviceError> {
    match device {
        DeviceChoice::Cpu => numerics.accepted_by(kind(device), cpu::accepts),
        DeviceChoice::Cuda => numerics.accepted_by(kind(device), cuda::accepts),
    }
}

#[cfg(test)]
mod tests {
    use config::{Format, Products};

    use super::*;

    #[test]
    fn messages_offer_the_orders_of_products_that_a_device_has() {
        for device in [DeviceChoice::Cpu, DeviceChoice::Cuda] {
            for products in Products::ALL {
                let numerics = Numerics { products, stored: Format::Bf16, ..Numerics::SINGLE };
                assert_eq!(
                    check_numerics(device, numerics).is_ok(),
                    products.is_of(device),
                    "{device:?}, {products:?}"
                );
            }
        }
    }

    /// The error of kernels without a compiler.
    fn refusal(carried: &'static [u8]) -> String {
        let compiler = Compiler::open(&Search::only([PathBuf::from("/no/such/folder")]));
        let places = GpuPlaces { carried, ..GpuPlaces::default() };
        let kernels = kernels(compiler, &places, &[]);
        kernels.err().map_or("kernels".into(), |error| error.to_string())
    }

    #[test]
    fn without_a_compiler_the_kernels_of_the_program_are_used_or_refused() {
        let none = refusal(b"");
        assert!(none.contains("NVRTC is missing: libnvrtc.so.13 is not in "), "{none}");
        let remedy = "; install a CUDA toolkit, or `pip install nvidia-cuda-nvrtc`, and give its folder in PLEACH_CUDA";
        assert!(none.ends_with(remedy) && none.matches("nvidia-cuda-nvrtc").count() == 1, "{none}");
        let other = refusal(b"other bytes");
        let said = "the archive of compiled kernels is damaged: it begins with other bytes; make it again with \
                    tools/release.sh";
        assert_eq!(other, said);
        let kernels: &'static [u8] = ArchivedKernels::of_no_target().leak();
        assert_eq!(refusal(kernels), "kernels");
    }

    #[test]
    fn a_program_without_kernels_takes_those_of_a_folder_of_libraries() {
        let folders = ["none", "damaged", "whole"]
            .map(|name| std::env::temp_dir().join(format!("pleach-kernels-{name}-{}", std::process::id())));
        folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder"));
        std::fs::write(folders[1].join(ARCHIVE), b"other bytes").expect("written");
        std::fs::write(folders[2].join(ARCHIVE), ArchivedKernels::of_no_target()).expect("written");
        let said = |libraries: &[usize]| {
            let libraries = libraries.iter().map(|folder| folders[*folder].clone()).collect();
            let places = GpuPlaces { libraries, ..GpuPlaces::default() };
            let compiler = Compiler::open(&Search::only([PathBuf::from("/no/such/folder")]));
            let found = kernels(compiler, &places, &[]);
            found.err().map_or("kernels".into(), |error| error.to_string())
        };
        assert!(said(&[0]).contains("NVRTC is missing"), "{}", said(&[0]));
        assert!(said(&[0, 1]).contains("the archive of compiled kernels is damaged"), "{}", said(&[0, 1]));
        assert_eq!([said(&[2]), said(&[0, 2, 1])], ["kernels", "kernels"]);
        folders.iter().for_each(|folder| std::fs::remove_dir_all(folder).expect("removed"));
    }
}
