//! The body of an object on its way to a file.

use std::fs::File;
use std::io::{self, Write};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore};

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

/// Appends the body of `object` at `path` to `file`, part by part as they arrive, from byte `*done` on; adds to it the
/// bytes that were written.
pub async fn copy(
    store: &dyn ObjectStore,
    path: &Path,
    object: &Object,
    file: &mut File,
    done: &mut u64,
) -> Result<(), Interrupted> {
    let range = (*done > 0).then_some(GetRange::Offset(*done));
    let options = GetOptions { if_match: object.tag.clone(), range, ..GetOptions::default() };
    let result = store.get_opts(path, options).await?;
    if result.meta.size != object.bytes {
        return Err(
            Error::Precondition { path: path.to_string(), source: wrong(object.bytes, result.meta.size) }.into()
        );
    }
    let mut parts = result.into_stream();
    while let Some(part) = parts.next().await {
        let part = part?;
        file.write_all(&part).map_err(Interrupted::Disk)?;
        *done += part.len() as u64;
    }
    Ok(check(object.bytes, *done)?)
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
