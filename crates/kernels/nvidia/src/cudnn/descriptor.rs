//! Descriptors with their owner.

use std::sync::Arc;

use super::calls::Value;
use super::error::AttentionError;
use super::functions::{Attribute, Functions, Kind, RawDescriptor};

/// A descriptor, destroyed at its end.
pub(super) struct Descriptor {
    functions: Arc<Functions>,
    pub(super) raw: RawDescriptor,
}

impl Descriptor {
    /// One whose parts the library fills.
    pub(super) fn empty(functions: &Arc<Functions>, kind: Kind) -> Result<Descriptor, AttentionError> {
        Ok(Descriptor { functions: Arc::clone(functions), raw: functions.create(kind)? })
    }

    /// One with these parts.
    pub(super) fn of(
        functions: &Arc<Functions>,
        kind: Kind,
        parts: &[(Attribute, Value<'_>)],
    ) -> Result<Descriptor, AttentionError> {
        let descriptor = Descriptor::empty(functions, kind)?;
        for (attribute, value) in parts {
            functions.set(descriptor.raw, *attribute, *value)?;
        }
        functions.finalize(descriptor.raw)?;
        Ok(descriptor)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.functions.destroy(self.raw);
    }
}
