//! Objects as a store lists them.

/// An object, and the signs by which a changed one is noticed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Below the address of the store that listed it.
    pub name: String,
    pub bytes: u64,
    /// The store's own sign of its content, if it has one.
    pub tag: Option<String>,
    /// Milliseconds since 1970.
    pub modified_ms: i64,
}
