//! Tests of the public interface of `stores`.

mod absent;
