//! Objects of a bucket or of a web server.

use crate::bucket::Bucket;
use crate::failure::Failure;
use crate::http::{Limit, Method, Response};
use crate::pace::Pace;
use crate::web::Web;

/// The server that has the objects.
pub enum Place {
    Bucket(Box<Bucket>),
    Web(Web),
}

impl Place {
    /// The answer to `method` for the object at `path`, which gives it.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        limit: Limit,
    ) -> Result<Response, Failure> {
        match self {
            Place::Bucket(bucket) => bucket.ask(method, path, headers, limit),
            Place::Web(web) => web.ask(method, path, headers, limit),
        }
    }

    /// The least pace of the server.
    pub fn pace(&self) -> Pace {
        match self {
            Place::Bucket(bucket) => bucket.pace(),
            Place::Web(web) => web.pace(),
        }
    }
}
