//! Tests of the public interface of `mesh`.

mod boxes;
mod groups;
