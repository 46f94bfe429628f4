//! Two layouts of one run: the promise between them, and the commands `prove` and `diff`.

pub mod comparison;
pub mod diff;
pub mod pair;
pub mod prove;
