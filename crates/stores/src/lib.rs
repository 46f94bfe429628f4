//! Files elsewhere: objects over HTTP, and in stores that speak the protocol of S3.
//!
//! An [`Address`] is the text of a user; a [`Remote`] is the place that it names, with requests that are tried again
//! until a deadline. All of it blocks: the runtime that the requests need is inside [`Remote`]. Without the feature
//! `object-stores`, a [`Remote`] is never opened.

#![forbid(unsafe_code)]

mod address;
mod error;
mod object;
mod settings;

#[cfg(feature = "object-stores")]
mod answer;
#[cfg(feature = "object-stores")]
mod body;
#[cfg(feature = "object-stores")]
mod connector;
#[cfg(feature = "object-stores")]
mod remote;
#[cfg(feature = "object-stores")]
mod requests;

#[cfg(not(feature = "object-stores"))]
mod absent;

#[cfg(not(feature = "object-stores"))]
pub use absent::Remote;
pub use address::{Address, AddressError};
pub use error::StoreError;
pub use object::Object;
#[cfg(feature = "object-stores")]
pub use remote::Remote;
pub use settings::{Hearer, Patience, Settings, Unanswered};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as stores;
#[cfg(test)]
mod tests;
