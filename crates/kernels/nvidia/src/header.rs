//! The declarations of a library.

use crate::table::Declaration;

/// A structure: its name, its size, and fields with their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The type in C++.
    pub name: &'static str,
    /// Its size in bytes; `None` where the header's may be longer.
    pub size: Option<usize>,
    /// Fields as C++ names them, and their offsets in bytes.
    pub fields: Vec<(&'static str, usize)>,
}

/// The declarations of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The files to include.
    pub includes: &'static [&'static str],
    pub functions: Vec<Declaration>,
    /// Constants by their name in the header.
    pub constants: Vec<(&'static str, i64)>,
    /// Structures.
    pub layouts: Vec<Layout>,
}
