//! The credentials of requests: keys of the settings, or keys that are lent and renewed.

use std::sync::{Mutex, PoisonError};

use crate::date;
use crate::failure::Failure;
use crate::role::{Container, Machine, TemporaryCredential, WebIdentity};
use crate::settings::Settings;
use crate::signature::Credential;

/// Keys that are lent are renewed so long before they end: longer than any request takes that was signed with them.
const RENEWAL_MS: i64 = 300_000;
/// And not more often than this, where they are lent for a shorter time.
const LEAST_RENEWAL_MS: i64 = 10_000;

/// Where credentials come from, in the order in which they are looked for.
enum Source {
    /// Requests are not signed.
    Nowhere,
    Keys(Credential),
    WebIdentity(WebIdentity),
    Container(Container),
    Machine(Machine),
}

/// The credentials of a store.
pub struct Credentials {
    source: Source,
    settings: Settings,
    /// With the milliseconds since 1970 at which they were lent.
    kept: Mutex<Option<(TemporaryCredential, i64)>>,
}

impl Credentials {
    /// Those that `settings` name, or of the role of the machine.
    ///
    /// # Errors
    /// A key without its secret, and addresses of services that secrets must not go to.
    pub fn named(settings: &Settings, region: &str) -> Result<Credentials, String> {
        Ok(Credentials { source: source(settings, region)?, settings: settings.clone(), kept: Mutex::default() })
    }

    /// The credentials for a request now; none where requests are not signed.
    ///
    /// # Errors
    /// Failures of the service that lends them.
    pub fn get(&self) -> Result<Option<Credential>, Failure> {
        let lend = || match &self.source {
            Source::Nowhere => Ok(None),
            Source::Keys(credential) => {
                Ok(Some(TemporaryCredential { credential: credential.clone(), ends_ms: i64::MAX }))
            }
            Source::WebIdentity(service) => service.lend(&self.settings).map(Some),
            Source::Container(service) => service.lend(&self.settings).map(Some),
            Source::Machine(service) => service.lend().map(Some),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = date::now_ms();
        if let Some((lent, since_ms)) = kept.as_ref() {
            let is_fresh = now < lent.ends_ms && now - since_ms < LEAST_RENEWAL_MS;
            if is_fresh || now < lent.ends_ms.saturating_sub(RENEWAL_MS) {
                return Ok(Some(lent.credential.clone()));
            }
        }
        match lend() {
            Ok(lent) => {
                for secret in lent.iter().flat_map(|lent| secrets(&lent.credential)) {
                    self.settings.keep_secret(secret);
                }
                *kept = lent.map(|lent| (lent, now));
            }
            // Those of before are good until they end.
            Err(failure) if kept.as_ref().is_none_or(|(lent, _)| lent.ends_ms <= now) => return Err(failure),
            Err(_) => {}
        }
        Ok(kept.as_ref().map(|(lent, _)| lent.credential.clone()))
    }

    /// Renews what is lent with the next request: the store says that it has ended.
    pub fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn secrets(credential: &Credential) -> impl Iterator<Item = &str> {
    [Some(&credential.key), Some(&credential.secret), credential.token.as_ref()]
        .into_iter()
        .flatten()
        .map(String::as_str)
}

fn source(settings: &Settings, region: &str) -> Result<Source, String> {
    if settings.says_yes("AWS_SKIP_SIGNATURE") {
        return Ok(Source::Nowhere);
    }
    match (settings.get("AWS_ACCESS_KEY_ID"), settings.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(key), Some(secret)) => {
            let token = settings.get("AWS_SESSION_TOKEN").map(str::to_string);
            return Ok(Source::Keys(Credential { key: key.into(), secret: secret.into(), token }));
        }
        (Some(_), None) => return Err(missing("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => return Err(missing("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
        (None, None) => {}
    }
    if let Some(service) = WebIdentity::named(settings, region)? {
        return Ok(Source::WebIdentity(service));
    }
    Ok(Container::named(settings)?.map_or_else(|| Source::Machine(Machine::new(settings)), Source::Container))
}

fn missing(given: &str, missing: &str) -> String {
    format!("{given} is set and {missing} is not; set both, or neither to use AWS_PROFILE or a role")
}
