//! Tests of the public interface of `launcher`.

mod launchers;
mod rank_placement;
