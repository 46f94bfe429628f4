//! Connections whose answers are bounded: a listing, or what a store says of an upload or of an error, is read into
//! memory as a whole.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Bytes of one answer that is not an object; a page of a listing has 1,000 names of 1,024 bytes.
const ANSWER_BYTES: u64 = 16 << 20;
/// Bytes of all pages of one listing: some 500,000 objects.
const LISTING_BYTES: u64 = 256 << 20;

/// How the reason of an answer begins that is too long, which another attempt does not change.
pub const TOO_LONG: &str = "the store sends more than";

/// Makes clients with bounded answers.
#[derive(Debug, Default)]
pub struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Bounded { client, listed_bytes: AtomicU64::new(0) }))
    }
}

#[derive(Debug)]
struct Bounded {
    client: HttpClient,
    /// Of the listing whose pages are requested.
    listed_bytes: AtomicU64,
}

/// The answer that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Its body goes to the caller in parts.
    Object,
    FirstPage,
    NextPage,
    Other,
}

impl Asked {
    fn of(request: &HttpRequest) -> Asked {
        let query = request.uri().query().unwrap_or_default();
        match (request.method().as_str(), query.contains("list-type="), query.contains("continuation-token=")) {
            ("GET", true, true) => Asked::NextPage,
            ("GET", true, false) => Asked::FirstPage,
            ("GET", false, _) => Asked::Object,
            (_, _, _) => Asked::Other,
        }
    }
}

impl HttpService for Bounded {
    fn call<'service, 'call>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'service: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            let asked = Asked::of(&request);
            let response = self.client.execute(request).await?;
            if asked == Asked::Object && response.status().is_success() {
                return Ok(response);
            }
            if asked != Asked::NextPage {
                self.listed_bytes.store(0, Ordering::Relaxed);
            }
            let (parts, body) = response.into_parts();
            let mut stream = body.bytes_stream();
            let mut answer: Vec<u8> = vec![];
            while let Some(part) = stream.next().await {
                let part = part?;
                let bytes = part.len() as u64;
                let listed = self.listed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if answer.len() as u64 + bytes > ANSWER_BYTES {
                    return Err(too_long(ANSWER_BYTES, "an answer"));
                }
                if listed > LISTING_BYTES {
                    return Err(too_long(LISTING_BYTES, "a listing"));
                }
                answer.extend_from_slice(&part);
            }
            Ok(HttpResponse::from_parts(parts, answer.into()))
        })
    }
}

fn too_long(limit_bytes: u64, of: &str) -> HttpError {
    let said = format!("{TOO_LONG} {limit_bytes} bytes, the limit of {of}");
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other(said))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crate::{Address, Patience, Remote, Settings};

    /// A server that answers each request with what `write` writes.
    fn server(write: impl Fn(&mut TcpStream, &str) -> std::io::Result<()> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = [0; 8192];
                let Ok(bytes) = stream.read(&mut request) else { continue };
                // The client goes away where it has read enough.
                let _ = write(&mut stream, &String::from_utf8_lossy(&request[..bytes]));
            }
        });
        format!("http://{address}")
    }

    fn listed(endpoint: String) -> String {
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "one"),
            ("AWS_SECRET_ACCESS_KEY", "two"),
            ("AWS_REGION", "three"),
        ];
        let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
        let settings = Settings::new(variables, Patience { limit: Duration::from_secs(60) });
        let address = Address::parse("s3://bucket/prefix").expect("an address").expect("a bucket");
        let remote = Remote::open(&address, &settings).expect("a place");
        remote.list("").expect_err("no end").to_string()
    }

    #[test]
    fn an_answer_without_an_end_is_refused() {
        let endless = server(|stream, _| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[b'a'; 1 << 16])?;
            }
        });
        let error = listed(endless);
        assert!(error.contains("the store sends more than 16777216 bytes, the limit of an answer"), "{error}");
    }

    /// The error for an object of a web server whose answer has this head, and the requests that were sent.
    fn described(head: String) -> (String, usize) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let endpoint = server(move |stream, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())
        });
        let settings = Settings::new([], Patience { limit: Duration::from_secs(60) });
        let address = Address::parse(&format!("{endpoint}/a.txt")).expect("an address").expect("a path");
        let remote = Remote::open(&address, &settings).expect("a place");
        let error = remote.describe("").expect_err("refused").to_string();
        (error, requests.load(Ordering::Relaxed))
    }

    #[test]
    fn answers_that_no_other_attempt_changes_are_refused_at_once() {
        let empty = "Content-Length: 0";
        for (head, remedy) in [
            (format!("302 Found\r\nLocation: /a.txt\r\n{empty}"), "name the final address"),
            (format!("302 Found\r\nLocation: file:///etc/passwd\r\n{empty}"), "name the final address"),
            (format!("302 Found\r\n{empty}"), "name the final address"),
            (format!("400 Bad Request\r\n{empty}"), "the server refuses the request"),
            (format!("410 Gone\r\n{empty}"), "the server refuses the request"),
            (format!("405 Method Not Allowed\r\n{empty}"), "does not take the requests HEAD and GET with a range"),
            ("200 OK".into(), "does not say how long the object is"),
            ("200 OK\r\nContent-Length: 99999999999999999999999".into(), "does not say how long the object is"),
        ] {
            let (error, requests) = described(head.clone());
            assert!(error.contains(remedy), "{head}: {error}");
            // The client follows ten redirects.
            assert!(requests <= 11, "{head}: {requests} requests");
        }
    }

    #[test]
    fn a_store_in_another_place_is_told_with_the_keys_that_name_it() {
        let moved = "<Error><Code>PermanentRedirect</Code><Message>m</Message>\
                     <Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>";
        let malformed =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region></Error>";
        for (status, body, remedy) in [
            ("301 Moved Permanently", moved, "set AWS_REGION to the region of the bucket"),
            ("301 Moved Permanently", "", "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL"),
            ("400 Bad Request", malformed, "set AWS_REGION=eu-west-1, the region of the bucket"),
            ("400 Bad Request", "", "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL"),
            ("405 Method Not Allowed", "", "check AWS_ENDPOINT_URL, such as its port"),
        ] {
            let endpoint = server(move |stream, _| {
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(head.as_bytes())?;
                stream.write_all(body.as_bytes())
            });
            let error = listed(endpoint);
            assert!(error.contains(remedy), "{status}: {error}");
        }
    }

    #[test]
    fn a_listing_without_an_end_is_refused() {
        let pages = server(|stream, _| {
            let padding = " ".repeat(15 << 20);
            let body = format!(
                "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><Prefix></Prefix><KeyCount>0</KeyCount>\
                 <MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>\
                 <NextContinuationToken>t</NextContinuationToken>{padding}</ListBucketResult>"
            );
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(body.as_bytes())
        });
        let error = listed(pages);
        assert!(error.contains("the store sends more than 268435456 bytes, the limit of a listing"), "{error}");
    }
}
