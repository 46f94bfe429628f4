//! Files elsewhere: objects over HTTP, and in stores that speak the protocol of S3.
//!
//! An [`Address`] is the text of a user; a [`Remote`] is the place that it names, with requests that block and are
//! tried again until a deadline.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod attempts;
mod bucket;
mod credentials;
mod date;
mod download;
mod error;
mod failure;
mod http;
mod listing;
mod object;
mod pace;
mod place;
mod proxy;
mod remote;
mod role;
mod settings;
mod signature;
mod upload;
mod web;
mod xml;

pub use address::{Address, AddressError};
pub use error::StoreError;
pub use object::Object;
pub use remote::Remote;
pub use settings::{OnUnanswered, RetryLimit, Settings, Unanswered};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as stores;
#[cfg(test)]
mod tests;
