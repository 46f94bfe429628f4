//! Where the library of attention of a run's GPUs comes from.

use std::sync::{Arc, OnceLock};

use device::DeviceError;
use gpu::{AttentionLibrary, DeviceFacts, Gpu};
use gpu_rank::named;
use nvidia::{LibraryError, Search, cudnn};

/// Bytes of the workspace of a rank. A backward pass of cuDNN that has the same bits at every call keeps the gradients
/// of scores in 16 bits: 512 MiB for four heads of 8,192 tokens, and 64 MiB for what is as long as the tokens.
const WORKSPACE_BYTES: usize = 576 << 20;

/// Memory of a GPU for the kernels of cuDNN: an estimate.
const KERNEL_BYTES: usize = 96 << 20;

/// Memory of a GPU that a rank takes for cuDNN, where it is found.
pub const ATTENTION_RANK_BYTES: u64 = (WORKSPACE_BYTES + KERNEL_BYTES) as u64;

/// Whether a run may use a library of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionUse {
    /// Kernels of pleach compute attention.
    #[default]
    Kernels,
    /// A library does where it is there. The intervals of the run's data are the past of each token.
    LibraryIfFound,
}

/// cuDNN, once it has been looked for.
type Opened = OnceLock<Result<Arc<cudnn::Library>, LibraryError>>;

/// The attention library of a rank.
pub(crate) struct RankAttention {
    pub library: Box<dyn AttentionLibrary>,
    pub workspace_bytes: usize,
}

/// Opens a library for the open GPU of a number.
pub type OpenAttention = Box<dyn Fn(usize) -> Option<Box<dyn AttentionLibrary>> + Send + Sync>;

/// The library of attention, which a run with products of the device uses where it is there. The intervals of the
/// run's data are the past of each token.
pub enum AttentionSource {
    /// Attention is computed by pleach's kernels.
    None,
    /// cuDNN, which is opened when a run may use it.
    Nvidia {
        search: Search,
        /// Filled by the first question.
        opened: Opened,
    },
    /// A library of the caller's driver, with bytes of the workspace of a rank.
    Given { name: &'static str, workspace_bytes: usize, open: OpenAttention },
}

impl AttentionSource {
    /// cuDNN in these places.
    pub fn nvidia(search: Search) -> AttentionSource {
        AttentionSource::Nvidia { search, opened: Opened::new() }
    }

    /// Looks for the library, and returns its name and version, or why attention is computed by pleach's kernels.
    ///
    /// # Errors
    /// A reason, as a part of a sentence.
    pub fn find(&self) -> Result<String, String> {
        match self {
            AttentionSource::None => Err("these GPUs were opened without a library".into()),
            AttentionSource::Nvidia { search, opened } => match cudnn(search, opened) {
                Ok(library) => Ok(format!("cuDNN {}", library.version())),
                Err(error) => Err(error.to_string()),
            },
            AttentionSource::Given { name, .. } => Ok((*name).into()),
        }
    }

    /// Memory of a GPU that a rank takes for the library; none where it is missing.
    pub(crate) fn rank_bytes(&self) -> u64 {
        match self {
            AttentionSource::None => 0,
            AttentionSource::Nvidia { .. } if self.find().is_err() => 0,
            AttentionSource::Nvidia { .. } => ATTENTION_RANK_BYTES,
            AttentionSource::Given { workspace_bytes, .. } => *workspace_bytes as u64,
        }
    }

    /// The library for a rank on an open GPU; `None` where it is missing.
    pub(crate) fn open(&self, facts: &DeviceFacts, gpu: &Arc<dyn Gpu>) -> Result<Option<RankAttention>, DeviceError> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| DeviceError::Accelerator {
            what: format!(
                "open a library of attention for {} (run.attention_library = \"off\" needs none)",
                named(facts)
            ),
            cause,
        };
        match self {
            AttentionSource::None => Ok(None),
            AttentionSource::Nvidia { search, opened } => {
                let Ok(library) = cudnn(search, opened) else { return Ok(None) };
                let handle = cudnn::Handle::open(library, Arc::clone(gpu)).map_err(|error| failed(error.into()))?;
                Ok(Some(RankAttention { library: Box::new(handle), workspace_bytes: WORKSPACE_BYTES }))
            }
            AttentionSource::Given { workspace_bytes, open, .. } => match open(facts.ordinal) {
                Some(library) => Ok(Some(RankAttention { library, workspace_bytes: *workspace_bytes })),
                None => Err(failed("this driver has not opened it".into())),
            },
        }
    }
}

fn cudnn(search: &Search, opened: &Opened) -> Result<Arc<cudnn::Library>, LibraryError> {
    opened.get_or_init(|| cudnn::Library::open(search).map(Arc::new)).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_takes_no_memory_and_is_named_with_its_wheel() {
        let source = AttentionSource::nvidia(Search::only(["/no/such/folder".into()]));
        let expected = "cuDNN is missing: libcudnn.so.9 is not in /no/such/folder; `pip install nvidia-cudnn-cu13`, and give \
                        its folder";
        assert_eq!(source.find().expect_err("no library"), expected);
        assert_eq!(source.rank_bytes(), 0);
    }
}
