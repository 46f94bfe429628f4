//! Connections to process 0 that are not of the run, for messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use session::VERSION;

/// Hosts of one kind that are remembered.
const MAX_HOSTS: usize = 4;
/// Other versions that are remembered.
const MAX_KINDS: usize = 8;

/// The reason why a connection is not of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// It showed a wrong proof, or went when it saw that of process 0.
    OtherToken,
    /// It has another version.
    OtherVersion(u16),
    /// It is not a process of pleach.
    Foreign,
}

/// The rejected connections so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections(BTreeMap<Rejection, BTreeSet<IpAddr>>);

impl Rejections {
    pub(crate) fn note(&mut self, rejection: Rejection, from: IpAddr) {
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&rejection) {
            return;
        }
        let hosts = self.0.entry(rejection).or_default();
        if hosts.len() < MAX_HOSTS {
            hosts.insert(from);
        }
    }
}

/// A clause for each kind, each after a semicolon.
impl fmt::Display for Rejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rejection, hosts) in &self.0 {
            let hosts: Vec<String> = hosts.iter().map(IpAddr::to_string).collect();
            write!(f, "; connections from {} ", hosts.join(", "))?;
            match rejection {
                Rejection::OtherToken => f.write_str("had another token: give all the same PLEACH_TOKEN")?,
                Rejection::OtherVersion(version) => write!(
                    f,
                    "had version {version} of the messages, and this process has version {VERSION}: start all processes \
                     with the same binary"
                )?,
                Rejection::Foreign => f.write_str("showed no proof of the token, and are not of pleach")?,
            }
        }
        Ok(())
    }
}
