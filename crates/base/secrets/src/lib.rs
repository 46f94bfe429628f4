//! Secrets of a user, and the codes by which their holders recognise each other's words without showing them.

mod error;
mod mac;
mod secret;

pub use error::SecretError;
pub use mac::{Mac, Purpose};
pub use secret::Secret;
