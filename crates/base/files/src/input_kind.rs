//! The files that commands read, and the most that one of each kind may hold.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = KIB << 10;
const GIB: u64 = MIB << 10;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    RunFile,
    /// A schedule file.
    Schedule,
    /// Sequences of tokens as JSON.
    Sequences,
    /// A profile of a cluster or of a trainer.
    Profile,
    /// A table of measured runs.
    Table,
    /// A trace of a step.
    Trace,
    /// A list of hosts.
    Hosts,
    Tokenizer,
    /// JSON next to published weights: a model's configuration, or an index of files.
    ModelDescription,
    /// The manifest of a checkpoint.
    Manifest,
    /// Records of a run, one in a line.
    Records,
    /// Algorithms that were chosen for the products of a run.
    ProductAlgorithms,
    /// Libraries that a run on GPUs has used.
    GpuLibraries,
    /// The secret of a run.
    Token,
    /// Text to train or to measure on.
    Text,
    /// Tensors, tokens and other data that are read in parts.
    Data,
}

impl InputKind {
    /// All kinds.
    pub const ALL: [InputKind; 16] = [
        InputKind::RunFile,
        InputKind::Schedule,
        InputKind::Sequences,
        InputKind::Profile,
        InputKind::Table,
        InputKind::Trace,
        InputKind::Hosts,
        InputKind::Tokenizer,
        InputKind::ModelDescription,
        InputKind::Manifest,
        InputKind::Records,
        InputKind::ProductAlgorithms,
        InputKind::GpuLibraries,
        InputKind::Token,
        InputKind::Text,
        InputKind::Data,
    ];

    /// How long a pipe may stay silent before its first byte.
    pub const FIRST_BYTE: Duration = Duration::from_secs(10);

    /// The kind with its article, for messages.
    pub fn name(self) -> &'static str {
        match self {
            InputKind::RunFile => "a run file",
            InputKind::Schedule => "a schedule file",
            InputKind::Sequences => "a file of sequences",
            InputKind::Profile => "a profile",
            InputKind::Table => "a table of runs",
            InputKind::Trace => "a trace",
            InputKind::Hosts => "a list of hosts",
            InputKind::Tokenizer => "a tokenizer",
            InputKind::ModelDescription => "a description of a model",
            InputKind::Manifest => "a manifest",
            InputKind::Records => "a file of records",
            InputKind::ProductAlgorithms => "a file of algorithms",
            InputKind::GpuLibraries => "a file of libraries",
            InputKind::Token => "a token",
            InputKind::Text => "a text",
            InputKind::Data => "a file of data",
        }
    }

    /// The most bytes of a file of this kind; `None` where it is read in parts.
    pub fn limit_bytes(self) -> Option<u64> {
        match self {
            InputKind::Token => Some(4 * KIB),
            InputKind::RunFile
            | InputKind::Profile
            | InputKind::Hosts
            | InputKind::ProductAlgorithms
            | InputKind::GpuLibraries => Some(4 * MIB),
            // A value of JSON takes up to twenty times its text in memory.
            InputKind::ModelDescription => Some(32 * MIB),
            InputKind::Schedule | InputKind::Table | InputKind::Sequences => Some(64 * MIB),
            InputKind::Tokenizer | InputKind::Trace => Some(256 * MIB),
            InputKind::Manifest | InputKind::Records => Some(GIB),
            InputKind::Text => Some(16 * GIB),
            InputKind::Data => None,
        }
    }

    /// The most bytes that are taken from a pipe, which does not say how many will come; `None` where a pipe is
    /// refused.
    pub fn pipe_limit_bytes(self) -> Option<u64> {
        match self {
            // Read more than once, or by several processes, or named by other files.
            InputKind::Tokenizer
            | InputKind::ModelDescription
            | InputKind::Manifest
            | InputKind::Records
            | InputKind::ProductAlgorithms
            | InputKind::GpuLibraries
            | InputKind::Token
            | InputKind::Data => None,
            InputKind::RunFile
            | InputKind::Schedule
            | InputKind::Sequences
            | InputKind::Profile
            | InputKind::Table
            | InputKind::Trace
            | InputKind::Hosts
            | InputKind::Text => Some(self.limit_bytes()?.min(512 * MIB)),
        }
    }

    /// Whether people write such a file, in an editor or a spreadsheet that may begin it with a byte order mark.
    pub(crate) fn is_typed(self) -> bool {
        match self {
            InputKind::RunFile
            | InputKind::Schedule
            | InputKind::Sequences
            | InputKind::Profile
            | InputKind::Table
            | InputKind::Trace
            | InputKind::Hosts
            | InputKind::ModelDescription => true,
            InputKind::Tokenizer
            | InputKind::Manifest
            | InputKind::Records
            | InputKind::ProductAlgorithms
            | InputKind::GpuLibraries
            | InputKind::Token
            | InputKind::Text
            | InputKind::Data => false,
        }
    }

    /// The remedy for a file that is too large.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            InputKind::Text => "use `pleach data tokenize` on parts of it, and train on the token files",
            InputKind::Sequences => "use several files",
            InputKind::RunFile
            | InputKind::Schedule
            | InputKind::Profile
            | InputKind::Table
            | InputKind::Trace
            | InputKind::Hosts
            | InputKind::Tokenizer
            | InputKind::ModelDescription
            | InputKind::Manifest
            | InputKind::Records
            | InputKind::ProductAlgorithms
            | InputKind::GpuLibraries
            | InputKind::Token
            | InputKind::Data => "use a smaller file",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> String {
        let (name, unit) =
            [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)].into_iter().find(|(_, unit)| bytes >= *unit).expect("a unit");
        format!("{} {name}", bytes / unit)
    }

    #[test]
    fn the_page_of_limits_has_every_kind() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/limits.md")).expect("a page");
        for kind in InputKind::ALL {
            let limit = kind.limit_bytes().map_or("any".into(), size);
            let pipe = kind.pipe_limit_bytes().map_or("no".into(), size);
            let row = format!("| {} | {limit} | {pipe} |\n", kind.name());
            assert!(page.contains(&row), "docs/limits.md has no row {row}");
        }
    }
}
