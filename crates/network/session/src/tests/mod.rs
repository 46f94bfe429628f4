//! Tests of the public interface of `session`, and of the codes of `secrets`.

mod codes;
mod fuzz;
