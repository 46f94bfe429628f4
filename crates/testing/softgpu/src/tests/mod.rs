//! Tests of the public interface of `softgpu`.

mod interpreter;
