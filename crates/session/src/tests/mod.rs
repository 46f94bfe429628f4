//! Tests of the public interface of `session`.

mod fuzz;
