//! The proxy between this machine and a server, by the variables that other programs use.

use std::net::IpAddr;

use ureq::http::Uri;

use crate::settings::Settings;

/// The proxy to the server of `url`, if the settings name one for its scheme and do not except its host.
///
/// # Errors
/// A variable whose value is not an address. It is not repeated, for it may have a password.
pub fn to_server(settings: &Settings, url: &Uri) -> Result<Option<ureq::Proxy>, String> {
    let names =
        if url.scheme_str() == Some("https") { ["HTTPS_PROXY", "ALL_PROXY"] } else { ["HTTP_PROXY", "ALL_PROXY"] };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    if settings.get("NO_PROXY").is_some_and(|excepted| is_excepted(excepted, host)) {
        return Ok(None);
    }
    let Some((name, value)) = names.into_iter().find_map(|name| Some((name, settings.get(name)?))) else {
        return Ok(None);
    };
    let proxy = ureq::Proxy::new(value)
        .ok()
        .filter(|proxy| matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https));
    let rule =
        "must be http://HOST:PORT or https://HOST:PORT, the address of a proxy; set it, or list the host in NO_PROXY";
    proxy.map(Some).ok_or_else(|| format!("{name} {rule}"))
}

/// Whether the list `excepted` has `host`: by its name, by the end of its name, or by a range of addresses.
fn is_excepted(excepted: &str, host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    excepted.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let domain = entry.trim_start_matches("*.").trim_start_matches('.');
        let is_below = || {
            let end = host.len().checked_sub(domain.len()).filter(|_| address.is_none());
            end.and_then(|end| host.get(end..).filter(|rest| end > 0 && rest.eq_ignore_ascii_case(domain)).map(|_| end))
                .is_some_and(|end| host.as_bytes()[end - 1] == b'.')
        };
        entry == "*" || host.eq_ignore_ascii_case(domain) || is_below() || address.is_some_and(|host| has(entry, host))
    })
}

/// Whether `range`, an address with or without the bits of its network, has `host`.
fn has(range: &str, host: IpAddr) -> bool {
    let (network, bits) = range.split_once('/').map_or((range, None), |(network, bits)| (network, Some(bits)));
    let bits: Option<u32> = bits.map_or(Some(128), |bits| bits.parse().ok());
    let (Ok(network), Some(bits)) = (network.parse::<IpAddr>(), bits) else { return false };
    let (network, host, width) = match (network, host) {
        (IpAddr::V4(network), IpAddr::V4(host)) => (network.to_bits().into(), host.to_bits().into(), 32),
        (IpAddr::V6(network), IpAddr::V6(host)) => (network.to_bits(), host.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let different: u128 = network ^ host;
    different.checked_shr(width - bits.min(width)).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::RetryLimit;

    #[test]
    fn excepted_hosts_are_found_by_name_domain_and_range() {
        let list = "localhost, .internal,*.lan,example.com,10.0.0.0/8,fd00::/8,192.0.2.7";
        for host in [
            "localhost",
            "LOCALHOST",
            "a.internal",
            "b.a.lan",
            "example.com",
            "s3.Example.com",
            "10.2.3.4",
            "fd00::1",
            "192.0.2.7",
        ] {
            assert!(is_excepted(list, host), "{host}");
        }
        for host in ["local", "notexample.com", "example.com.org", "11.0.0.1", "192.0.2.8", "fe80::1", "0.localhosts"] {
            assert!(!is_excepted(list, host), "{host}");
        }
        assert!(is_excepted("*", "any") && !is_excepted("", "any"));
        assert!(is_excepted("0.0.0.0/0", "1.2.3.4") && !is_excepted("0.0.0.0/x", "1.2.3.4"));
    }

    #[test]
    fn each_scheme_has_its_proxy_and_a_wrong_one_is_not_repeated() {
        let settings = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            Settings::new(pairs, RetryLimit { limit: Duration::from_secs(1) })
        };
        let host = |settings: &Settings, url: &str| {
            let url: Uri = url.parse().expect("an address");
            to_server(settings, &url).map(|proxy| proxy.map(|proxy| proxy.host().to_string()))
        };
        let both = settings(&[
            ("https_proxy", "http://secure:3128"),
            ("HTTP_PROXY", "http://plain:3128"),
            ("no_proxy", "near"),
        ]);
        assert_eq!(host(&both, "https://far/a"), Ok(Some("secure".into())));
        assert_eq!(host(&both, "http://far/a"), Ok(Some("plain".into())));
        assert_eq!(host(&both, "http://near:9000/a"), Ok(None));
        assert_eq!(host(&settings(&[("HTTPS_PROXY", "http://secure:3128")]), "http://far/a"), Ok(None));
        let wrong = settings(&[("ALL_PROXY", "ftp://user:hidden@host")]);
        let error = host(&wrong, "https://far/a").expect_err("no proxy");
        assert!(error.starts_with("ALL_PROXY must be http://HOST:PORT") && !error.contains("hidden"), "{error}");
    }
}
