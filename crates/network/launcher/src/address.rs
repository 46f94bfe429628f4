//! `HOST:PORT`.

use std::fmt;
use std::str::FromStr;

/// A host by name or number, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name, IPv4 or IPv6 address without brackets.
    pub host: String,
    /// TCP port, from 1.
    pub port: u16,
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} must be HOST:PORT with a port from 1 to 65535; use e.g. node0:29400 or [fd00::1]:29400")]
pub struct AddressError {
    pub text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let refused = || AddressError { text: text.into() };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(refused)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        // Without brackets the last part of an IPv6 address reads like a port.
        let is_ambiguous = inner.is_none() && host.contains([':', '[', ']']);
        let host = inner.unwrap_or(host);
        let port: u16 = port.parse().map_err(|_| refused())?;
        if host.is_empty() || is_ambiguous || port == 0 || host.contains(char::is_whitespace) {
            return Err(refused());
        }
        Ok(Address { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in ["node0:29400", "10.0.0.1:1", "[fd00::1]:65535"] {
            assert_eq!(text.parse::<Address>().expect("an address").to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "node0", "node0:", ":29400", "node0:0", "node0:65536", "fd00::1:29400", "a b:1", "[]:1"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} must be HOST:PORT")), "{error}");
        }
    }
}
