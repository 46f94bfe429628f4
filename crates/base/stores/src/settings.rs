//! The settings of requests: credentials, regions, endpoints, and the time that a request may take.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use files::InputKind;

/// The time in which requests are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimit {
    /// From the first attempt to the last one of a request: of a listing, an object, or parts of a long one.
    pub limit: Duration,
}

/// A request that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered<'a> {
    /// Without secrets.
    pub address: &'a str,
    /// Why the last attempt failed; nothing during the first one.
    pub reason: Option<&'a str>,
    /// The attempt that follows or is under way, counted from 1.
    pub attempt: u32,
    /// Time in which it is still tried.
    pub left: Duration,
}

/// Called with requests that are not answered soon.
pub type OnUnanswered = Arc<dyn Fn(&Unanswered<'_>) + Send + Sync>;

/// Variables of the environment and a profile of the shared files, by the names that AWS gives them.
#[derive(Clone)]
pub struct Settings {
    values: BTreeMap<String, String>,
    pub retry_limit: RetryLimit,
    on_unanswered: Option<OnUnanswered>,
    /// Secrets that no variable has: those that a role lends.
    secrets: Arc<Mutex<Vec<String>>>,
}

/// Variables that are passed on, in addition to those that begin with `AWS_`.
const HOME: &str = "HOME";
/// Variables of proxies, which programs take in capitals and without.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
/// Secrets of roles that are remembered: of the last renewals.
const MAX_SECRETS: usize = 32;

impl Settings {
    /// From the variables of the environment, `variables`. Keys that are not among them are those of the profile
    /// `AWS_PROFILE` (or `default`) in `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE`.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>, retry_limit: RetryLimit) -> Settings {
        let ours = |(name, value): (String, String)| {
            let proxy = PROXIES.into_iter().find(|proxy| name.eq_ignore_ascii_case(proxy)).map(str::to_string);
            let name = proxy.or_else(|| (name.starts_with("AWS_") || name == HOME).then_some(name))?;
            (!value.is_empty()).then_some((name, value))
        };
        let mut values: BTreeMap<String, String> = variables.into_iter().filter_map(ours).collect();
        let profile = values.get("AWS_PROFILE").cloned().unwrap_or_else(|| "default".into());
        let shared = [
            ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", profile.clone()),
            ("AWS_CONFIG_FILE", ".aws/config", format!("profile {profile}")),
        ];
        let has_keys = values.contains_key("AWS_ACCESS_KEY_ID");
        for (variable, in_home, section) in shared {
            let home = values.get(HOME).map(|home| PathBuf::from(home).join(in_home));
            let Some(path) = values.get(variable).map(PathBuf::from).or(home) else { continue };
            // A machine without these files uses its role.
            let Ok(text) = files::read_text(&path, InputKind::Profile) else { continue };
            for (key, value) in section_of(&text, &[&section, &profile]) {
                if let Some(name) = name_of(&key).filter(|name| !(has_keys && IS_SECRET.contains(name))) {
                    values.entry(name.into()).or_insert(value);
                }
            }
        }
        Settings { values, retry_limit, on_unanswered: None, secrets: Arc::default() }
    }

    /// The same, and `on_unanswered` is called with requests that are not answered soon.
    #[must_use]
    pub fn with_on_unanswered(self, on_unanswered: OnUnanswered) -> Settings {
        Settings { on_unanswered: Some(on_unanswered), ..self }
    }

    /// Reports the request to `on_unanswered`, if there is one.
    pub fn tell(&self, unanswered: &Unanswered<'_>) {
        if let Some(on_unanswered) = &self.on_unanswered {
            on_unanswered(unanswered);
        }
    }

    /// Whether there is one.
    pub fn is_heard(&self) -> bool {
        self.on_unanswered.is_some()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Whether the value of a variable is a yes.
    pub fn says_yes(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default();
        ["1", "true", "yes", "on", "y"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
    }

    /// From now on no message has `secret`.
    pub fn keep_secret(&self, secret: &str) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if !secret.is_empty() && !secrets.iter().any(|known| known == secret) {
            secrets.push(secret.into());
            let too_many = secrets.len().saturating_sub(MAX_SECRETS);
            secrets.drain(..too_many);
        }
    }

    /// `text` without secrets.
    pub fn redacted(&self, text: &str) -> String {
        let lent = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = IS_SECRET.iter().filter_map(|name| self.get(name));
        ours.chain(lent.iter().map(String::as_str)).fold(text.to_string(), |text, secret| text.replace(secret, "***"))
    }
}

/// Never printed.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("patience", &self.retry_limit).finish_non_exhaustive()
    }
}

/// Values that no message has.
const IS_SECRET: &[&str] = &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The variable for a key of a profile.
fn name_of(key: &str) -> Option<&'static str> {
    Some(match key {
        "aws_access_key_id" => "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key" => "AWS_SECRET_ACCESS_KEY",
        "aws_session_token" => "AWS_SESSION_TOKEN",
        "region" => "AWS_REGION",
        "endpoint_url" => "AWS_ENDPOINT_URL",
        _ => return None,
    })
}

/// The keys of the sections that have one of `names`.
fn section_of(text: &str, names: &[&str]) -> Vec<(String, String)> {
    let mut is_ours = false;
    let mut keys = vec![];
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            is_ours = names.contains(&name.trim());
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_ours && !line.starts_with(['#', ';'])) {
            keys.push((key.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: RetryLimit = RetryLimit { limit: Duration::from_secs(1) };

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::new(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())), PATIENCE)
    }

    #[test]
    fn a_profile_fills_in_for_variables() {
        let text = "[default]\naws_access_key_id = one\n# region = no\n[profile two]\nregion=eu\nendpoint_url = http://h\n[two]\naws_access_key_id=two\n";
        assert_eq!(section_of(text, &["default"]), [("aws_access_key_id".into(), "one".into())]);
        let keys: Vec<String> = section_of(text, &["profile two", "two"]).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["region", "endpoint_url", "aws_access_key_id"]);
    }

    #[test]
    fn secrets_are_not_printed() {
        let settings = settings(&[("AWS_SECRET_ACCESS_KEY", "hidden"), ("AWS_REGION", "eu"), ("PATH", "/bin")]);
        assert_eq!(settings.redacted("the key hidden of eu"), "the key *** of eu");
        assert!(!format!("{settings:?}").contains("hidden"));
        assert_eq!(settings.get("PATH"), None);
        settings.keep_secret("lent");
        assert_eq!(settings.clone().redacted("lent and hidden"), "*** and ***");
        assert!(!format!("{settings:?}").contains("lent"));
    }
}
