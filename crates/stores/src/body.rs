//! The body of an object on its way to a file.

use std::fs::File;
use std::io::{self, Write};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore};

use crate::object::Object;

/// Why a body did not arrive whole.
pub enum Interrupted {
    Disk(io::Error),
    Request(Error),
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Interrupted {
        Interrupted::Request(error)
    }
}

/// Appends the body of `object` at `path` to `file`, part by part as they arrive.
pub async fn copy(store: &dyn ObjectStore, path: &Path, object: &Object, file: &mut File) -> Result<(), Interrupted> {
    let options = GetOptions { if_match: object.tag.clone(), ..GetOptions::default() };
    let result = store.get_opts(path, options).await?;
    if result.meta.size != object.bytes {
        return Err(
            Error::Precondition { path: path.to_string(), source: wrong(object.bytes, result.meta.size) }.into()
        );
    }
    let mut arrived = 0;
    let mut parts = result.into_stream();
    while let Some(part) = parts.next().await {
        let part = part?;
        arrived += part.len() as u64;
        file.write_all(&part).map_err(Interrupted::Disk)?;
    }
    Ok(check(object.bytes, arrived)?)
}

/// Refuses a body of another length than was announced.
pub fn check(expected: u64, found: u64) -> Result<(), Error> {
    match expected == found {
        true => Ok(()),
        false => Err(Error::Generic { store: "body", source: wrong(expected, found) }),
    }
}

fn wrong(expected: u64, found: u64) -> Box<dyn std::error::Error + Send + Sync> {
    format!("{found} bytes where {expected} were announced").into()
}
