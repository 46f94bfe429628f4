//! The address of an object, or of objects with a common prefix.

use std::fmt;

/// An address of a user: `s3://bucket/prefix`, `http://host/path` or `https://host/path`. It has no secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// Objects of a bucket.
    S3 {
        bucket: String,
        /// Parts with `/` between them; may be empty.
        prefix: String,
    },
    /// An object of a web server.
    Http {
        /// `https://host:port`.
        origin: String,
        /// Parts with `/` between them.
        path: String,
    },
}

/// The reason why a text is not an address. It names no secret that the text may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A user and perhaps a password in front of the host.
    #[error(
        "an address of {scheme}:// must not have a user or a password; leave them out, and set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or a profile"
    )]
    Secret { scheme: &'static str },
    /// A query or a fragment: signatures are passed there.
    #[error("an address of {scheme}:// must not have `?` or `#`, where signatures are; use the address without them")]
    Query { scheme: &'static str },
    /// A scheme of other programs.
    #[error("{scheme}:// is not read; use a path of this machine, s3://BUCKET/PREFIX, https:// or http://")]
    Scheme { scheme: String },
    #[error("{text:?} must name a bucket, as in s3://bucket/prefix")]
    NoBucket { text: String },
    #[error("{text:?} must name a host and a path, as in https://host/path/file.txt")]
    NoHost { text: String },
    /// An empty part, `.` or `..`.
    #[error("{text:?} must not have the part {part:?} between two `/`; leave it out")]
    Part { text: String, part: String },
}

/// Beginnings of addresses.
const SCHEMES: [&str; 3] = ["s3", "https", "http"];

impl Address {
    /// The address that `text` is; `None` for a path of this machine.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(text: &str) -> Option<Result<Address, AddressError>> {
        let (found, rest) = text.split_once("://")?;
        if let Some(scheme) = SCHEMES.into_iter().find(|scheme| found.eq_ignore_ascii_case(scheme)) {
            return Some(of_scheme(scheme, rest));
        }
        let is_scheme = found.len() > 1 && found.chars().all(|letter| letter.is_ascii_alphanumeric());
        is_scheme.then(|| Err(AddressError::Scheme { scheme: found.into() }))
    }

    /// Whether `text` begins as an address does.
    pub fn is_meant(text: &str) -> bool {
        Address::parse(text).is_some()
    }

    /// The address of `name` below this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Address {
        let below = |base: &str| if base.is_empty() { name.to_string() } else { format!("{base}/{name}") };
        match self {
            Address::S3 { bucket, prefix } => Address::S3 { bucket: bucket.clone(), prefix: below(prefix) },
            Address::Http { origin, path } => Address::Http { origin: origin.clone(), path: below(path) },
        }
    }
}

fn of_scheme(scheme: &'static str, rest: &str) -> Result<Address, AddressError> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A key may have a `/`, and a bucket has no port.
    let has_port = host.rsplit_once(':').is_none_or(|(_, port)| scheme != "s3" && port.parse::<u16>().is_ok());
    if host.contains('@') || (!has_port && rest.contains('@')) {
        return Err(AddressError::Secret { scheme });
    }
    let is_pattern = scheme == "s3";
    let has_signature = rest.to_ascii_lowercase().contains("x-amz-");
    if rest.contains('#') || (rest.contains('?') && (!is_pattern || has_signature)) {
        return Err(AddressError::Query { scheme });
    }
    let text = format!("{scheme}://{rest}");
    let path = path.trim_end_matches('/');
    let is_wrong = |part: &&str| ["", ".", ".."].contains(part);
    if let Some(part) = path.split('/').find(is_wrong).filter(|_| !path.is_empty()) {
        return Err(AddressError::Part { text, part: part.into() });
    }
    match (scheme, host.is_empty() || host.contains(['*', '?'])) {
        ("s3", true) => Err(AddressError::NoBucket { text }),
        ("s3", false) => Ok(Address::S3 { bucket: host.into(), prefix: path.into() }),
        (_, false) if !path.is_empty() => Ok(Address::Http { origin: format!("{scheme}://{host}"), path: path.into() }),
        (_, _) => Err(AddressError::NoHost { text }),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Address::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Address::Http { origin, path } => write!(f, "{origin}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match Address::parse(text) {
            None => "a path".into(),
            Some(Ok(address)) => address.to_string(),
            Some(Err(error)) => error.to_string(),
        }
    }

    #[test]
    fn addresses_are_told_from_paths() {
        assert_eq!(read("runs/latest"), "a path");
        assert_eq!(read("/data/s3:/a"), "a path");
        assert_eq!(read("a folder/ftp://host"), "a path");
        assert_eq!(read("s3://bucket"), "s3://bucket");
        assert_eq!(read("S3://bucket/runs/a/"), "s3://bucket/runs/a");
        assert_eq!(read("s3://bucket/texts/*.txt"), "s3://bucket/texts/*.txt");
        assert_eq!(read("https://host:8443/a/b.txt"), "https://host:8443/a/b.txt");
        assert_eq!(Address::parse("s3://b").expect("an address").expect("sound").join("x/y").to_string(), "s3://b/x/y");
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for text in [
            "https://user:hidden@host/a",
            "s3://key:hidden@bucket/a",
            "s3://KEY:hid/hidden@bucket/a",
            "http://host/a?signature=hidden",
            "s3://bucket/a?X-Amz-Signature=hidden",
        ] {
            let message = read(text);
            assert!(message.contains("must not have") && !message.contains("hidden"), "{message}");
        }
    }

    #[test]
    fn addresses_that_name_nothing_are_refused() {
        assert_eq!(
            read("ftp://host/a"),
            "ftp:// is not read; use a path of this machine, s3://BUCKET/PREFIX, https:// or http://"
        );
        assert_eq!(read("s3://"), "\"s3://\" must name a bucket, as in s3://bucket/prefix");
        assert_eq!(
            read("http://host"),
            "\"http://host\" must name a host and a path, as in https://host/path/file.txt"
        );
        assert_eq!(read("s3://b/a//c"), "\"s3://b/a//c\" must not have the part \"\" between two `/`; leave it out");
        assert_eq!(read("s3://b/../c"), "\"s3://b/../c\" must not have the part \"..\" between two `/`; leave it out");
    }
}
