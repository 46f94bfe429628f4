//! The processes of two runs, as the comparison reaches them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::runner::ProofError;

/// Brings to process 0 what ranks of other processes show.
pub trait Exchange {
    /// Whether this is process 0.
    fn is_first(&self) -> bool;

    /// Brings the `messages` of all other processes to process 0, which returns them; the others return none.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    fn gather(&self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ProofError>;

    /// The `message` of process 0, on all processes.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    fn broadcast(&self, message: Vec<u8>) -> Result<Vec<u8>, ProofError>;
}

/// All ranks are in this process.
#[derive(Clone, Copy, Debug)]
pub struct SingleProcess;

impl Exchange for SingleProcess {
    fn is_first(&self) -> bool {
        true
    }

    fn gather(&self, _messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ProofError> {
        Ok(vec![])
    }

    fn broadcast(&self, message: Vec<u8>) -> Result<Vec<u8>, ProofError> {
        Ok(message)
    }
}

/// `value` as a message.
pub(crate) fn to_message(value: &impl Serialize) -> Result<Vec<u8>, ProofError> {
    serde_json::to_vec(value).map_err(|error| malformed(&error))
}

/// The value of a message.
pub(crate) fn from_message<T: DeserializeOwned>(message: &[u8]) -> Result<T, ProofError> {
    serde_json::from_slice(message).map_err(|error| malformed(&error))
}

/// A message that is not of this program.
pub(crate) fn malformed(reason: &dyn std::fmt::Display) -> ProofError {
    ProofError::Processes(format!("a message of another process: {reason}; start all processes with the same program"))
}
