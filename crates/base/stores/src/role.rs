//! Credentials that a machine, a container or a service of tokens gives for some hours.

use std::path::Path;
use std::time::{Duration, Instant};

use files::InputKind;
use serde::Deserialize;
use ureq::http::Uri;

use crate::date;
use crate::failure::{About, Failure};
use crate::http::{Http, Limit, Method, Request, Response};
use crate::pace::Pace;
use crate::proxy;
use crate::settings::Settings;
use crate::signature::{Credential, encoded};
use crate::xml;

/// The address of the service that gives a machine the credentials of its role.
const METADATA_SERVICE: &str = "http://169.254.169.254";
/// The address of the service that gives a container the credentials of its task.
const CONTAINER_SERVICE: &str = "http://169.254.170.2";
/// Hosts of services of a machine, which have no TLS: those of containers, and of pods.
const NEAR: [&str; 6] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "127.0.0.1", "[::1]", "localhost"];
/// A machine with a role has an answer within milliseconds; this many times it is asked for one.
const METADATA_ATTEMPTS: u32 = 3;
const METADATA_WAIT: Duration = Duration::from_millis(200);

/// Credentials of a role, with the milliseconds since 1970 at which they end.
#[derive(Clone, Debug)]
pub struct TemporaryCredential {
    pub credential: Credential,
    pub ends_ms: i64,
}

/// The role of this machine, by version 2 of its service of metadata.
pub struct Machine {
    http: Http,
    url: String,
}

/// The role of a container or a pod.
pub struct Container {
    http: Http,
    url: String,
    /// The file with the text that the service asks for.
    token_file: Option<String>,
}

/// A role that is taken by a token of another service.
pub struct WebIdentity {
    http: Http,
    url: String,
    token_file: String,
    role: String,
    session: String,
}

impl Machine {
    /// The machine, at the address that `settings` name or at that of AWS.
    pub fn new(settings: &Settings) -> Machine {
        let url = settings.get("AWS_METADATA_ENDPOINT").unwrap_or(METADATA_SERVICE);
        Machine { http: Http::new(Pace::OF_MACHINE, None), url: url.trim_end_matches('/').into() }
    }

    /// # Errors
    /// A machine without a role: no other attempt of the request changes that.
    pub fn lend(&self) -> Result<TemporaryCredential, Failure> {
        let mut attempt = 1;
        loop {
            match self.lend_once() {
                Err(Failure::Line(_)) if attempt < METADATA_ATTEMPTS => attempt += 1,
                Err(Failure::Line(reason)) => return Err(Failure::NoRole(reason)),
                Err(Failure::Answer { answer, .. }) => return Err(Failure::NoRole(answer.to_string())),
                other => return other,
            }
            std::thread::sleep(METADATA_WAIT);
        }
    }

    fn lend_once(&self) -> Result<TemporaryCredential, Failure> {
        let ask = |request: Request<'_>| -> Result<Response, Failure> {
            self.http.send(&request, whole(self.http.pace()))?.granted(About::Place)
        };
        let request = Request { method: Method::Put, ..Request::get(format!("{}/latest/api/token", self.url)) };
        let token = ask(request.with("x-aws-ec2-metadata-token-ttl-seconds", "600".into()))?.text()?;
        let roles = format!("{}/latest/meta-data/iam/security-credentials/", self.url);
        let with_token = |url: String| Request::get(url).with("x-aws-ec2-metadata-token", token.trim().into());
        let role = ask(with_token(roles.clone()))?.text()?;
        let role = encoded(role.lines().next().unwrap_or_default().trim(), b"+=,@");
        of_json(&ask(with_token(roles + &role))?.text()?)
    }
}

impl Container {
    /// The service that the settings name, if they name one.
    ///
    /// # Errors
    /// An address to which the text of the file would go without TLS.
    pub fn named(settings: &Settings) -> Result<Option<Container>, String> {
        let relative = settings.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = settings.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let url = match (relative, full) {
            (Some(path), _) => format!("{CONTAINER_SERVICE}{path}"),
            (None, Some(url)) => url.to_string(),
            (None, None) => return Ok(None),
        };
        let http = client("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url, settings)?;
        let token_file = settings.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(str::to_string);
        Ok(Some(Container { http, url, token_file }))
    }

    /// # Errors
    /// No answer, one that refuses, and a file that cannot be read.
    pub fn lend(&self, settings: &Settings) -> Result<TemporaryCredential, Failure> {
        let mut request = Request::get(self.url.clone());
        if let Some(path) = &self.token_file {
            request = request.with("authorization", token("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, settings)?);
        }
        of_json(&given(self.http.send(&request, whole(self.http.pace()))?)?)
    }
}

impl WebIdentity {
    /// The role and the token that the settings name, if they name both.
    ///
    /// # Errors
    /// An address to which the token would go without TLS.
    pub fn named(settings: &Settings, region: &str) -> Result<Option<WebIdentity>, String> {
        let named = settings.get("AWS_WEB_IDENTITY_TOKEN_FILE").zip(settings.get("AWS_ROLE_ARN"));
        let Some((token_file, role)) = named else { return Ok(None) };
        let of_region = format!("https://sts.{region}.amazonaws.com");
        let url = settings.get("AWS_ENDPOINT_URL_STS").unwrap_or(&of_region);
        let http = client("AWS_ENDPOINT_URL_STS", url, settings)?;
        let session = settings.get("AWS_ROLE_SESSION_NAME").unwrap_or("pleach").to_string();
        let url = format!("{}/", url.trim_end_matches('/'));
        Ok(Some(WebIdentity { http, url, token_file: token_file.into(), role: role.into(), session }))
    }

    /// # Errors
    /// No answer, one that refuses, and a file that cannot be read.
    pub fn lend(&self, settings: &Settings) -> Result<TemporaryCredential, Failure> {
        let token = token("AWS_WEB_IDENTITY_TOKEN_FILE", &self.token_file, settings)?;
        let pairs = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("DurationSeconds", "3600"),
            ("RoleArn", &self.role),
            ("RoleSessionName", &self.session),
            ("Version", "2011-06-15"),
            ("WebIdentityToken", &token),
        ];
        let body = crate::signature::query(&pairs);
        let request = Request { method: Method::Post, body: body.as_bytes(), ..Request::get(self.url.clone()) };
        let request = request.with("content-type", "application/x-www-form-urlencoded".into());
        of_xml(&given(self.http.send(&request, whole(self.http.pace()))?)?)
    }
}

/// A client for the service at `url`, the value of `variable`.
fn client(variable: &str, url: &str, settings: &Settings) -> Result<Http, String> {
    let rule = "must be https://, or http:// on this machine, for secrets are sent there";
    let wrong = || format!("{variable} {rule}; use such an address");
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("http"), Some(host)) if NEAR.contains(&host) => Ok(Http::new(Pace::OF_MACHINE, None)),
        (Some("https"), Some(_)) => Ok(Http::new(Pace::OF_SERVERS, proxy::to_server(settings, &parsed)?)),
        (_, _) => Err(wrong()),
    }
}

/// Short answers are there after one silence.
fn whole(pace: Pace) -> Limit {
    Limit::Whole(Instant::now() + pace.silence)
}

/// The body of an answer that gives credentials.
fn given(response: Response) -> Result<String, Failure> {
    match response.granted(About::Place) {
        Ok(response) => response.text(),
        Err(Failure::Answer { answer, .. }) if answer.status.is_client_error() => {
            Err(Failure::Denied(answer.to_string()))
        }
        Err(other) => Err(other),
    }
}

/// The text in the file at `path`, the value of `variable`. No message has it.
fn token(variable: &str, path: &str, settings: &Settings) -> Result<String, Failure> {
    let text = files::read_text(Path::new(path), InputKind::Profile);
    let text =
        text.map_err(|error| Failure::Lasting(format!("{variable} = {path:?} {error}; name a file with a token")))?;
    settings.keep_secret(text.trim());
    Ok(text.trim().into())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OfJson {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: String,
}

fn of_json(text: &str) -> Result<TemporaryCredential, Failure> {
    // The reason of a parser would repeat a part of what it read.
    let found: OfJson = serde_json::from_str(text).map_err(|_| not_credentials())?;
    let credential = Credential { key: found.access_key_id, secret: found.secret_access_key, token: found.token };
    lent(credential, &found.expiration)
}

fn of_xml(text: &str) -> Result<TemporaryCredential, Failure> {
    let mut found = [const { None }; 4];
    let read = xml::walk(text, "AssumeRoleWithWebIdentityResponse", |path, text| {
        if let ["AssumeRoleWithWebIdentityResult", "Credentials", name] = path {
            let names = ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"];
            if let Some(at) = names.iter().position(|known| known == name) {
                found[at] = Some(text.to_string());
            }
        }
    });
    let [Some(key), Some(secret), token, Some(ends)] = found else { return Err(not_credentials()) };
    read.map_err(|_| not_credentials())?;
    lent(Credential { key, secret, token }, &ends)
}

fn lent(credential: Credential, ends: &str) -> Result<TemporaryCredential, Failure> {
    let ends_ms = date::of_listing(ends).ok_or_else(not_credentials)?;
    Ok(TemporaryCredential { credential, ends_ms })
}

fn not_credentials() -> Failure {
    Failure::Lasting(
        "the service of credentials gives none that are understood; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            .into(),
    )
}
