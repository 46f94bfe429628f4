//! A server of this process with the part of S3's protocol that clients of checkpoints and text use: objects, listings
//! and uploads in parts. It checks no signature, denies access to `bucket/denied/` and to
//! all of `forbidden`, and has no bucket but these two.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use xxhash_rust::xxh3::xxh3_64;

/// An object or a part of one.
type Bytes = Arc<Vec<u8>>;

#[derive(Default)]
struct Content {
    /// By `bucket/key`.
    objects: BTreeMap<String, Bytes>,
    /// Parts by the number of their upload.
    uploads: BTreeMap<u64, BTreeMap<u32, Bytes>>,
    num_uploads: u64,
}

/// The server; its threads end with the tests.
#[derive(Clone)]
pub struct Server {
    content: Arc<Mutex<Content>>,
    pub port: u16,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = Server { content: Arc::default(), port };
        let own = server.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let server = own.clone();
                // A client may end a connection anywhere.
                std::thread::spawn(move || server.serve(&connection));
            }
        });
        server
    }

    /// The objects whose names begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let content = self.content.lock().expect("content");
        content.objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// Uploads in parts that were begun.
    pub fn uploads(&self) -> u64 {
        self.content.lock().expect("content").num_uploads
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.content.lock().expect("content").objects.insert(key.into(), Arc::new(bytes.to_vec()));
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.content.lock().expect("content").objects.get(key).map(|bytes| bytes.to_vec())
    }

    pub fn remove(&self, key: &str) {
        self.content.lock().expect("content").objects.remove(key);
    }

    fn serve(&self, connection: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(connection.try_clone()?);
        let mut writer = connection.try_clone()?;
        loop {
            let Some(request) = Request::read(&mut reader, &mut writer)? else { return Ok(()) };
            let Answer { status, headers, body } = self.answer(&request);
            let length =
                if request.method == "HEAD" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
            write!(writer, "HTTP/1.1 {status} Answer\r\n{length}{headers}\r\n")?;
            if request.method != "HEAD" {
                writer.write_all(&body)?;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut content = self.content.lock().expect("content");
        let upload = request.query.get("uploadId").and_then(|number| number.parse::<u64>().ok());
        if request.key.starts_with("bucket/denied/") {
            return Answer { status: 403, headers: String::new(), body: vec![] };
        }
        match request.key.split('/').next() {
            Some("bucket") => {}
            Some("forbidden") => return Answer { status: 403, ..Answer::missing("InvalidAccessKeyId") },
            Some(_) | None => return Answer::missing("NoSuchBucket"),
        }
        match (request.method.as_str(), upload) {
            ("GET", _) if request.query.contains_key("list-type") => content.list(request),
            ("GET" | "HEAD", _) => content.get(request),
            ("PUT", Some(upload)) => {
                let part = request.query["partNumber"].parse().expect("a number");
                let Some(parts) = content.uploads.get_mut(&upload) else { return Answer::missing("NoSuchUpload") };
                parts.insert(part, Arc::new(request.body.clone()));
                Answer { status: 200, headers: format!("ETag: {}\r\n", tag(&request.body)), body: vec![] }
            }
            ("PUT", None) => {
                content.objects.insert(request.key.clone(), Arc::new(request.body.clone()));
                Answer { status: 200, headers: format!("ETag: {}\r\n", tag(&request.body)), body: vec![] }
            }
            ("POST", Some(upload)) => {
                let Some(parts) = content.uploads.remove(&upload) else { return Answer::missing("NoSuchUpload") };
                let whole: Vec<u8> = parts.values().flat_map(|part| part.iter().copied()).collect();
                let text = format!(
                    "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                    tag(&whole)
                );
                content.objects.insert(request.key.clone(), Arc::new(whole));
                Answer::xml(&text)
            }
            ("POST", None) => {
                content.num_uploads += 1;
                let number = content.num_uploads;
                content.uploads.insert(number, BTreeMap::new());
                Answer::xml(&format!(
                    "<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("DELETE", upload) => {
                match upload {
                    Some(upload) => drop(content.uploads.remove(&upload)),
                    None => drop(content.objects.remove(&request.key)),
                }
                Answer { status: 204, headers: String::new(), body: vec![] }
            }
            (method, _) => panic!("{method} is not a method of this server"),
        }
    }
}

impl Content {
    fn get(&self, request: &Request) -> Answer {
        let Some(object) = self.objects.get(&request.key) else { return Answer::missing("NoSuchKey") };
        let tag = tag(object);
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
            return Answer { status: 412, headers: String::new(), body: vec![] };
        }
        let mut headers = format!("ETag: {tag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (status, body) = match range {
            None => (200, object.to_vec()),
            Some((first, last)) => {
                let first: usize = first.parse().expect("a number");
                let end = last.parse::<usize>().map_or(object.len(), |last| last + 1).min(object.len());
                headers += &format!("Content-Range: bytes {first}-{}/{}\r\n", end - 1, object.len());
                (206, object[first..end].to_vec())
            }
        };
        if request.method == "HEAD" {
            headers += &format!("Content-Length: {}\r\n", body.len());
        }
        Answer { status, headers, body }
    }

    fn list(&self, request: &Request) -> Answer {
        let prefix = request.query.get("prefix").cloned().unwrap_or_default();
        let bucket = format!("{}/", request.key.trim_end_matches('/'));
        let (mut text, mut folders) = (String::from("<ListBucketResult>"), vec![]);
        for (key, object) in &self.objects {
            let Some(rest) = key.strip_prefix(&bucket).and_then(|key| key.strip_prefix(&prefix)) else { continue };
            if let Some((folder, _)) = rest.split_once('/').filter(|_| request.query.contains_key("delimiter")) {
                folders.push(format!("{prefix}{folder}/"));
                continue;
            }
            text += &format!(
                "<Contents><Key>{prefix}{rest}</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>{}</ETag></Contents>",
                object.len(),
                tag(object).replace('"', "&quot;"),
            );
        }
        folders.dedup();
        text.extend(folders.iter().map(|folder| format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>")));
        Answer::xml(&(text + "</ListBucketResult>"))
    }
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{:016x}\"", xxh3_64(bytes))
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn xml(text: &str) -> Answer {
        Answer { status: 200, headers: "Content-Type: application/xml\r\n".into(), body: text.into() }
    }

    fn missing(code: &str) -> Answer {
        Answer { status: 404, ..Answer::xml(&format!("<Error><Code>{code}</Code></Error>")) }
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// The next request; `None` where the client is done. One that asks first whether its body is wanted hears that it
    /// is.
    fn read(reader: &mut BufReader<TcpStream>, writer: &mut TcpStream) -> std::io::Result<Option<Request>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default().to_string(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
        let key = decoded(path.trim_start_matches('/'));
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if headers.contains_key("expect") {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut body = vec![0; length];
        // A body that was cut off is not a request.
        reader.read_exact(&mut body)?;
        Ok(Some(Request { method, key, query, headers, body }))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            let digits = String::from_utf8(digits).expect("digits");
            bytes.push(u8::from_str_radix(&digits, 16).expect("digits"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("text")
}
