//! Tests of the public interface of `xtask`.

mod advisories;
mod pages;
mod tidy;
