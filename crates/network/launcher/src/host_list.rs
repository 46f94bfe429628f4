//! Files of hosts: a host per line with its number of processes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

/// A host and the processes that run on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, as `ssh` takes it.
    pub name: String,
    /// Number of processes, from 1.
    pub processes: usize,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots={}", self.name, self.processes)
    }
}

/// A line that is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// A line that cannot be read.
    #[error("line {line}: {text:?} must be HOST, HOST slots=N or HOST:N with N from 1 to 65536")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A host that is listed before.
    #[error("line {line}: {host} is listed twice; use one line with the sum of its slots")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// Its name.
        host: String,
    },
    /// No host.
    #[error("it names no host; use a line per host, HOST or HOST slots=N")]
    Empty,
}

/// Longest name of a host, with its user.
const MAX_NAME_BYTES: usize = 255;

/// The hosts of a text: a line per host, `HOST`, `HOST slots=N` or `HOST:N`; `#` begins a comment. A host without a
/// number has `default_processes`.
///
/// # Errors
/// See [`HostListError`].
pub fn parse_host_list(text: &str, default_processes: usize) -> Result<Vec<Host>, HostListError> {
    let mut hosts: Vec<Host> = vec![];
    let mut names = BTreeSet::new();
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, written) in text.lines().enumerate() {
        let line = index + 1;
        let content = written.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let host =
            host(content, default_processes).ok_or_else(|| HostListError::Line { line, text: content.into() })?;
        if !names.insert(host.name.clone()) {
            return Err(HostListError::Twice { line, host: host.name });
        }
        hosts.push(host);
    }
    if hosts.is_empty() { Err(HostListError::Empty) } else { Ok(hosts) }
}

fn host(content: &str, default_processes: usize) -> Option<Host> {
    let mut words = content.split_whitespace();
    let first = words.next()?;
    let slots = words.next().map(|word| word.strip_prefix("slots=")?.parse().ok());
    let (name, processes) = match (slots, first.rsplit_once(':')) {
        (Some(slots), _) => (first, slots?),
        // Two colons are an IPv6 address.
        (None, Some((name, slots))) if !name.contains(':') => (name, slots.parse().ok()?),
        (None, _) => (first, default_processes),
    };
    // ssh reads a name with a dash as an option.
    let is_dashed = name.starts_with('-');
    // An address with colons is one of IPv6: any other name with a colon is a slip.
    let address = name.rsplit_once('@').map_or(name, |(_, address)| address);
    let is_host = !address.is_empty() && (!address.contains(':') || address.parse::<Ipv6Addr>().is_ok());
    let is_plain = name.len() <= MAX_NAME_BYTES
        && name.chars().all(|letter| letter.is_alphanumeric() || ".-_@:%".contains(letter));
    let is_name = is_host && is_plain && !is_dashed && words.next().is_none();
    (is_name && (1..=1 << 16).contains(&processes)).then(|| Host { name: name.into(), processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_hosts() {
        let text = "\u{feff}# two machines\nnode0 slots=4\n  node1:2  # small\n\nuser@node2\nfd00::1\n";
        let hosts = parse_host_list(text, 8).expect("hosts");
        let shown: Vec<String> = hosts.iter().map(Host::to_string).collect();
        assert_eq!(shown, ["node0 slots=4", "node1 slots=2", "user@node2 slots=8", "fd00::1 slots=8"]);
    }

    #[test]
    fn other_lines_are_refused() {
        let refused = |text: &str| parse_host_list(text, 1).expect_err(text).to_string();
        for line in [
            "a slots=0",
            "a slots=x",
            "a b",
            "a slots=2 more",
            "a:",
            "a:0",
            "-oProxyCommand=x",
            ":4",
            "a:2:3",
            "[::1]:2",
            "a:2 slots=2",
            "a;b",
            "$(a)",
            "`a`",
            "a'b",
            "a/b",
            "\u{0}",
            &"a".repeat(256),
        ] {
            let expected = format!("line 2: {line:?} must be HOST, HOST slots=N or HOST:N with N from 1 to 65536");
            assert_eq!(refused(&format!("\n{line}")), expected);
        }
        assert_eq!(refused("a\nb\na:2"), "line 3: a is listed twice; use one line with the sum of its slots");
        assert_eq!(refused("# none\n"), "it names no host; use a line per host, HOST or HOST slots=N");
    }
}
