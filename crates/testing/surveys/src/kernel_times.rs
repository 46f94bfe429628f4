//! Times of the kernels of a training step: predicted from bytes and multiply-adds, and measured where there is a GPU.

pub mod table;
pub mod timed_device;
