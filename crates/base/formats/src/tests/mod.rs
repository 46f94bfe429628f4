//! Tests of the public interface of `formats`.

mod tables;
