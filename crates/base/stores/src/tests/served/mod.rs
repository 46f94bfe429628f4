//! A server whose answers a test writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request: its first line and headers, with names in lowercase, and its body.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub head: String,
    pub body: String,
}

impl Asked {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The server; its threads end with the tests.
pub struct Served {
    /// `http://127.0.0.1:port`.
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Served {
    /// Each connection has one request, with its number from 0 on, whose answer `write` writes.
    pub fn start(
        write: impl Fn(&mut TcpStream, &Asked, usize) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (asked, write) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(write));
        let served = Served { url, asked: Arc::clone(&asked) };
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (asked, write) = (Arc::clone(&asked), Arc::clone(&write));
                std::thread::spawn(move || {
                    let Ok(request) = read(&stream) else { return };
                    let number = {
                        let mut asked = asked.lock().expect("requests");
                        asked.push(request.clone());
                        asked.len() - 1
                    };
                    // The client goes away where it has read enough.
                    let _ = write(&mut stream, &request, number);
                });
            }
        });
        served
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("requests").clone()
    }
}

fn read(stream: &TcpStream) -> std::io::Result<Asked> {
    let mut reader = BufReader::new(stream);
    let mut asked = Asked::default();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        asked.head += &match line.split_once(": ").filter(|_| !asked.head.is_empty()) {
            Some((name, value)) => format!("{}: {value}\n", name.to_ascii_lowercase()),
            None => format!("{line}\n"),
        };
    }
    let length = asked.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    asked.body = String::from_utf8_lossy(&body).into_owned();
    Ok(asked)
}

/// Writes an answer with these headers, each ended by `\r\n`, and its body.
pub fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n")?;
    stream.write_all(body)
}
