//! Requests over HTTP, and answers whose size and pace have limits.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use ureq::http::{self, HeaderMap, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, BodyReader, Proxy, Timeout};

use crate::answer::Answer;
use crate::failure::{About, Failure};
use crate::pace::{Meter, Pace};

/// Bytes of one answer that is not an object; a page of a listing has 1,000 names of 1,024 bytes.
const ANSWER_BYTES: u64 = 16 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;
/// Connections that wait for the next request: those of the parts of an upload.
const IDLE_CONNECTIONS: usize = 4;
/// Bytes of a body from which the server is asked first, where an earlier attempt failed: a server that refuses a body
/// may end the connection while it is sent, and its answer is lost.
const ASKED_BYTES: usize = 64 << 10;

/// The time of a request.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// The answer and its body must be there.
    Whole(Instant),
    /// The answer must begin, and its body may be long.
    Beginning(Instant),
}

impl Limit {
    /// The time that is left.
    fn left(self) -> Duration {
        let (Limit::Whole(end) | Limit::Beginning(end)) = self;
        end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
}

impl Method {
    /// As requests begin with it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

/// Whether a request was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    First,
    Again,
}

/// A request. It is never printed, for its headers have signatures and tokens.
#[derive(Clone)]
pub struct Request<'a> {
    pub method: Method,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'a [u8],
    pub attempt_kind: AttemptKind,
}

impl Request<'_> {
    /// GET of `url`.
    pub fn get(url: String) -> Request<'static> {
        Request { method: Method::Get, url, headers: vec![], body: b"", attempt_kind: AttemptKind::First }
    }

    /// The same with a header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A client. It follows no redirect.
pub struct Http {
    agent: Agent,
    pace: Pace,
}

impl Http {
    /// By way of `proxy`, if there is one. Servers are believed by the authorities of this machine.
    pub fn new(pace: Pace, proxy: Option<Proxy>) -> Http {
        // Certificates that cannot be read are not believed; a server that needs them is refused by its own name.
        Http::believing(&rustls_native_certs::load_native_certs().certs, pace, proxy)
    }

    fn believing(authorities: &[CertificateDer<'_>], pace: Pace, proxy: Option<Proxy>) -> Http {
        let authorities = authorities.iter().map(|authority| Certificate::from_der(authority).to_owned()).collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(authorities)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let silence = Some(pace.silence);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("pleach/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .proxy(proxy)
            .tls_config(tls)
            .timeout_resolve(silence)
            .timeout_connect(silence)
            .timeout_send_request(silence)
            .timeout_recv_response(silence)
            .timeout_per_read(silence)
            .timeout_per_write(silence)
            .build();
        Http { agent: config.new_agent(), pace }
    }

    /// The least pace of its servers.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// The answer to `request`, whatever it says.
    ///
    /// # Errors
    /// No answer.
    pub fn send(&self, request: &Request<'_>, limit: Limit) -> Result<Response, Failure> {
        let mut builder = http::Request::builder().method(request.method.name()).uri(&request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if request.attempt_kind == AttemptKind::Again && request.body.len() >= ASKED_BYTES {
            builder = builder.header("expect", "100-continue");
        }
        let answered = match request.method {
            Method::Get | Method::Head | Method::Delete => self.run(builder, (), limit),
            Method::Put | Method::Post => self.run(builder, request.body, limit),
        };
        let (parts, body) = answered?.into_parts();
        let (reader, meter, silence) = (body.into_reader(), Meter::new(self.pace), self.pace.silence);
        Ok(Response { status: parts.status, headers: parts.headers, reader, meter, silence })
    }

    fn run(
        &self,
        request: http::request::Builder,
        body: impl AsSendBody,
        limit: Limit,
    ) -> Result<http::Response<ureq::Body>, Failure> {
        // The address and the headers were made here: what is wrong with them is wrong in any attempt.
        let request = request.body(body).map_err(|error| Failure::Lasting(error.to_string()))?;
        let configured = self.agent.configure_request(request);
        let silence = self.pace.silence.min(limit.left());
        let request = match limit {
            Limit::Whole(_) => configured.timeout_global(Some(limit.left())).build(),
            Limit::Beginning(_) => {
                configured.timeout_connect(Some(silence)).timeout_recv_response(Some(silence)).build()
            }
        };
        self.agent.run(request).map_err(|error| broken(error, silence))
    }
}

/// An answer.
pub struct Response {
    pub status: StatusCode,
    headers: HeaderMap,
    reader: BodyReader<'static>,
    meter: Meter,
    silence: Duration,
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The answer if it gives what was asked for.
    ///
    /// # Errors
    /// An answer that refuses.
    pub fn granted(self, about: About) -> Result<Response, Failure> {
        if self.status.is_success() {
            return Ok(self);
        }
        let (status, region) = (self.status, self.header("x-amz-bucket-region").map(str::to_string));
        let body = self.bytes(ANSWER_BYTES)?;
        let answer = Answer::new(status, region.as_deref(), &String::from_utf8_lossy(&body));
        Err(Failure::Answer { answer, about })
    }

    /// The whole body, which is not an object.
    ///
    /// # Errors
    /// A body that is too long, too slow or broken off.
    pub fn text(self) -> Result<String, Failure> {
        let malformed = |_| Failure::Lasting("the answer is not text; check AWS_ENDPOINT_URL".into());
        String::from_utf8(self.bytes(ANSWER_BYTES)?).map_err(malformed)
    }

    /// The whole body, an object of `bytes` bytes.
    ///
    /// # Errors
    /// A body of another length, too slow or broken off.
    pub fn object(self, bytes: u64) -> Result<Vec<u8>, Failure> {
        let body = self.bytes(bytes)?;
        match body.len() as u64 == bytes {
            true => Ok(body),
            false => Err(Failure::Line(format!("{} bytes where {bytes} were announced", body.len()))),
        }
    }

    /// The whole body of at most `limit_bytes`.
    fn bytes(mut self, limit_bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![];
        let mut part = vec![0; READ_BYTES];
        while let count @ 1.. = self.read(&mut part)? {
            if bytes.len() as u64 + count as u64 > limit_bytes {
                return Err(too_long(limit_bytes, "an answer"));
            }
            bytes.extend_from_slice(&part[..count]);
        }
        Ok(bytes)
    }

    /// The next bytes of the body; none at its end.
    ///
    /// # Errors
    /// A body that is too slow or broken off.
    pub fn read(&mut self, part: &mut [u8]) -> Result<usize, Failure> {
        let since = Instant::now();
        let count = self.reader.read(part).map_err(|error| broken(error.into(), self.silence))?;
        let slow = self.meter.add(count as u64, since.elapsed()).err();
        slow.map_or(Ok(count), |slow| Err(Failure::Line(slow.to_string())))
    }
}

/// The failure for an answer of more than `limit_bytes`, which another attempt does not change.
pub fn too_long(limit_bytes: u64, of: &str) -> Failure {
    Failure::Lasting(format!("the store sends more than {limit_bytes} bytes, the limit of {of}"))
}

/// Why a connection gave no answer.
fn broken(error: ureq::Error, silence: Duration) -> Failure {
    if let ureq::Error::Timeout(timeout) = error {
        if [Timeout::Global, Timeout::PerCall].contains(&timeout) {
            return Failure::Line("no answer".into());
        }
        let phases = [
            (Timeout::Resolve, "no address of the host within"),
            (Timeout::Connect, "no connection within"),
            (Timeout::RecvResponse, "no answer within"),
        ];
        let phase = phases.into_iter().find(|(phase, _)| *phase == timeout);
        let text = phase.map_or("nothing moved on the connection for", |(_, text)| text);
        return Failure::Line(format!("{text} {:.0} s", silence.as_secs_f64()));
    }
    if let ureq::Error::Protocol(error) = &error {
        // A server of another protocol gives the same answer each time.
        return Failure::Lasting(format!("the server does not speak HTTP/1.1: {error}; check its address and port"));
    }
    let ureq::Error::Io(error) = error else { return Failure::Line(error.to_string()) };
    if is_of_certificate(&error) {
        let remedy = "check the address, or set SSL_CERT_FILE to certificates with the authority of the server";
        return Failure::Lasting(format!("{error}; {remedy}"));
    }
    Failure::Line(match error.kind() == std::io::ErrorKind::UnexpectedEof {
        true => "the connection ended before the answer did".into(),
        false => error.to_string(),
    })
}

/// Whether a server was not believed.
fn is_of_certificate(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// A certificate of the host `localhost`, and its key.
    const LOCALHOST: &[u8] = include_bytes!("tests/served/localhost.pem");

    fn certificate() -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(LOCALHOST).expect("a certificate")
    }

    /// The port of a server with TLS that gives `text` to each request.
    fn server() -> u16 {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from_pem_slice(LOCALHOST).expect("a key");
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate()], key);
        let config = Arc::new(config.expect("a certificate with its key"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                let mut stream = StreamOwned::new(connection, stream);
                // A client that does not believe the server ends the connection here.
                if stream.read(&mut [0; 4096]).is_ok() {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntext");
                }
            }
        });
        port
    }

    fn asked(http: &Http, host: &str, port: u16) -> Result<String, Failure> {
        let request = Request::get(format!("https://{host}:{port}/a.txt"));
        http.send(&request, Limit::Whole(Instant::now() + Duration::from_secs(60)))?.text()
    }

    #[test]
    fn a_server_with_tls_is_believed_by_its_authority_and_its_name_alone() {
        let port = server();
        let believing = Http::believing(&[certificate()], Pace::OF_SERVERS, None);
        assert_eq!(asked(&believing, "localhost", port), Ok("text".into()));
        for (http, host, reason) in [
            (&Http::new(Pace::OF_SERVERS, None), "localhost", "UnknownIssuer"),
            (&Http::believing(&[], Pace::OF_SERVERS, None), "localhost", "UnknownIssuer"),
            (&believing, "127.0.0.1", "not valid for name"),
        ] {
            let Err(Failure::Lasting(text)) = asked(http, host, port) else { panic!("{host} is not believed") };
            assert!(text.contains("invalid peer certificate") && text.contains(reason), "{text}");
            assert!(text.contains("set SSL_CERT_FILE to certificates with the authority of the server"), "{text}");
        }
    }
}
