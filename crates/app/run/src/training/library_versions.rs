//! The libraries that compute products and attention of a run on GPUs, in `gpu_libraries.json` of its folder: a run
//! that resumes with others continues with other bits, and says so.

use std::collections::BTreeSet;
use std::path::Path;

use config::ProductAlgorithms;
use files::{InputError, InputKind};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::places::names::LIBRARIES;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::Part;
use crate::training::algorithms_file::Platform;
use crate::training::product_algorithms::all_gather;

/// More than the GPU models, drivers and libraries of any run.
const MOST: usize = 64;

/// A GPU model with its driver and its libraries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    gpu: String,
    driver: String,
    products: String,
    /// None where attention is computed by pleach's kernels.
    attention: Option<String>,
}

impl Used {
    /// `NVIDIA H200 (CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.28.1)`
    fn described(&self) -> String {
        let Used { gpu, driver, products, attention } = self;
        let attention = attention.as_deref().unwrap_or("attention by pleach's kernels");
        format!("{gpu} ({driver}, {products}, {attention})")
    }
}

/// The file: what the newest start of the run had.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    gpus: BTreeSet<Used>,
}

/// Records the libraries of all processes in the folder of the run, `folder`. A line for process 0 to print where an
/// earlier start of the run had others.
///
/// # Errors
/// A file that cannot be written; failures of other processes.
pub fn record(
    process_group: &ProcessGroup,
    folder: &Path,
    (own, attention): (&[Platform], Option<&String>),
    algorithms: ProductAlgorithms,
) -> Result<Option<String>, Failure> {
    let used = |platform: &Platform| Used {
        gpu: platform.gpu.clone(),
        driver: platform.driver.clone(),
        products: platform.library.clone(),
        attention: attention.cloned(),
    };
    let own: Vec<Used> = own.iter().map(used).collect();
    let gpus: BTreeSet<Used> = all_gather(process_group, "libraries of GPUs", &own)?.into_iter().flatten().collect();
    let path = folder.join(LIBRARIES);
    match process_group.once("the file of libraries", || update(&path, gpus, algorithms))? {
        Part::First(line) => Ok(line),
        Part::Other(_) => Ok(None),
    }
}

/// Writes the file where it says something else; the line about that.
fn update(path: &Path, gpus: BTreeSet<Used>, algorithms: ProductAlgorithms) -> Result<Option<String>, Failure> {
    let line = match read(path) {
        Ok(None) => None,
        Ok(Some(earlier)) if earlier == gpus => return Ok(None),
        Ok(Some(earlier)) => changed(&earlier, &gpus, algorithms),
        Err(error) => Some(format!(
            "warning: {} {error}; the run may continue with other libraries, and then with other bits\n",
            path.display()
        )),
    };
    let text = serde_json::to_string_pretty(&Written { gpus }).map_err(|error| Failure::Work(error.to_string()))?;
    let written = files::replace(path, text + "\n");
    written.map_err(|error| Failure::Write(format!("{} cannot be written: {error}", path.display())))?;
    Ok(line)
}

/// The libraries of an earlier start, if there was one.
fn read(path: &Path) -> Result<Option<BTreeSet<Used>>, String> {
    let text = match files::read_text_of_file(path, InputKind::GpuLibraries) {
        Ok(text) => text,
        Err(InputError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let Written { gpus } = serde_json::from_str(&text).map_err(|error| format!("cannot be used: {error}"))?;
    match gpus.len() {
        ..=MOST => Ok(Some(gpus)),
        more => Err(format!("cannot be used: it has {more} GPUs; at most {MOST}")),
    }
}

/// The line about a start with other libraries than an earlier one. Of timed algorithms, the choice of algorithms says
/// what changes for products.
fn changed(earlier: &BTreeSet<Used>, now: &BTreeSet<Used>, algorithms: ProductAlgorithms) -> Option<String> {
    let attention = |all: &BTreeSet<Used>| -> BTreeSet<_> { all.iter().map(|used| used.attention.clone()).collect() };
    match algorithms {
        ProductAlgorithms::First => {}
        ProductAlgorithms::Timed | ProductAlgorithms::Equal if attention(earlier) != attention(now) => {}
        ProductAlgorithms::Timed | ProductAlgorithms::Equal => return None,
    }
    let list = |all: &BTreeSet<Used>| all.iter().map(Used::described).collect::<Vec<_>>().join(", ");
    Some(format!(
        "warning: this run was computed by {}, and continues on {}: with other bits, within the bounds of other sums\n",
        list(earlier),
        list(now)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200(products: &str, attention: Option<&str>) -> Used {
        let (products, attention) =
            (format!("cuBLASLt {products}"), attention.map(|version| format!("cuDNN {version}")));
        Used { gpu: "NVIDIA H200".into(), driver: "CUDA 13.0".into(), products, attention }
    }

    fn set(all: &[Used]) -> BTreeSet<Used> {
        all.iter().cloned().collect()
    }

    #[test]
    fn other_libraries_are_named_once() {
        let path = std::env::temp_dir().join(format!("pleach-libraries-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let start = |used: Used, algorithms| update(&path, set(&[used]), algorithms).expect("written");
        let (first, timed) = (ProductAlgorithms::First, ProductAlgorithms::Timed);
        let old = h200("13.1.0", Some("9.28.1"));
        assert_eq!(start(old.clone(), first), None, "no file, no line");
        assert_eq!(start(old.clone(), first), None);
        let line = start(h200("13.2.0", Some("9.28.1")), first).expect("a line");
        let expected = "warning: this run was computed by NVIDIA H200 (CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.28.1), and continues \
                        on NVIDIA H200 (CUDA 13.0, cuBLASLt 13.2.0, cuDNN 9.28.1): with other bits, within the bounds of other \
                        sums\n";
        assert_eq!(line, expected);
        assert_eq!(start(h200("13.2.0", Some("9.28.1")), first), None, "said once");
        assert_eq!(start(old, timed), None, "the choice of algorithms says it");
        let line = start(h200("13.1.0", None), timed).expect("a line");
        assert!(line.contains("continues on NVIDIA H200 (CUDA 13.0, cuBLASLt 13.1.0, attention by pleach's kernels)"));
        std::fs::write(&path, "{\"gpus\":[{}]}").expect("written");
        let line = start(h200("13.1.0", None), first).expect("a line");
        assert!(line.contains(" cannot be used: missing field `gpu`") && line.contains("with other bits"), "{line}");
        std::fs::remove_file(&path).expect("removed");
    }
}
