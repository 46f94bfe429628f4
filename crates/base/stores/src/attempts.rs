//! Requests that are tried again, with growing waits, until a deadline.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::StatusCode;

use crate::answer::Answer;
use crate::error::StoreError;
use crate::failure::{About, Failure};
use crate::http::AttemptKind;
use crate::pace::Pace;
use crate::settings::{Settings, Unanswered};

/// The wait after the first failure; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Time until `on_unanswered` of the settings gets a request without an answer, and from one time to the next.
const FIRST_SILENCE: Duration = Duration::from_secs(3);
const LATER_SILENCE: Duration = Duration::from_secs(15);
/// The remedies for access that is denied.
const CREDENTIALS: &str =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile by AWS_PROFILE, or a role of the machine";
const NO_CREDENTIALS: &str =
    "web servers are read without credentials: download the file, and name it, or use a store by s3://";
/// The remedies for answers that are the same whenever they are asked for.
const REDIRECTS: &str = "the server redirects without an end, or to no usable address; name the final address";
const REFUSED: &str = "the server refuses the request; check the address, or download the object, and name the file";
const CLOCK: &str = "set the clock of this machine: the store refuses requests of another time";
const REGION: &str = "set AWS_REGION to the region of the bucket";
/// Answers of a store to a request with the region of another bucket often have no body that says so.
const PLACE: &str =
    "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL to the address of its store if it is not AWS";
const NO_STORE: &str = "it does not speak the protocol of S3 at this address: check AWS_ENDPOINT_URL, such as its port";
const NO_METHOD: &str =
    "the server does not take the requests HEAD and GET with a range; download the object, and name the file";
const ENDPOINT: &str = "check AWS_ENDPOINT_URL, the bucket and its prefix";
/// Characters of an error that a message has.
const REASON_CHARS: usize = 300;

/// The attempts at one request.
pub struct Attempts<'a> {
    address: String,
    settings: &'a Settings,
    pace: Pace,
    since: Instant,
    wait: Duration,
    /// Counted from 1.
    attempt: u32,
    /// Bytes of an object that arrived since then, and no earlier attempt had brought.
    arrived: u64,
    /// Of the last attempt.
    failure: Option<String>,
    /// When `on_unanswered` of the settings is called.
    tell_at: Instant,
}

impl<'a> Attempts<'a> {
    /// At a request for `address`.
    pub fn new(address: String, settings: &'a Settings, pace: Pace) -> Attempts<'a> {
        let since = Instant::now();
        let tell_at = since + FIRST_SILENCE;
        Attempts { address, settings, pace, since, wait: FIRST_WAIT, attempt: 1, arrived: 0, failure: None, tell_at }
    }

    /// For messages.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// The end of the time for attempts.
    pub fn end(&self) -> Instant {
        self.since + self.settings.retry_limit.limit
    }

    /// Whether a request was made before.
    pub fn attempt_kind(&self) -> AttemptKind {
        if self.attempt == 1 { AttemptKind::First } else { AttemptKind::Again }
    }

    /// Does `request`, until the given end, again until it succeeds.
    ///
    /// # Errors
    /// One that no other attempt can change, or the last one before the deadline.
    pub fn until_done<T>(
        &mut self,
        mut request: impl FnMut(Instant, AttemptKind) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        loop {
            let (end, attempt_kind) = (self.end(), self.attempt_kind());
            match self.while_reported(|| request(end, attempt_kind)) {
                Ok(value) => return Ok(value),
                Err(failure) => self.wait_after(failure)?,
            }
        }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// A `failure` that no other attempt can change, or a deadline that is over.
    pub fn wait_after(&mut self, failure: Failure) -> Result<(), StoreError> {
        let reason = match failure {
            Failure::Line(reason) => self.clean(&reason),
            Failure::Lasting(reason) => {
                return Err(StoreError::Unsupported { address: self.address(), reason: self.clean(&reason) });
            }
            Failure::Changed => return Err(StoreError::Changed { address: self.address() }),
            Failure::Denied(reason) => return Err(self.denied(&reason, CREDENTIALS)),
            Failure::NoRole(reason) => {
                return Err(StoreError::NoCredentials { address: self.address(), reason: self.clean(&reason) });
            }
            Failure::Answer { answer, about } => match self.refused(&answer, about) {
                Some(error) => return Err(error),
                None => self.clean(&answer.to_string()),
            },
        };
        if self.left() <= self.wait {
            return Err(StoreError::Failed { address: self.address(), reason, tried: self.since.elapsed() });
        }
        self.failure = Some(reason);
        self.attempt += 1;
        let wait = self.wait;
        self.while_reported(|| thread::sleep(wait));
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    /// The output of `work`. Meanwhile the request is reported to `on_unanswered` of the settings, after a few seconds
    /// and again in intervals.
    pub fn while_reported<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if !self.settings.is_heard() {
            return work();
        }
        let this = &*self;
        let (output, tell_at) = thread::scope(|scope| {
            let (working, end) = mpsc::channel();
            // Without a thread the request is not reported, and is done all the same.
            let teller = thread::Builder::new().spawn_scoped(scope, move || this.tell_until(&end));
            let output = work();
            drop(working);
            (output, teller.ok().and_then(|teller| teller.join().ok()))
        });
        self.tell_at = tell_at.unwrap_or(self.tell_at);
        output
    }

    /// Reports the request until `end`. Returns the time of the next report.
    fn tell_until(&self, end: &Receiver<()>) -> Instant {
        let mut tell_at = self.tell_at;
        while end.recv_timeout(tell_at.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
            let (address, reason) = (self.address.as_str(), self.failure.as_deref());
            self.settings.tell(&Unanswered { address, reason, attempt: self.attempt, left: self.left() });
            tell_at = Instant::now() + LATER_SILENCE;
        }
        tell_at
    }

    /// `bytes` have arrived that no earlier attempt had brought. Where they are as many as the least rate asks for, the
    /// time for attempts begins again: an object of any size ends, by its size and that rate.
    pub fn arrived(&mut self, bytes: u64) {
        self.arrived += bytes;
        if bytes > 0 && self.pace.suffices(self.arrived, self.since.elapsed()) {
            self.progress();
        }
    }

    /// The time for attempts begins again: something has succeeded that is not done twice.
    pub fn progress(&mut self) {
        *self = Attempts::new(self.address(), self.settings, self.pace);
    }

    fn left(&self) -> Duration {
        self.end().saturating_duration_since(Instant::now())
    }

    fn denied(&self, reason: &str, remedy: &'static str) -> StoreError {
        StoreError::Denied { address: self.address(), reason: self.clean(reason), remedy }
    }

    /// The error for an `answer` that does not depend on when it is asked for.
    fn refused(&self, answer: &Answer, about: About) -> Option<StoreError> {
        match self.address.strip_prefix("s3://") {
            Some(rest) => self.refused_by_store(rest.split('/').next().unwrap_or_default(), answer, about),
            None => self.refused_by_server(answer),
        }
    }

    fn refused_by_store(&self, bucket: &str, answer: &Answer, about: About) -> Option<StoreError> {
        let (address, reason) = (self.address(), answer.to_string());
        match (answer.code().unwrap_or_default(), answer.status.as_u16()) {
            ("NoSuchBucket", _) => Some(StoreError::NoBucket { address, bucket: bucket.into() }),
            ("RequestTimeTooSkewed", _) => Some(self.denied(&reason, CLOCK)),
            ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _) => {
                Some(self.unsupported(&reason, &place_of_bucket(answer)))
            }
            ("MethodNotAllowed", _) | (_, 405) => Some(self.unsupported(&reason, NO_STORE)),
            (_, 300..=399) if answer.region().is_some() => Some(self.unsupported(&reason, &place_of_bucket(answer))),
            (_, 300..=399) | ("", 400) => Some(self.unsupported(&reason, PLACE)),
            ("InvalidBucketName", _) => Some(self.unsupported(&reason, ENDPOINT)),
            (_, 401 | 403) => Some(self.denied(&reason, CREDENTIALS)),
            // Those of a role are renewed.
            ("ExpiredToken" | "InvalidToken", _) if self.settings.get("AWS_ACCESS_KEY_ID").is_some() => {
                Some(self.denied(&reason, CREDENTIALS))
            }
            (_, 404) => match about {
                About::Object => Some(StoreError::NotFound { address }),
                About::Place => Some(self.unsupported(&reason, ENDPOINT)),
                About::Parts => None,
            },
            (_, 412 | 416) => Some(StoreError::Changed { address }),
            (_, _) => None,
        }
    }

    fn refused_by_server(&self, answer: &Answer) -> Option<StoreError> {
        let reason = answer.to_string();
        match answer.status {
            StatusCode::NOT_FOUND => Some(StoreError::NotFound { address: self.address() }),
            StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => {
                Some(StoreError::Changed { address: self.address() })
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(self.denied(&reason, NO_CREDENTIALS)),
            StatusCode::METHOD_NOT_ALLOWED => Some(self.unsupported(&reason, NO_METHOD)),
            // Another attempt may change these: a request that took too long, came too early, or was one of too many.
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => None,
            status if status.is_redirection() => Some(self.unsupported(&reason, REDIRECTS)),
            status if status.is_client_error() => Some(self.unsupported(&reason, REFUSED)),
            _ => None,
        }
    }

    fn unsupported(&self, reason: &str, remedy: &str) -> StoreError {
        StoreError::Unsupported { address: self.address(), reason: format!("{}; {remedy}", self.clean(reason)) }
    }

    /// One line of `text`, without secrets.
    fn clean(&self, text: &str) -> String {
        let text = self.settings.redacted(text);
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
