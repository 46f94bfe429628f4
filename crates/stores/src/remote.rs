//! A place with objects, whose requests block and are tried again.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};

use crate::address::Address;
use crate::body;
use crate::connector::BoundedConnector;
use crate::error::StoreError;
use crate::object::Object;
use crate::requests::{self, Attempts};
use crate::settings::Settings;

/// Bytes up to which an object is one request.
const PART_BYTES: u64 = 8 << 20;
/// Parts of an upload; stores refuse more than 10,000.
const MAX_PARTS: u64 = 9_000;
/// Parts that are sent at the same time, and are in memory.
const PARTS_TOGETHER: u64 = 4;
/// A connection that does not open, or on which nothing arrives, for this long ends, and the request is tried again.
const SILENCE: Duration = Duration::from_secs(20);

/// The place that an address names. Names of its objects are below that address.
pub struct Remote {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
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
        let failed =
            |reason: String| StoreError::Settings { address: address.to_string(), reason: settings.redacted(&reason) };
        // Another part of this process may have chosen one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        // The client is made where its runtime is.
        let _inside = runtime.enter();
        let (store, root): (Arc<dyn ObjectStore>, String) = match address {
            Address::S3 { bucket, prefix } => {
                let store = s3(settings, bucket).map_err(failed)?;
                (Arc::new(store), prefix.clone())
            }
            Address::Http { origin, path } => {
                let options = client().with_allow_http(true);
                let http = HttpBuilder::new().with_url(origin).with_client_options(options).with_retry(retries());
                let http = http.with_http_connector(BoundedConnector);
                let store = http.build().map_err(|error| failed(error.to_string()))?;
                (Arc::new(store), path.clone())
            }
        };
        drop(_inside);
        Ok(Remote { runtime, store, root, address: address.clone(), settings: settings.clone() })
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
        if let Address::Http { .. } = self.address {
            return Err(StoreError::Unsupported {
                address: self.address.to_string(),
                reason: "a web server does not list files; name each file, or use s3://".into(),
            });
        }
        let (prefix, attempts) = (self.path(under)?, self.attempts(under));
        self.runtime.block_on(attempts.until_done(|| async {
            let mut folders = vec![prefix.clone()];
            let mut found = vec![];
            while let Some(folder) = folders.pop() {
                let listed = self.store.list_with_delimiter(Some(&folder)).await?;
                folders.extend(listed.common_prefixes);
                found.extend(listed.objects.iter().filter_map(|meta| self.object(meta)));
            }
            found.sort();
            Ok(found)
        }))
    }

    /// The object `name`; the address itself where it is empty.
    ///
    /// # Errors
    /// An object that is not there, and failures of requests.
    pub fn describe(&self, name: &str) -> Result<Object, StoreError> {
        let (path, attempts) = (self.path(name)?, self.attempts(name));
        let meta = self.runtime.block_on(attempts.until_done(|| async { self.store.head(&path).await }))?;
        Ok(Object { name: name.into(), ..of_meta(&meta) })
    }

    /// All bytes of the object `name`.
    ///
    /// # Errors
    /// More than `limit_bytes`, an object that is not there, and failures of requests.
    pub fn read(&self, name: &str, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let (path, attempts) = (self.path(name)?, self.attempts(name));
        let address = attempts.address();
        let read = self.runtime.block_on(attempts.until_done(|| async {
            let result = self.store.get_opts(&path, GetOptions::default()).await?;
            let bytes = result.meta.size;
            if bytes > limit_bytes {
                return Ok(Err(bytes));
            }
            let read = result.bytes().await?;
            body::check(bytes, read.len() as u64)?;
            Ok(Ok(read.to_vec()))
        }))?;
        read.map_err(|bytes| StoreError::TooLarge { address, bytes, limit_bytes })
    }

    /// Replaces the content of `file` by the object, which must still be the one that was listed.
    ///
    /// # Errors
    /// An object that is another one now, failures of requests, and a disk that refuses.
    pub fn download(&self, object: &Object, file: &mut File) -> Result<(), StoreError> {
        let (path, attempts) = (self.path(&object.name)?, self.attempts(&object.name));
        self.runtime.block_on(async {
            let (mut attempts, mut done) = (attempts, 0);
            loop {
                let before = done;
                file.set_len(done)?;
                file.seek(SeekFrom::Start(done))?;
                let error = match body::copy(&*self.store, &path, object, file, &mut done).await {
                    Ok(()) => return Ok(()),
                    Err(body::Interrupted::Disk(error)) => return Err(error.into()),
                    Err(body::Interrupted::Request(error)) => error,
                };
                match (&error, before, &object.tag) {
                    // A server without ranges begins again.
                    (Error::NotSupported { .. }, 1.., _) => done = 0,
                    // Only by its tag the rest is known to be of the same object.
                    (_, _, None) => done = 0,
                    (_, _, Some(_)) if done > before && done < object.bytes => attempts.progress(),
                    (_, _, Some(_)) => {}
                }
                if done >= object.bytes {
                    done = 0;
                }
                if !matches!((&error, before), (Error::NotSupported { .. }, 1..)) {
                    attempts.wait_after(error).await?;
                }
            }
        })
    }

    /// Makes `bytes` the object `name`, at once.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let (path, attempts) = (self.path(name)?, self.attempts(name));
        let payload = PutPayload::from(bytes);
        self.runtime.block_on(attempts.until_done(|| async {
            self.store.put(&path, payload.clone()).await?;
            Ok(())
        }))
    }

    /// Makes the content of `file` the object `name`: in parts where it is long, and at once when all parts are there.
    ///
    /// # Errors
    /// Failures of requests, and a file that cannot be read.
    pub fn upload(&self, name: &str, file: &mut File) -> Result<(), StoreError> {
        let bytes = file.metadata()?.len();
        if bytes <= PART_BYTES {
            let mut content = Vec::with_capacity(bytes as usize);
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut content)?;
            return self.put(name, content);
        }
        let part_bytes = PART_BYTES.max(bytes.div_ceil(MAX_PARTS).next_multiple_of(1 << 20));
        let plan = requests::Parts { bytes, part_bytes, together: PARTS_TOGETHER };
        let (path, attempts) = (self.path(name)?, self.attempts(name));
        self.runtime.block_on(requests::upload_parts(&*self.store, &path, plan, file, attempts))
    }

    /// Removes the object `name`; one that is not there is no error.
    ///
    /// # Errors
    /// Failures of requests.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let (path, attempts) = (self.path(name)?, self.attempts(name));
        let removed = self.runtime.block_on(attempts.until_done(|| async { self.store.delete(&path).await }));
        match removed {
            Err(StoreError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    fn attempts(&self, name: &str) -> Attempts<'_> {
        let address = if name.is_empty() { self.address.to_string() } else { self.address.join(name).to_string() };
        Attempts::new(address, &self.settings)
    }

    /// The path of `name` in the store.
    fn path(&self, name: &str) -> Result<Path, StoreError> {
        let parts: Vec<&str> = [self.root.as_str(), name].into_iter().filter(|part| !part.is_empty()).collect();
        let text = parts.join("/");
        let path = match self.address {
            Address::S3 { .. } => Path::parse(&text),
            // Addresses of web servers are encoded already.
            Address::Http { .. } => Path::from_url_path(&text),
        };
        path.map_err(|error| StoreError::Settings { address: self.address.to_string(), reason: error.to_string() })
    }

    fn object(&self, meta: &ObjectMeta) -> Option<Object> {
        let path = meta.location.as_ref();
        let name = if self.root.is_empty() { path } else { path.strip_prefix(&self.root)?.strip_prefix('/')? };
        Some(Object { name: name.into(), ..of_meta(meta) })
    }
}

fn of_meta(meta: &ObjectMeta) -> Object {
    Object {
        name: String::new(),
        bytes: meta.size,
        tag: meta.e_tag.clone(),
        modified_ms: meta.last_modified.timestamp_millis(),
    }
}

/// A client for the objects of `bucket`.
fn s3(settings: &Settings, bucket: &str) -> Result<object_store::aws::AmazonS3, String> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in settings.values() {
        // Others are for other programs.
        if let Ok(key) = name.parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    let (key, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    for (given, missing) in [(key, secret), (secret, key)] {
        if settings.get(given).is_some() && settings.get(missing).is_none() {
            return Err(format!(
                "{given} is set and {missing} is not; set both, or neither to use AWS_PROFILE or a role"
            ));
        }
    }
    let endpoint = settings.get("AWS_ENDPOINT_URL_S3").or_else(|| settings.get("AWS_ENDPOINT_URL"));
    let mut options = client();
    if let Some(endpoint) = endpoint {
        if endpoint.contains('@') {
            return Err("AWS_ENDPOINT_URL must not have a user or a password; set AWS_ACCESS_KEY_ID instead".into());
        }
        builder = builder.with_endpoint(endpoint);
        // Whoever names an endpoint without TLS means it.
        options = options.with_allow_http(endpoint.starts_with("http://"));
    }
    let region = settings.get("AWS_REGION").or_else(|| settings.get("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
    let builder = builder.with_region(region).with_bucket_name(bucket).with_client_options(options);
    // Not every server has the request that deletes many objects.
    let builder = builder.with_disable_bulk_delete(true).with_http_connector(BoundedConnector);
    builder.with_retry(retries()).build().map_err(|error| error.to_string())
}

fn client() -> ClientOptions {
    ClientOptions::new().with_connect_timeout(SILENCE).with_read_timeout(SILENCE).with_timeout_disabled()
}

/// Retries within a request, such as the rest of a body. Those of whole requests are ours, which know the deadline.
fn retries() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2.0 };
    RetryConfig { backoff, max_retries: 4, retry_timeout: Duration::from_secs(120) }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("address", &self.address).finish_non_exhaustive()
    }
}
