//! Panics of a library that the caller catches and tells as errors of its input.

use std::panic::{set_hook, take_hook};

/// The library of tokenizers says by a panic that a file contradicts itself.
const LIBRARY: &str = "/tokenizers-";

/// From now on panics of that library print nothing: what they say is in the error.
pub fn leave_libraries_to_their_callers() {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        let is_library = panic.location().is_some_and(|location| location.file().contains(LIBRARY));
        if !is_library {
            usual(panic);
        }
    }));
}
