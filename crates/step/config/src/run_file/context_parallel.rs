//! The keys of context parallelism besides its degree.

use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::context_parallel::{ChunkOrder, ContextKind, ContextParallel};
use crate::data_spec::DataSpec;
use crate::degrees::Degrees;
use crate::model::ModelSpec;

/// The value in a run file.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Kind(ContextKind),
    /// The cheapest that the heads allow.
    Auto,
}

const KINDS: &Choices<Asked> = &[
    ("auto", Asked::Auto),
    ("gather", Asked::Kind(ContextKind::Gather)),
    ("heads", Asked::Kind(ContextKind::Heads)),
    ("ring", Asked::Kind(ContextKind::Ring)),
];
const CHUNK_ORDERS: &Choices<ChunkOrder> =
    &[("balanced", ChunkOrder::Balanced), ("contiguous", ChunkOrder::Contiguous)];

/// The name of a kind in run files.
pub fn context_kind_name(kind: ContextKind) -> &'static str {
    name_of(KINDS, Asked::Kind(kind))
}

/// Reads the keys.
pub fn read(reader: &mut Reader, degrees: Degrees, data: &DataSpec, model: &ModelSpec) -> ContextParallel {
    let kind = match reader.choice("parallelism.cp_kind", KINDS, Asked::Kind(ContextParallel::DEFAULT.kind)) {
        Asked::Kind(kind) => kind,
        Asked::Auto => ContextKind::cheapest(model, degrees),
    };
    let ContextParallel { kind, chunks } = ContextParallel::of(kind, data);
    ContextParallel { kind, chunks: reader.choice("parallelism.cp_chunks", CHUNK_ORDERS, chunks) }
}

/// Writes the keys.
pub fn write(ContextParallel { kind, chunks }: ContextParallel, writer: &mut Writer) {
    writer.text("cp_kind", context_kind_name(kind));
    writer.text("cp_chunks", name_of(CHUNK_ORDERS, chunks));
}
