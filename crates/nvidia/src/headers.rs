//! All declarations of this crate as C++, for a comparison with NVIDIA's headers.

pub use crate::table::Declaration;

/// The declarations of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The file to include.
    pub include: &'static str,
    /// Functions.
    pub functions: Vec<Declaration>,
    /// Constants by their name in the header.
    pub constants: Vec<(&'static str, i64)>,
}

/// All headers.
pub fn all() -> Vec<Header> {
    vec![crate::nvrtc::header()]
}
