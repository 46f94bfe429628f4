//! Tests of the public interface of `nvidia`.

mod attention;
mod driver_errors;
mod headers;
mod nvrtc;
mod products_and_collectives;
mod soft_attention;
mod soft_launches;
mod soft_library;
mod soft_products_and_collectives;
mod toolkit;
