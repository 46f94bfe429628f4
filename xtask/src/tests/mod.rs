//! Tests of the public interface of `xtask`.

mod advisories;
mod loops;
mod pages;
mod tidy;
