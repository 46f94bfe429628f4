//! The place of [`Remote`] in a build without the feature `object-stores`: no value of it exists.

use std::convert::Infallible;
use std::fs::File;

use crate::address::Address;
use crate::error::StoreError;
use crate::object::Object;
use crate::settings::Settings;

/// A store that is never opened.
#[derive(Debug)]
pub struct Remote(Infallible);

impl Remote {
    /// Refuses `address` by its name.
    ///
    /// # Errors
    /// Always.
    pub fn open(address: &Address, _settings: &Settings) -> Result<Remote, StoreError> {
        Err(StoreError::NotBuilt { address: address.to_string() })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn list(&self, _under: &str) -> Result<Vec<Object>, StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn describe(&self, _name: &str) -> Result<Object, StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn read(&self, _name: &str, _limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn download(&self, _object: &Object, _file: &mut File) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn put(&self, _name: &str, _bytes: Vec<u8>) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn upload(&self, _name: &str, _file: &mut File) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no such store.
    pub fn remove(&self, _name: &str) -> Result<(), StoreError> {
        match self.0 {}
    }
}
