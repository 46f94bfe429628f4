//! Requests to a process of another host: to keep a file, and to read one.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use files::InputKind;
use rendezvous::{PEER_MESSAGE_BYTES, PeerLink, PeerService, Token};
use serde::{Deserialize, Serialize};

use crate::peer_memory::host_folder::HostFolder;

/// The name of a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Keeps a file of `of` bytes, which follow in messages. State that is neither that of `steps` nor that of `whole`
    /// is removed.
    Put { steps: u32, file: String, of: u64, whole: u32 },
    /// Reads this number of bytes.
    Get { steps: u32, file: String, at: u64, bytes: usize },
}

/// The name of a message with bytes of a file.
const PART: &str = "part";
const DONE: &str = "done";
const FAILED: &str = "failed";

/// Serves `folder` to the other processes of the run, at a free port of the address `own`.
///
/// # Errors
/// A system without sockets.
pub fn serve(own: IpAddr, token: Token, folder: HostFolder) -> io::Result<PeerService> {
    PeerService::start(own, token, move |link| {
        let request = serde_json::from_str(&link.receive()?.0)?;
        match answer(&folder, request, link) {
            Ok(bytes) => link.send(DONE, &bytes),
            Err(error) => link.send(FAILED, error.to_string().as_bytes()),
        }
    })
}

fn answer(folder: &HostFolder, request: Request, link: &mut PeerLink) -> io::Result<Vec<u8>> {
    match request {
        Request::Put { steps, file, of, whole } => {
            let removed = folder.retain(|kept| kept == steps || kept == whole);
            let received = folder.receive(steps, &file, of, || link.receive().map(|(_, bytes)| bytes));
            removed.and(received).map(|()| vec![])
        }
        Request::Get { steps, file, at, bytes } => {
            let mut read = vec![0; bytes.min(PEER_MESSAGE_BYTES)];
            folder.read(steps, &file, &mut read, at)?;
            Ok(read)
        }
    }
}

/// A process of another host.
#[derive(Clone, Debug)]
pub struct Peer {
    pub host: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The secret of the run.
    pub token: Token,
    /// Longest wait for it.
    pub patience: Duration,
}

impl Peer {
    /// A connection to it.
    ///
    /// # Errors
    /// A process that cannot be reached.
    pub fn connect(&self) -> io::Result<PeerLink> {
        PeerLink::connect(self.address, &self.token, self.patience)
    }

    /// Sends the file at `path`, which is one of the state after `steps` steps, and waits until the other host has
    /// all of it.
    ///
    /// # Errors
    /// A file that cannot be read, a process that cannot be reached, and one whose host has no room.
    pub fn put(&self, path: &Path, steps: u32, whole: u32) -> io::Result<()> {
        let sent = self.try_put(path, steps, whole);
        sent.map_err(|error| io::Error::new(error.kind(), format!("host {} does not keep it: {error}", self.host)))
    }

    fn try_put(&self, path: &Path, steps: u32, whole: u32) -> io::Result<()> {
        let mut source = files::open(path, InputKind::Data)?;
        let (of, file) =
            (source.metadata()?.len(), path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        let mut link = self.connect()?;
        ask(&mut link, &Request::Put { steps, file, of, whole })?;
        let mut piece = vec![0; PEER_MESSAGE_BYTES];
        let mut left = of;
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            source.read_exact(&mut piece[..len])?;
            link.send(PART, &piece[..len])?;
            left -= len as u64;
        }
        answered(&mut link).map(drop)
    }
}

/// Fills `bytes` over `link` from `offset_bytes` on of a file that the other host keeps.
///
/// # Errors
/// A file that is not there, and a connection that has ended.
pub fn get(link: &mut PeerLink, steps: u32, name: &str, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
    let mut at = offset_bytes;
    for piece in bytes.chunks_mut(PEER_MESSAGE_BYTES) {
        ask(link, &Request::Get { steps, file: name.into(), at, bytes: piece.len() })?;
        let read = answered(link)?;
        if read.len() != piece.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        piece.copy_from_slice(&read);
        at += read.len() as u64;
    }
    Ok(())
}

fn ask(link: &mut PeerLink, request: &Request) -> io::Result<()> {
    link.send(&serde_json::to_string(request)?, &[])
}

fn answered(link: &mut PeerLink) -> io::Result<Vec<u8>> {
    let (name, bytes) = link.receive()?;
    match name.as_str() {
        DONE => Ok(bytes),
        _ => Err(io::Error::other(String::from_utf8_lossy(&bytes).into_owned())),
    }
}
