//! A server for browsers of this machine, which shows runs while they continue. It has two documents: the page, and its
//! data.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use report::Delivery;
use run::failure::Failure;
use run::messages::stderr::tell;

use crate::run_report::gather::Gathered;

/// A browser that sends nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a request that are read.
const LONGEST_REQUEST: u64 = 16 << 10;
/// The most connections at the same time; others are closed.
const MOST_CONNECTIONS: usize = 64;

/// Headers of every answer: nothing is loaded from elsewhere, stored, or given to other sites.
const HEADERS: &str = "Cache-Control: no-store\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; connect-src 'self'\r\n";

/// An open port on the loopback interface.
pub struct Server {
    listener: TcpListener,
    at: SocketAddr,
}

/// The kind of an answer.
struct Answer {
    status: &'static str,
    kind: &'static str,
    tag: Option<String>,
    body: String,
}

impl Server {
    /// Opens `port`, or a free one for 0.
    ///
    /// # Errors
    /// A port that cannot be opened.
    pub fn open(port: u16) -> Result<Server, Failure> {
        let refused = |error: std::io::Error| {
            Failure::Input(format!("--port {port} cannot be opened: {error}; use 0 for a free port"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refused)?;
        let at = listener.local_addr().map_err(refused)?;
        Ok(Server { listener, at })
    }

    /// The page's address.
    pub fn address(&self) -> String {
        format!("http://{}/", self.at)
    }

    /// Answers until the process ends. Browsers open connections ahead and leave them silent, so each has its own
    /// thread.
    ///
    /// # Errors
    /// A port that does not accept connections any more.
    pub fn serve(&self, runs: &Gathered) -> Result<(), Failure> {
        let open = AtomicUsize::new(0);
        thread::scope(|scope| {
            loop {
                let accepted = self.listener.accept();
                let (stream, _) = accepted.map_err(|error| Failure::Work(format!("the server: {error}")))?;
                if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let open = &open;
                let answer = move || {
                    // A browser that goes away has had enough.
                    let _ = self.answer(stream, runs);
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                if let Err(error) = sync::start_scoped(scope, "page", answer) {
                    open.fetch_sub(1, Ordering::Relaxed);
                    tell(&format!("{error}\n"));
                }
            }
        })
    }

    fn answer(&self, mut stream: TcpStream, runs: &Gathered) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let lines = request(&stream)?;
        let Answer { status, kind, tag, body } = self.answer_to(&lines, runs);
        let tag = tag.map_or(String::new(), |tag| format!("ETag: {tag}\r\n"));
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n{HEADERS}{tag}\r\n{body}"
        )
    }

    fn answer_to(&self, lines: &[String], runs: &Gathered) -> Answer {
        let text = |status, body: &str| Answer { status, kind: "text/plain", tag: None, body: body.into() };
        let header = |name: &str| {
            let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
            headers.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_string()).next()
        };
        // Another site's name that leads here is not this server.
        let names = [self.at.to_string(), format!("localhost:{}", self.at.port())];
        if !header("host").is_some_and(|host| names.contains(&host)) {
            return text("403 Forbidden", "use the address that pleach has printed\n");
        }
        let mut words = lines.first().map_or("", String::as_str).split(' ');
        match (words.next(), words.next()) {
            (Some("GET"), Some("/")) => {
                let page = |runs: Vec<report::Run>| report::page(&runs, Delivery::Served);
                answer("text/html", None, runs.read().map(page))
            }
            (Some("GET"), Some("/data.json")) => {
                let tag = tag(runs);
                if header("if-none-match") == Some(tag.clone()) {
                    return Answer { tag: Some(tag), ..text("304 Not Modified", "") };
                }
                answer("application/json", Some(tag), runs.read().map(|runs| report::data(&runs)))
            }
            (Some("GET"), _) => text("404 Not Found", "only / and /data.json are here\n"),
            (_, _) => text("405 Method Not Allowed", "only GET is answered\n"),
        }
    }
}

/// A document, or the reason why it is missing.
fn answer(kind: &'static str, tag: Option<String>, body: Result<String, Failure>) -> Answer {
    match body {
        Ok(body) => Answer { status: "200 OK", kind, tag, body },
        Err(failure) => {
            let body = format!("{failure}\n");
            Answer { status: "500 Internal Server Error", kind: "text/plain", tag: None, body }
        }
    }
}

/// The lines of a request, until the empty one.
fn request(stream: &TcpStream) -> std::io::Result<Vec<String>> {
    let mut lines = vec![];
    for line in BufReader::new(stream.take(LONGEST_REQUEST)).lines() {
        match line? {
            line if line.is_empty() => return Ok(lines),
            line => lines.push(line),
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// Changes whenever one of the files does: their sizes and times.
fn tag(runs: &Gathered) -> String {
    let of_file = |path: std::path::PathBuf| {
        let metadata = path.metadata().ok();
        let changed = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let since = changed.and_then(|changed| changed.duration_since(SystemTime::UNIX_EPOCH).ok());
        format!("{:x}.{:x}", metadata.map_or(0, |metadata| metadata.len()), since.unwrap_or_default().as_micros())
    };
    let parts: Vec<String> = runs.files().into_iter().map(of_file).collect();
    format!("\"{}\"", parts.join("-"))
}
