//! Why a store does not give or take an object.

use std::time::Duration;

/// An error of a store. No message has a secret.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Settings of which no client can be made.
    #[error("{address} cannot be opened: {reason}")]
    Settings { address: String, reason: String },
    #[error("{address} is not there")]
    NotFound { address: String },
    /// A bucket that is not there; an object in a bucket that is there is [`StoreError::NotFound`].
    #[error(
        "{address}: bucket {bucket} does not exist; check its name, AWS_ENDPOINT_URL and AWS_REGION, or make the bucket"
    )]
    NoBucket { address: String, bucket: String },
    /// Credentials that are missing or do not suffice. They are not tried again.
    #[error("{address}: access is denied: {reason}; {remedy}")]
    Denied { address: String, reason: String, remedy: &'static str },
    /// Neither variables nor a profile name credentials, and the machine gives none.
    #[error(
        "{address}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of \
         ~/.aws/credentials, or give the machine a role (its metadata service does not answer: {reason})"
    )]
    NoCredentials { address: String, reason: String },
    /// An object that became another one between two requests.
    #[error("{address} has changed while it was read; start again")]
    Changed { address: String },
    #[error("{address} has {bytes} bytes, and at most {limit_bytes} are read")]
    TooLarge { address: String, bytes: u64, limit_bytes: u64 },
    /// The last of several attempts.
    #[error("{address}: {reason}; tried for {} s", tried.as_secs())]
    Failed { address: String, reason: String, tried: Duration },
    /// A request that the store does not have.
    #[error("{address}: {reason}")]
    Unsupported { address: String, reason: String },
    /// A file of this machine.
    #[error("{0}")]
    File(#[from] std::io::Error),
}
