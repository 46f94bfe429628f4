//! The requests of S3's protocol for one bucket.

use std::time::Instant;

use ureq::http::Uri;

use crate::credentials::Credentials;
use crate::date::Stamp;
use crate::failure::{About, Failure};
use crate::http::{AttemptKind, Http, Limit, Method, Request, Response, too_long};
use crate::listing::{self, Page};
use crate::object::Object;
use crate::pace::Pace;
use crate::proxy;
use crate::settings::Settings;
use crate::signature::{Scope, Signed, encoded, headers, query};

/// Bytes of all pages of one listing: some 500,000 objects.
const LISTING_BYTES: u64 = 256 << 20;
/// The region of a bucket whose region nothing names.
const FIRST_REGION: &str = "us-east-1";

/// A bucket.
pub struct Bucket {
    http: Http,
    /// `https`.
    scheme: String,
    /// With its port, where it is named.
    host: String,
    /// The path of the bucket, `/bucket`; empty where its name is a part of the host.
    path: String,
    region: String,
    credentials: Credentials,
}

/// A request for an object, or for the bucket where the key is empty.
#[derive(Clone, Copy, Debug)]
struct ObjectRequest<'a> {
    method: Method,
    key: &'a str,
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'static str, String)],
    body: &'a [u8],
    about: About,
}

impl Bucket {
    /// The bucket of this name; no request is sent.
    ///
    /// # Errors
    /// Settings that no client can use.
    pub fn open(settings: &Settings, bucket: &str) -> Result<Bucket, String> {
        let region = settings.get("AWS_REGION").or_else(|| settings.get("AWS_DEFAULT_REGION")).unwrap_or(FIRST_REGION);
        let endpoint = settings.get("AWS_ENDPOINT_URL_S3").or_else(|| settings.get("AWS_ENDPOINT_URL"));
        let bucket = encoded(bucket, b"");
        let in_host = settings.says_yes("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
        let url = match (endpoint, in_host) {
            (Some(endpoint), true) => endpoint.trim_end_matches('/').to_string(),
            (Some(endpoint), false) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            (None, false) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        };
        if url.contains('@') {
            return Err("AWS_ENDPOINT_URL must not have a user or a password; set AWS_ACCESS_KEY_ID instead".into());
        }
        let wrong =
            || "AWS_ENDPOINT_URL must be https://HOST or http://HOST:PORT, the address of a store; use such an address";
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        let (Some(scheme @ ("http" | "https")), Some(host), None) =
            (parsed.scheme_str(), parsed.authority(), parsed.query())
        else {
            return Err(wrong().into());
        };
        Ok(Bucket {
            http: Http::new(Pace::OF_SERVERS, proxy::to_server(settings, &parsed)?),
            scheme: scheme.into(),
            host: host.as_str().into(),
            path: encoded(parsed.path().trim_end_matches('/'), b"/%"),
            region: region.into(),
            credentials: Credentials::named(settings, region)?,
        })
    }

    /// The least pace of the server.
    pub fn pace(&self) -> Pace {
        self.http.pace()
    }

    /// The object `key` or its head, by `method`.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn ask(
        &self,
        method: Method,
        key: &str,
        headers: &[(&'static str, String)],
        limit: Limit,
    ) -> Result<Response, Failure> {
        let object_request = ObjectRequest { method, key, query: &[], headers, body: b"", about: About::Object };
        self.send(object_request, limit, AttemptKind::First)
    }

    /// All objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Failures, and pages without an end.
    pub fn list(&self, prefix: &str, end: Instant) -> Result<Vec<Object>, Failure> {
        let (mut objects, mut next, mut bytes) = (vec![], None::<String>, 0);
        loop {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            query.extend(next.as_deref().map(|next| ("continuation-token", next)));
            let object_request = ObjectRequest {
                method: Method::Get,
                key: "",
                query: &query,
                headers: &[],
                body: b"",
                about: About::Place,
            };
            let text = self.send(object_request, Limit::Whole(end), AttemptKind::First)?.text()?;
            bytes += text.len() as u64;
            if bytes > LISTING_BYTES {
                return Err(too_long(LISTING_BYTES, "a listing"));
            }
            let page = Page::parse(&text)?;
            objects.extend(page.objects);
            next = page.next;
            if next.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Makes `body` the object `key`.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn put(&self, key: &str, body: &[u8], end: Instant, attempt_kind: AttemptKind) -> Result<(), Failure> {
        let object_request =
            ObjectRequest { method: Method::Put, key, query: &[], headers: &[], body, about: About::Object };
        self.send(object_request, Limit::Whole(end), attempt_kind).map(drop)
    }

    /// # Errors
    /// No answer, and one that refuses.
    pub fn remove(&self, key: &str, end: Instant) -> Result<(), Failure> {
        let object_request =
            ObjectRequest { method: Method::Delete, key, query: &[], headers: &[], body: b"", about: About::Object };
        self.send(object_request, Limit::Whole(end), AttemptKind::First).map(drop)
    }

    /// Begins an upload of the object `key` in parts, and returns its name.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn begin_upload(&self, key: &str, end: Instant) -> Result<String, Failure> {
        let query = [("uploads", "")];
        let object_request =
            ObjectRequest { method: Method::Post, key, query: &query, headers: &[], body: b"", about: About::Place };
        listing::upload_id(&self.send(object_request, Limit::Whole(end), AttemptKind::First)?.text()?)
    }

    /// Sends the part `number`, counted from 1, and returns its tag.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn put_part(
        &self,
        key: &str,
        upload: &str,
        number: usize,
        body: &[u8],
        end: Instant,
        attempt_kind: AttemptKind,
    ) -> Result<String, Failure> {
        let number = number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", upload)];
        let object_request =
            ObjectRequest { method: Method::Put, key, query: &query, headers: &[], body, about: About::Parts };
        let response = self.send(object_request, Limit::Whole(end), attempt_kind)?;
        let tag = response.header("etag").map(str::to_string);
        tag.ok_or_else(|| Failure::Line("the store takes a part and gives it no tag".into()))
    }

    /// Makes the parts with these tags the object.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn end_upload(&self, key: &str, upload: &str, tags: &[String], end: Instant) -> Result<(), Failure> {
        let (query, body) = ([("uploadId", upload)], listing::parts(tags));
        let body = body.as_bytes();
        let object_request =
            ObjectRequest { method: Method::Post, key, query: &query, headers: &[], body, about: About::Parts };
        listing::completed(&self.send(object_request, Limit::Whole(end), AttemptKind::First)?.text()?)
    }

    /// Discards the parts of an upload.
    ///
    /// # Errors
    /// No answer, and one that refuses.
    pub fn discard_upload(&self, key: &str, upload: &str, end: Instant) -> Result<(), Failure> {
        let query = [("uploadId", upload)];
        let object_request =
            ObjectRequest { method: Method::Delete, key, query: &query, headers: &[], body: b"", about: About::Parts };
        self.send(object_request, Limit::Whole(end), AttemptKind::First).map(drop)
    }

    /// The answer to a signed request, which gives what was asked for.
    fn send(
        &self,
        object_request: ObjectRequest<'_>,
        limit: Limit,
        attempt_kind: AttemptKind,
    ) -> Result<Response, Failure> {
        let ObjectRequest { method, key, body, .. } = object_request;
        let path = match (key.is_empty(), self.path.is_empty()) {
            (true, true) => "/".into(),
            (true, false) => self.path.clone(),
            (false, _) => format!("{}/{}", self.path, encoded(key, b"/")),
        };
        let query = query(object_request.query);
        let sign = if query.is_empty() { "" } else { "?" };
        let url = format!("{}://{}{path}{sign}{query}", self.scheme, self.host);
        let mut request = Request { method, url, headers: object_request.headers.to_vec(), body, attempt_kind };
        if let Some(credential) = self.credentials.get()? {
            let signed = Signed { method: method.name(), host: &self.host, path: &path, query: &query, body };
            let scope = Scope { region: &self.region, service: "s3" };
            request = request.with("host", self.host.clone());
            request.headers.extend(headers(signed, scope, &credential, &Stamp::now()));
        }
        let answered = self.http.send(&request, limit)?.granted(object_request.about);
        if let Err(Failure::Answer { answer, .. }) = &answered
            && let Some("ExpiredToken" | "InvalidToken") = answer.code()
        {
            self.credentials.forget();
        }
        answered
    }
}
