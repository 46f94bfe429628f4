//! Tests of the public interface of `blame`.

mod reports;
