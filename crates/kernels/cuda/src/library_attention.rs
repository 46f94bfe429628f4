//! Attention of a rank by a library: the parts in which it is computed, and the memory that the library uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use gpu::{
    AttentionLibrary, AttentionPass, AttentionPlaces, CausalAttention, DevicePointer, DriverError, Gpu, StreamHandle,
};
use sync::lock;

use crate::launch::LibraryAttention;
use crate::owned::{Owned, allocate};

/// Bytes of a log-sum-exp, and of an element of other tensors.
const SINGLE_BYTES: u64 = 4;
const NARROW_BYTES: u64 = 2;

/// Sequences, and key heads with their queries, that are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    sequences: u64,
    kv_heads: u64,
}

/// Attention by a library. Its parts are as large as the workspace allows, and belong to the attention alone: a run and
/// its continuation take the same.
pub(crate) struct AttentionLauncher {
    library: Box<dyn AttentionLibrary>,
    workspace: Owned<DevicePointer>,
    workspace_bytes: usize,
    /// `None` where the library does not have the attention.
    parts: Mutex<HashMap<CausalAttention, Option<Part>>>,
}

impl AttentionLauncher {
    /// Allocates the workspace.
    pub(crate) fn new(
        library: Box<dyn AttentionLibrary>,
        gpu: &Arc<dyn Gpu>,
        workspace_bytes: usize,
    ) -> Result<AttentionLauncher, DriverError> {
        let workspace = allocate(gpu, workspace_bytes)?;
        Ok(AttentionLauncher { library, workspace, workspace_bytes, parts: Mutex::default() })
    }

    /// Its name and version.
    pub(crate) fn name(&self) -> String {
        self.library.name()
    }

    /// Whether the library has this attention, in parts if not at once.
    pub(crate) fn has(&self, attention: &CausalAttention) -> Result<bool, DriverError> {
        Ok(self.part(attention)?.is_some())
    }

    fn part(&self, attention: &CausalAttention) -> Result<Option<Part>, DriverError> {
        if let Some(known) = lock(&self.parts).get(attention) {
            return Ok(*known);
        }
        let found = self.largest_part(attention)?;
        lock(&self.parts).insert(*attention, found);
        Ok(found)
    }

    /// Fewer sequences first, then fewer heads of one: divisors, so that all parts are alike.
    fn largest_part(&self, attention: &CausalAttention) -> Result<Option<Part>, DriverError> {
        let CausalAttention { sequences, kv_heads, .. } = *attention;
        let of_sequences = divisors(sequences).map(|sequences| Part { sequences, kv_heads });
        let of_heads = divisors(kv_heads).skip(1).map(|kv_heads| Part { sequences: 1, kv_heads });
        // Memory grows with the pairs of sequences and heads, so parts that are too large by it are not asked for.
        let mut most = sequences * kv_heads;
        for part in of_sequences.chain(of_heads) {
            let pairs = part.sequences * part.kv_heads;
            if pairs > most {
                continue;
            }
            let of_part = attention.of_part(part.sequences, part.kv_heads);
            let Some(bytes) = self.library.workspace_bytes(&of_part)? else { return Ok(None) };
            if bytes <= self.workspace_bytes {
                return Ok(Some(part));
            }
            most = (pairs as f64 * self.workspace_bytes as f64 / bytes as f64).ceil() as u64;
        }
        Ok(None)
    }

    /// Computes as work of `stream` attention that the library has.
    pub(crate) fn attend(&self, stream: StreamHandle, whole: &LibraryAttention) -> Result<(), DriverError> {
        let LibraryAttention { attention, scale, places } = whole;
        let Some(part) = self.part(attention)? else { return Ok(()) };
        let of_part = attention.of_part(part.sequences, part.kv_heads);
        for sequence in (0..attention.sequences).step_by(part.sequences as usize) {
            for kv_head in (0..attention.kv_heads).step_by(part.kv_heads as usize) {
                let places = places_from(attention, places, sequence, kv_head);
                self.library.attend(stream, &of_part, *scale, &places, self.workspace.handle())?;
            }
        }
        Ok(())
    }
}

/// The divisors of a count, the largest first.
fn divisors(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).filter(move |parts| count.is_multiple_of(*parts)).map(move |parts| count / parts)
}

/// The places of the sequences from one on and of the key heads from one on, with their queries.
fn places_from(attention: &CausalAttention, places: &AttentionPlaces, sequence: u64, kv_head: u64) -> AttentionPlaces {
    let CausalAttention { pass, length, heads, kv_heads, head_dim, strides, .. } = *attention;
    let (token, head) = (sequence * length, kv_head * (heads / kv_heads));
    // Queries and outputs have heads of their own, keys and values have key heads.
    let moved = |places: [DevicePointer; 4], strides: [u64; 4], heads: [u64; 4]| -> [DevicePointer; 4] {
        std::array::from_fn(|index| {
            let elements = token * strides[index] + heads[index] * head_dim;
            places[index].offset((NARROW_BYTES * elements) as usize)
        })
    };
    AttentionPlaces {
        inputs: moved(places.inputs, strides.inputs, [head, kv_head, kv_head, head]),
        log_sum_exp: places.log_sum_exp.offset((SINGLE_BYTES * (token * strides.log_sum_exp + head)) as usize),
        gradients: match pass {
            AttentionPass::Forward => places.gradients,
            AttentionPass::Backward(strides) => moved(places.gradients, strides, [head, head, kv_head, kv_head]),
        },
    }
}
