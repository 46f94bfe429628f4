//! Tests of the public interface of `interchange`.

mod published;
