//! A place with objects, whose requests block and are tried again.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::address::Address;
use crate::attempts::Attempts;
use crate::bucket::Bucket;
use crate::date;
use crate::download;
use crate::error::StoreError;
use crate::failure::Failure;
use crate::http::{Limit, Method, Response};
use crate::object::Object;
use crate::place::Place;
use crate::settings::Settings;
use crate::upload::{self, Parts};
use crate::web::Web;

/// Bytes up to which an object is one request.
const PART_BYTES: u64 = 8 << 20;
/// Parts of an upload; stores refuse more than 10,000.
const MAX_PARTS: u64 = 9_000;
/// Parts that are sent at the same time, and are in memory.
const PARTS_TOGETHER: usize = 4;
/// The remedy for an object whose size is not known before it is there.
const WITHOUT_LENGTH: &str = "the server does not say how long the object is; download it, and name the file";

/// The place that an address names. Names of its objects are below that address.
pub struct Remote {
    place: Place,
    /// In the store, the parts before every name.
    root: String,
    address: Address,
    settings: Settings,
}

impl Remote {
    /// Opens the place; no request is sent.
    ///
    /// # Errors
    /// Settings that no client can use, such as an endpoint that is not an address.
    pub fn open(address: &Address, settings: &Settings) -> Result<Remote, StoreError> {
        let (place, root) = match address {
            Address::S3 { bucket, prefix } => {
                (Bucket::open(settings, bucket).map(|bucket| Place::Bucket(Box::new(bucket))), prefix)
            }
            Address::Http { origin, path } => (Web::open(settings, origin).map(Place::Web), path),
        };
        let failed =
            |reason: String| StoreError::Settings { address: address.to_string(), reason: settings.redacted(&reason) };
        let (address, root) = (address.clone(), root.clone());
        Ok(Remote { place: place.map_err(failed)?, root, address, settings: settings.clone() })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// All objects whose names begin with the parts of `under`, by name; all where it is empty.
    ///
    /// # Errors
    /// A store that does not list its objects, and failures of requests.
    pub fn list(&self, under: &str) -> Result<Vec<Object>, StoreError> {
        let bucket = self.bucket("a web server does not list files; name each file, or use s3://")?;
        let path = self.path(under);
        let prefix = if path.is_empty() { path } else { format!("{path}/") };
        let listed = self.attempts(under).until_done(|end, _| bucket.list(&prefix, end))?;
        let before = if self.root.is_empty() { String::new() } else { format!("{}/", self.root) };
        // Names that end with `/` are marks of folders, which some programs leave.
        let named = |object: Object| {
            let name = object.name.strip_prefix(&before).filter(|name| !name.is_empty() && !name.ends_with('/'))?;
            Some(Object { name: name.into(), ..object })
        };
        let mut found: Vec<Object> = listed.into_iter().filter_map(named).collect();
        found.sort();
        Ok(found)
    }

    /// The object `name`; the address itself where it is empty.
    ///
    /// # Errors
    /// An object that is not there, and failures of requests.
    pub fn describe(&self, name: &str) -> Result<Object, StoreError> {
        let path = self.path(name);
        self.attempts(name).until_done(|end, _| {
            let response = self.place.ask(Method::Head, &path, &[], Limit::Whole(end))?;
            let header = |name| response.header(name).map(str::to_string);
            let modified_ms = header("last-modified").and_then(|text| date::of_header(&text)).unwrap_or_default();
            let (bytes, tag) = (length(&response)?, header("etag"));
            Ok(Object { name: name.into(), bytes, tag, modified_ms })
        })
    }

    /// All bytes of the object `name`.
    ///
    /// # Errors
    /// More than `limit_bytes`, an object that is not there, and failures of requests.
    pub fn read(&self, name: &str, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let (path, mut attempts) = (self.path(name), self.attempts(name));
        let read = attempts.until_done(|end, _| {
            let response = self.place.ask(Method::Get, &path, &[], Limit::Whole(end))?;
            let bytes = length(&response)?;
            if bytes > limit_bytes { Ok(Err(bytes)) } else { response.object(bytes).map(Ok) }
        })?;
        read.map_err(|bytes| StoreError::TooLarge { address: attempts.address(), bytes, limit_bytes })
    }

    /// Replaces the content of `file` by the object, which must still be the one that was listed.
    ///
    /// # Errors
    /// An object that is another one now, failures of requests, and a disk that refuses.
    pub fn download(&self, object: &Object, file: &mut File) -> Result<(), StoreError> {
        let (path, attempts) = (self.path(&object.name), self.attempts(&object.name));
        download::download(&self.place, &path, object, file, attempts)
    }

    /// Makes `bytes` the object `name`, at once.
    ///
    /// # Errors
    /// Failures of requests, and a web server, which takes no objects.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (bucket, path) = (self.writable()?, self.path(name));
        self.attempts(name).until_done(|end, attempt_kind| bucket.put(&path, bytes, end, attempt_kind))
    }

    /// Makes the content of `file` the object `name`: in parts where it is long, and at once when all parts are there.
    ///
    /// # Errors
    /// Failures of requests, a web server, which takes no objects, and a file that cannot be read.
    pub fn upload(&self, name: &str, file: &mut File) -> Result<(), StoreError> {
        let bytes = file.metadata()?.len();
        if bytes <= PART_BYTES {
            let mut content = Vec::with_capacity(bytes as usize);
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut content)?;
            return self.put(name, &content);
        }
        let part_bytes = PART_BYTES.max(bytes.div_ceil(MAX_PARTS).next_multiple_of(1 << 20));
        let parts = Parts { bytes, part_bytes, together: PARTS_TOGETHER };
        upload::upload(self.writable()?, &self.path(name), parts, file, self.attempts(name))
    }

    /// Removes the object `name`; one that is not there is no error.
    ///
    /// # Errors
    /// Failures of requests, and a web server.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let (bucket, path) = (self.writable()?, self.path(name));
        match self.attempts(name).until_done(|end, _| bucket.remove(&path, end)) {
            Err(StoreError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    fn attempts(&self, name: &str) -> Attempts<'_> {
        let address = if name.is_empty() { self.address.to_string() } else { self.address.join(name).to_string() };
        Attempts::new(address, &self.settings, self.place.pace())
    }

    /// The path of `name` in the store.
    fn path(&self, name: &str) -> String {
        let parts: Vec<&str> = [self.root.as_str(), name].into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }

    fn writable(&self) -> Result<&Bucket, StoreError> {
        self.bucket("a web server takes no objects; use s3://")
    }

    /// The bucket; `reason` says why a web server does not do.
    fn bucket(&self, reason: &str) -> Result<&Bucket, StoreError> {
        match &self.place {
            Place::Bucket(bucket) => Ok(bucket),
            Place::Web(_) => Err(StoreError::Unsupported { address: self.address.to_string(), reason: reason.into() }),
        }
    }
}

/// The bytes of the object that an answer has or describes.
fn length(response: &Response) -> Result<u64, Failure> {
    let length = response.header("content-length").and_then(|length| length.trim().parse().ok());
    length.ok_or_else(|| Failure::Lasting(WITHOUT_LENGTH.into()))
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("address", &self.address).finish_non_exhaustive()
    }
}
