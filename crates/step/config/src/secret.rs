//! Values that no message, record, page or Debug output shows: the command of `run.notify`, which may have the token of
//! a web service, and the credentials in an address.

use std::fmt;

use toml::de::{DeTable, DeValue};

use crate::run_file::nearest;

/// Stands for a value that is not shown.
pub const HIDDEN: &str = "***";

/// The section and the name of the key whose text is secret.
const SECRET: (&str, &str) = ("run", "notify");

/// Words of a query in which there is a signature or a token.
const OF_SIGNATURES: [&str; 7] = ["signature", "credential", "token", "secret", "password", "sig=", "key="];

/// A text that is not shown. It has no form for people or files; whoever needs it reveals it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `text`, from now on not shown.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text itself, for its use: never for a message.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Whether the value of `key`, `section.key`, is not shown.
pub fn is_secret_key(key: &str) -> bool {
    key.split_once('.') == Some(SECRET)
}

/// `section.key=value` as messages repeat it: without a secret value, that of a misspelled key included, and without
/// credentials.
pub fn shown_setting(setting: &str) -> String {
    let (key, value) = setting.trim_start().split_once(['=', ' ']).unwrap_or((setting, ""));
    let name = key.rsplit('.').next().unwrap_or_default();
    // Addresses that should have no user, also where they have no scheme.
    let has_user = ["store", "metrics_address"].contains(&name) && value.contains('@') && !has_credentials(value);
    match (nearest(name, [SECRET.1]).is_some() && !value.trim().is_empty()) || has_user {
        true => format!("{key}={HIDDEN}"),
        false => without_credentials(setting),
    }
}

/// The words of a command line as messages repeat them.
pub fn shown_words(words: &[String]) -> Vec<String> {
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    let shown = |(before, word): (&str, &String)| match (before, word.strip_prefix("--set=")) {
        ("--set", _) => shown_setting(word),
        (_, Some(setting)) => format!("--set={}", shown_setting(setting)),
        (_, None) => without_credentials(word),
    };
    before.zip(words).map(shown).collect()
}

/// The text of a run file as pages and commands show it.
pub fn shown_run_file(text: &str) -> String {
    let Ok(table) = DeTable::parse(text) else {
        return "# It is not TOML, so that it may not be shown.\n".into();
    };
    let section = table.get_ref().iter().find(|(name, _)| name.get_ref() == SECRET.0);
    let keys = section.and_then(|(_, section)| match section.get_ref() {
        DeValue::Table(keys) => Some(keys),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_) => None,
    });
    let secret = keys.and_then(|keys| keys.iter().find(|(name, _)| name.get_ref() == SECRET.1));
    let mut shown = text.to_string();
    if let Some((_, value)) = secret {
        shown.replace_range(value.span(), &format!("{HIDDEN:?}"));
    }
    without_credentials(&shown)
}

/// Whether an address in `text` has a user, a password or a signature.
pub fn has_credentials(text: &str) -> bool {
    without_credentials(text) != text
}

/// `text`, whose addresses have no user, no password and no signature.
pub fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (front, after) = rest.split_at(at + "://".len());
        let is_end = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>".contains(c);
        let (address, end) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        shown += front;
        shown += &shown_address(address);
        rest = end;
    }
    shown + rest
}

/// An address after its scheme. A password may have a `/`, as keys of stores do.
fn shown_address(address: &str) -> String {
    let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let host = &address[..host_end];
    let is_user = |port: &str| port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit());
    let has_user = host.rsplit_once(':').is_some_and(|(_, port)| is_user(port));
    let at = if has_user { address.rfind('@') } else { host.rfind('@') };
    let (user, address) = at.map_or(("", address), |at| (HIDDEN, &address[at..]));
    let query = address.find(['?', '#']).filter(|query| {
        let query = address[*query..].to_ascii_lowercase();
        OF_SIGNATURES.iter().any(|word| query.contains(word))
    });
    match query {
        Some(query) => format!("{user}{}{HIDDEN}", &address[..=query]),
        None => format!("{user}{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_credentials() {
        let shown = without_credentials;
        assert_eq!(shown("read s3://key:word@bucket/a, then"), "read s3://***@bucket/a, then");
        assert_eq!(shown("s3://KEY:wo/rd+x@bucket/a"), "s3://***@bucket/a");
        assert_eq!(shown("\"https://user@host:8443/a?b=c\" d@e"), "\"https://***@host:8443/a?b=c\" d@e");
        assert_eq!(shown("https://h/a?X-Amz-Credential=K&X-Amz-Signature=s b"), "https://h/a?*** b");
        assert_eq!(shown("http://h/a#access_token=s"), "http://h/a#***");
        for same in ["s3://bucket/a@b", "http://host:80/a@b", "http://[::1]:80/a", "s3://b/t-?.txt", "a: b/c@d", "://"]
        {
            assert_eq!(shown(same), same);
            assert!(!has_credentials(same));
        }
        assert!(has_credentials("s3://KEY:wo/rd@bucket"));
    }

    #[test]
    fn the_command_of_a_run_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Secret::new("token".into()))), "Some(***)");
        for setting in
            ["run.notify=curl token", " run.notify = token", "run.notfy=token", "notify=token", "run.notify token"]
        {
            assert!(!shown_setting(setting).contains("token"), "{setting}");
        }
        assert_eq!(shown_setting("run.notify=curl token"), "run.notify=***");
        assert_eq!(shown_setting("run.notify="), "run.notify=");
        assert_eq!(shown_setting("run.metrics_address=user:word@h:9"), "run.metrics_address=***");
        assert_eq!(shown_setting("run.store=s3://a:word@b"), "run.store=s3://***@b");
        assert_eq!(shown_setting("train.steps=4"), "train.steps=4");
        let words = ["train", "--set", "run.notify=token", "--set=run.notify=token", "--data", "s3://a:b@c/d"];
        let shown = ["train", "--set", "run.notify=***", "--set=run.notify=***", "--data", "s3://***@c/d"];
        assert_eq!(shown_words(&words.map(str::to_string)), shown);
    }

    #[test]
    fn run_files_are_shown_without_their_secrets() {
        let file = "[run]\nnotify = \"\"\"\ncurl \\\n token\"\"\" # hook\nranks = 1\n";
        assert_eq!(shown_run_file(file), "[run]\nnotify = \"***\" # hook\nranks = 1\n");
        assert_eq!(shown_run_file("run = { notify = 'token', ranks = 1 }"), "run = { notify = \"***\", ranks = 1 }");
        assert_eq!(shown_run_file("run.notify = 'token'"), "run.notify = \"***\"");
        assert!(!shown_run_file("[run]\nnotify = \"token").contains("token"));
        let plain = "[train]\nsteps = 4 # notify\n";
        assert_eq!(shown_run_file(plain), plain);
    }
}
