//! Requests that are tried again, with growing waits, until a deadline.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload};

use crate::answer::{self, Answer};
use crate::connector::TOO_LONG;
use crate::error::StoreError;
use crate::settings::{Settings, Unanswered};

/// The wait after the first failure; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Time until the hearer of the settings gets a request without an answer, and from one time to the next.
const FIRST_SILENCE: Duration = Duration::from_secs(3);
const LATER_SILENCE: Duration = Duration::from_secs(15);
/// The address of the service that gives a machine the credentials of its role.
const METADATA_SERVICE: &str = "169.254.169.254";
/// The remedies for access that is denied.
const CREDENTIALS: &str =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile by AWS_PROFILE, or a role of the machine";
const NO_CREDENTIALS: &str =
    "web servers are read without credentials: download the file, and name it, or use a store by s3://";
/// The remedies for answers that are the same whenever they are asked for.
const REDIRECTS: &str = "the server redirects without an end, or to no usable address; name the final address";
const WITHOUT_LENGTH: &str = "the server does not say how long the object is; download it, and name the file";
const REFUSED: &str = "the server refuses the request; check the address, or download the object, and name the file";
/// Refusals of a web server that another attempt may change: a request that took too long, came too early, or was one
/// of too many.
const PASSING: [&str; 3] = ["408", "425", "429"];
const CLOCK: &str = "set the clock of this machine: the store refuses requests of another time";
const REGION: &str = "set AWS_REGION to the region of the bucket";
/// Answers of a store to a request with the region of another bucket often have no body that says so.
const PLACE: &str =
    "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL to the address of its store if it is not AWS";
const NO_STORE: &str = "it does not speak the protocol of S3 at this address: check AWS_ENDPOINT_URL, such as its port";
const NO_METHOD: &str =
    "the server does not take the requests HEAD and GET with a range; download the object, and name the file";
const ENDPOINT: &str = "check AWS_ENDPOINT_URL, the bucket and its prefix";
/// The name of a failure of parts, which another upload may not have.
const PARTS: &str = "parts";
/// Characters of an error that a message has.
const REASON_CHARS: usize = 300;

/// The attempts at one request.
pub struct Attempts<'a> {
    address: String,
    settings: &'a Settings,
    since: Instant,
    wait: Duration,
    /// Counted from 1.
    attempt: u32,
    /// Of the last attempt.
    failure: Option<String>,
    /// When the hearer of the settings hears of it.
    tell_at: Instant,
}

impl<'a> Attempts<'a> {
    /// At a request for `address`.
    pub fn new(address: String, settings: &'a Settings) -> Attempts<'a> {
        let since = Instant::now();
        let tell_at = since + FIRST_SILENCE;
        Attempts { address, settings, since, wait: FIRST_WAIT, attempt: 1, failure: None, tell_at }
    }

    /// For messages.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Does `request` until it succeeds.
    ///
    /// # Errors
    /// One that no other attempt can change, or the last one before the deadline.
    pub async fn until_done<T>(mut self, request: impl AsyncFn() -> Result<T, Error>) -> Result<T, StoreError> {
        loop {
            let answered = request();
            match self.until(self.left(), answered).await {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) => self.wait_after(error).await?,
                None => return Err(self.failed("no answer".into())),
            }
        }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// An `error` that no other attempt can change, or a deadline that is over.
    pub async fn wait_after(&mut self, error: Error) -> Result<(), StoreError> {
        if let Some(error) = self.lasting(&error) {
            return Err(error);
        }
        if self.left() <= self.wait {
            return Err(self.failed(self.reason(&error)));
        }
        self.failure = Some(self.reason(&error));
        self.attempt += 1;
        let _: Option<()> = self.until(self.wait, std::future::pending()).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    /// The output of `work` if there is one within `limit`. Meanwhile the request is reported to the hearer of
    /// the settings, after a few seconds and again in intervals.
    async fn until<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let end = Instant::now() + limit;
        loop {
            let next = end.min(self.tell_at).saturating_duration_since(Instant::now());
            if let Ok(output) = tokio::time::timeout(next, work.as_mut()).await {
                return Some(output);
            }
            let now = Instant::now();
            if now >= end {
                return None;
            }
            if now >= self.tell_at {
                let (address, reason) = (self.address.as_str(), self.failure.as_deref());
                self.settings.tell(&Unanswered { address, reason, attempt: self.attempt, left: self.left() });
                self.tell_at = now + LATER_SILENCE;
            }
        }
    }

    /// The time for attempts begins again: something has succeeded.
    pub fn progress(&mut self) {
        self.since = Instant::now();
        self.wait = FIRST_WAIT;
        self.attempt = 1;
        self.failure = None;
        self.tell_at = self.since + FIRST_SILENCE;
    }

    fn left(&self) -> Duration {
        self.settings.patience.limit.saturating_sub(self.since.elapsed())
    }

    fn failed(&self, reason: String) -> StoreError {
        StoreError::Failed { address: self.address(), reason, tried: self.since.elapsed() }
    }

    /// An error that is the answer, not a failure of the connection or of the store.
    fn lasting(&self, error: &Error) -> Option<StoreError> {
        if let Some(refused) = self.refused(error) {
            return Some(refused);
        }
        let (address, reason) = (self.address(), self.reason(error));
        if let Error::NotFound { .. } = error {
            // The client takes a method that the server does not have for an object that is missing.
            if answered(&address, &error.to_string()) == Some(NO_METHOD) {
                return Some(StoreError::Unsupported { address, reason: format!("{reason}; {NO_METHOD}") });
            }
            return Some(StoreError::NotFound { address });
        }
        if let Error::Precondition { .. } = error {
            return Some(StoreError::Changed { address });
        }
        if matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) {
            let remedy = if address.starts_with("s3://") { CREDENTIALS } else { NO_CREDENTIALS };
            return Some(StoreError::Denied { address, reason, remedy });
        }
        // A machine with a role has an answer within milliseconds, and the client has tried several times.
        let service = self.settings.get("AWS_METADATA_ENDPOINT").unwrap_or(METADATA_SERVICE);
        if error.to_string().contains(service) && !self.settings.names_credentials() {
            return Some(StoreError::NoCredentials { address, reason });
        }
        let is_unsupported =
            matches!(error, Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. });
        let is_unsupported = is_unsupported || reason.contains(TOO_LONG);
        let reason = match answered(&address, &error.to_string()) {
            Some(remedy) => format!("{reason}; {remedy}"),
            None if is_unsupported => reason,
            None => return None,
        };
        Some(StoreError::Unsupported { address, reason })
    }

    /// An answer of a store that does not depend on when it is asked for, whatever was asked: only some errors of the
    /// client are of a type for it.
    fn refused(&self, error: &Error) -> Option<StoreError> {
        let address = self.address();
        let bucket = address.strip_prefix("s3://")?.split('/').next()?.to_string();
        let (answer, reason) = (Answer::of(error)?, self.reason(error));
        let denied = |remedy| StoreError::Denied { address: address.clone(), reason: reason.clone(), remedy };
        let unsupported =
            |remedy: &str| StoreError::Unsupported { address: address.clone(), reason: format!("{reason}; {remedy}") };
        match (answer.code().unwrap_or_default(), answer.status()) {
            ("NoSuchBucket", _) => Some(StoreError::NoBucket { address, bucket }),
            ("RequestTimeTooSkewed", _) => Some(denied(CLOCK)),
            ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _) => {
                Some(unsupported(&place_of_bucket(&answer)))
            }
            ("MethodNotAllowed", _) | (_, "405") => Some(unsupported(NO_STORE)),
            ("", "400") => Some(unsupported(PLACE)),
            (_, status) if status.starts_with('3') => Some(unsupported(PLACE)),
            ("InvalidBucketName", _) => Some(unsupported(ENDPOINT)),
            (_, "401" | "403") => Some(denied(CREDENTIALS)),
            // Those of a role are renewed by the client.
            ("ExpiredToken" | "InvalidToken", _) if self.settings.get("AWS_ACCESS_KEY_ID").is_some() => {
                Some(denied(CREDENTIALS))
            }
            // Of a listing or of the beginning of an upload; of an object there is a type.
            (_, "404") if matches!(error, Error::Generic { store, .. } if *store != PARTS) => {
                Some(unsupported(ENDPOINT))
            }
            (_, _) => None,
        }
    }

    /// The answer of the store, or the first cause of the failure, without secrets.
    fn reason(&self, error: &Error) -> String {
        let text = self.settings.redacted(&answer::cause(error));
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(REASON_CHARS) {
            Some((end, _)) => format!("{}..", &line[..end]),
            None => line,
        }
    }
}

/// The remedy for a request that another region answers, which may be named.
fn place_of_bucket(answer: &Answer) -> String {
    match (answer.region(), answer.endpoint()) {
        (Some(region), _) => format!("set AWS_REGION={region}, the region of the bucket"),
        (None, Some(endpoint)) => format!("{REGION}, which is at {endpoint}"),
        (None, None) => REGION.into(),
    }
}

/// The remedy, where the error `text` is an answer that does not depend on its time. The client has no types for these
/// answers.
fn answered(address: &str, text: &str) -> Option<&'static str> {
    let status = text.split_once("non-2xx status code: ").map(|(_, rest)| rest.get(..3).unwrap_or_default());
    let is_redirect = status.is_some_and(|status| status.starts_with('3'));
    if is_redirect || text.contains("error following redirect") || text.contains("redirect without LOCATION") {
        return Some(if address.starts_with("s3://") { PLACE } else { REDIRECTS });
    }
    // Answers of stores are judged by their names, in `Attempts::refused`: some pass, as with renewed credentials.
    if address.starts_with("s3://") {
        return None;
    }
    if text.contains("Content-Length Header missing") || text.contains("Invalid content length") {
        return Some(WITHOUT_LENGTH);
    }
    if status == Some("405") {
        return Some(NO_METHOD);
    }
    status.filter(|status| status.starts_with('4') && !PASSING.contains(status)).map(|_| REFUSED)
}

/// The parts of a file that is uploaded.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub bytes: u64,
    pub part_bytes: u64,
    /// Parts that are sent at the same time.
    pub together: u64,
}

/// Makes `file` the object at `path` in `parts`. Nothing is there before all parts are; the store discards the parts of
/// an upload that fails.
pub async fn upload_parts(
    store: &dyn ObjectStore,
    path: &Path,
    parts: Parts,
    file: &mut File,
    mut attempts: Attempts<'_>,
) -> Result<(), StoreError> {
    loop {
        let mut upload = match store.put_multipart_opts(path, PutMultipartOptions::default()).await {
            Ok(upload) => upload,
            Err(error) => {
                attempts.wait_after(error).await?;
                continue;
            }
        };
        let sent = send(&mut *upload, parts, file, &mut attempts).await?;
        let done = match sent {
            Ok(()) => upload.complete().await.map(|_| ()),
            Err(error) => Err(error),
        };
        let Err(error) = done else { return Ok(()) };
        // A store that cannot be reached keeps the parts until its rules remove them.
        let _ = tokio::time::timeout(attempts.left().min(LONGEST_WAIT), upload.abort()).await;
        // The parts of an upload may be gone, as after an answer that was lost: the next upload has its own.
        let is_gone = matches!(error, Error::NotFound { .. });
        let error = if is_gone { Error::Generic { store: PARTS, source: Box::new(error) } } else { error };
        attempts.wait_after(error).await?;
    }
}

/// Sends all parts; the inner result is that of the store.
async fn send(
    upload: &mut dyn MultipartUpload,
    parts: Parts,
    file: &mut File,
    attempts: &mut Attempts<'_>,
) -> Result<Result<(), Error>, StoreError> {
    file.seek(SeekFrom::Start(0))?;
    let mut left = parts.bytes;
    while left > 0 {
        let mut requests = vec![];
        for _ in 0..parts.together {
            let len = left.min(parts.part_bytes);
            if len == 0 {
                break;
            }
            let mut part = vec![0; len as usize];
            file.read_exact(&mut part)?;
            left -= len;
            requests.push(upload.put_part(PutPayload::from(Bytes::from(part))));
        }
        let sent = tokio::time::timeout(attempts.left(), join_all(requests)).await;
        let Ok(sent) = sent else { return Err(attempts.failed("no answer".into())) };
        if let Some(error) = sent.into_iter().find_map(Result::err) {
            return Ok(Err(error));
        }
        attempts.progress();
    }
    Ok(Ok(()))
}
