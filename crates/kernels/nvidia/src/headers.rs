//! All declarations of this crate as C++, for a comparison with NVIDIA's headers.

use std::fmt::Write as _;

pub use crate::header::{Header, Layout};
pub use crate::table::Declaration;

/// All headers.
pub fn all() -> Vec<Header> {
    vec![crate::driver::header(), crate::nvrtc::header(), crate::cublaslt::header(), crate::nccl::header()]
}

impl Header {
    /// A program in C++ that compiles only if every declaration is that of the header.
    pub fn cpp(&self) -> String {
        let mut text = String::from("#include <cstddef>\n#include <type_traits>\n");
        for include in self.includes {
            let _ = writeln!(text, "#include <{include}>");
        }
        for Declaration { symbol, pointer, since, types } in &self.functions {
            let own = pointer.replacen("(*)", "(*own)", 1);
            let _ = writeln!(text, "namespace {symbol}_type {{ typedef {own}; }}");
            let _ = writeln!(
                text,
                "static_assert(std::is_same<decltype(&::{symbol}), {symbol}_type::own>::value, \"{symbol}\");"
            );
            if let Some(since) = since {
                let base = symbol.rsplit_once("_v").map_or(*symbol, |(base, _)| base);
                let _ = writeln!(
                    text,
                    "static_assert(std::is_same<PFN_{base}_v{since}, {symbol}_type::own>::value, \"{symbol} since {since}\");"
                );
            }
            for (name, size) in types {
                let _ = writeln!(text, "static_assert(sizeof({name}) == {size}, \"size of {name} in {symbol}\");");
            }
        }
        for (name, value) in &self.constants {
            let _ = writeln!(text, "static_assert((long long)({name}) == {value}LL, \"{name}\");");
        }
        for Layout { name, size, fields } in &self.layouts {
            if let Some(size) = size {
                let _ = writeln!(text, "static_assert(sizeof({name}) == {size}, \"size of {name}\");");
            }
            for (field, offset) in fields {
                let _ = writeln!(text, "static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
            }
        }
        text
    }
}
