//! Tests of the public interface of `interchange`.

mod every_family;
mod published;
