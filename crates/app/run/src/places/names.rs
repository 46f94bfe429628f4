//! The names of a run's files and folders in its folder.

use data::{BYTES_FILE, TOKENIZER_FILE};

/// The folder of checkpoints in that of a run.
pub const CHECKPOINTS: &str = "checkpoints";
/// The folder of the manifests of checkpoints whose data are in the memory of hosts.
pub const MEMORY: &str = "memory";
/// The file of a run's weights.
pub const WEIGHTS: &str = "weights.safetensors";
/// The resolved run file.
pub const RUN_FILE: &str = "run.toml";
/// The file of steps, measurements and events.
pub const METRICS: &str = "metrics.jsonl";
/// The file of messages.
pub const LOG: &str = "train.log";
/// The file of resumptions.
pub const RESUMES: &str = "resumes.jsonl";
/// The file of the algorithms of products.
pub const ALGORITHMS: &str = "product_algorithms.json";
/// The file of the versions of libraries.
pub const LIBRARIES: &str = "gpu_libraries.json";
/// The file of the last step that a run has measured.
pub const TIMELINE: &str = "timeline.json";
/// The file of the latest state, renewed while the run trains.
pub const STATUS: &str = "status.json";
/// The file in a run's folder by which processes bring its checkpoints one after the other.
pub const STORE_LOCK: &str = ".store.lock";

/// The files of a run in its folder.
pub const RUN_FILES: [&str; 11] =
    [RUN_FILE, METRICS, RESUMES, TIMELINE, LOG, WEIGHTS, TOKENIZER_FILE, BYTES_FILE, STATUS, ALGORITHMS, LIBRARIES];
