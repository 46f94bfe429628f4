//! Tests of the public interface of `report`.

mod chromium;
