//! One thread that answers HTTP requests for the numbers of a run.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::Trusted;
use sync::lock;

use crate::failure::Failure;
use crate::watch::numbers::Numbers;

/// Time for a request and its answer: one client must not keep others waiting for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const MAX_REQUEST: usize = 8 << 10;

/// The thread; it ends when this is dropped.
pub struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address`: `HOST:PORT`, or a port of this machine's own address.
    ///
    /// # Errors
    /// An address that is in use, or not one of this machine.
    pub fn start(address: &Trusted<String>, numbers: Arc<Mutex<Numbers>>) -> Result<Server, Failure> {
        let place = if address.contains(':') { address.to_string() } else { format!("127.0.0.1:{address}") };
        let failed = |error: io::Error| {
            let remedy = remedy(&error);
            Failure::Input(format!("run.metrics_address = {address:?} cannot be listened at: {error}; {remedy}"))
        };
        let listener = TcpListener::bind(&place).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let serve = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away costs nothing.
                let _ = stream.and_then(|stream| answer(stream, &numbers));
            }
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(serve).map_err(failed)?;
        Ok(Server { address, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn remedy(error: &io::Error) -> &'static str {
    const REMEDIES: [(ErrorKind, &str); 3] = [
        (ErrorKind::AddrInUse, "another program has it, such as another run; use another port"),
        (ErrorKind::AddrNotAvailable, "it must be an address of this host; use a port alone for the loopback address"),
        (ErrorKind::PermissionDenied, "use a port from 1024 on"),
    ];
    let of_kind = REMEDIES.iter().find(|(kind, _)| *kind == error.kind());
    of_kind.map_or("use a port alone for the loopback address", |(_, remedy)| remedy)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // A connection wakes the thread; where none comes about, the process ends without it.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_millis(200)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, numbers: &Mutex<Numbers>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = vec![];
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        request.extend_from_slice(&piece[..count]);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, kind, body) = match line {
        b"GET /metrics HTTP/1.1" | b"GET /metrics HTTP/1.0" => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", lock(numbers).text())
        }
        _ if line.starts_with(b"GET ") => ("404 Not Found", "text/plain", "the numbers are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".into()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user(address: &str) -> Trusted<String> {
        Trusted::of_command_line(address.into())
    }

    fn asked(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn numbers_are_served_on_the_loopback_and_nothing_else() {
        let server = Server::start(&of_user("0"), Arc::new(Mutex::new(Numbers::new(0, 5)))).expect("a free port");
        assert!(server.address.ip().is_loopback());
        let answer = asked(&server, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\npleach_steps 5\n"), "{answer}");
        assert!(asked(&server, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(asked(&server, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        // A client that says nothing does not keep the run from its end.
        let silent = TcpStream::connect(server.address).expect("a connection");
        drop(silent);
        drop(server);
    }

    #[test]
    fn an_address_in_use_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port().to_string();
        let refused = Server::start(&of_user(&port), Arc::new(Mutex::new(Numbers::new(0, 5))))
            .err()
            .expect("refused")
            .to_string();
        assert!(refused.starts_with(&format!("run.metrics_address = \"{port}\" cannot be listened at: ")), "{refused}");
        assert!(refused.ends_with("; another program has it, such as another run; use another port"), "{refused}");
        // An address of documents, which no host has.
        let elsewhere = Server::start(&of_user("192.0.2.1:0"), Arc::new(Mutex::new(Numbers::new(0, 5))));
        let refused = elsewhere.err().expect("refused").to_string();
        assert!(refused.contains("; it must be an address of this host; use a port alone "), "{refused}");
    }
}
