//! The S3 server of moto, a program of others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::free_port;
use crate::processes::wait::wait;

/// A server that ends with its test.
pub struct Moto {
    child: Child,
    pub port: u16,
}

impl Moto {
    /// Starts the server of the environment that `PLEACH_S3` names.
    pub fn start() -> Moto {
        let folder = std::env::var_os("PLEACH_S3").map(PathBuf::from);
        let folder = folder.expect("PLEACH_S3 must name an environment with moto: run tools/install-moto.sh");
        let port = free_port();
        let mut command = Command::new(folder.join("bin/moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let moto = Moto { child: child.expect("moto_server starts"), port };
        wait("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        moto
    }

    pub fn make_bucket(&self, name: &str) {
        let answer = request(self.port, "PUT", &format!("/{name}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a request without a body.
fn request(port: u16, method: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).expect("a request");
    let mut answer = vec![];
    // The server of this process leaves connections open; one read is enough for what it says.
    let mut buffer = [0; 1 << 16];
    while let Ok(count @ 1..) = connection.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if String::from_utf8_lossy(&answer).contains("</ListBucketResult>") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The answer to GET.
pub fn get(port: u16, path: &str) -> String {
    request(port, "GET", path)
}
