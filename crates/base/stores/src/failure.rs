//! Why a request has no result.

use crate::answer::Answer;

/// The result of a request that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer, or one that broke off.
    Line(String),
    /// An answer that refuses.
    Answer { answer: Answer, about: About },
    /// An answer that is the same whenever it is asked for, and the remedy.
    Lasting(String),
    /// The object is another one than before.
    Changed,
    /// Credentials are refused where the machine gets them.
    Denied(String),
    /// The machine gives no credentials.
    NoRole(String),
}

/// The subject of a request: the same answer has different meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Object,
    /// A listing, or the beginning of an upload.
    Place,
    /// The parts of an upload, which may be gone although their object is not.
    Parts,
}
