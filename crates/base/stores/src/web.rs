//! Objects of a web server.

use ureq::http::Uri;

use crate::failure::{About, Failure};
use crate::http::{Http, Limit, Method, Request, Response};
use crate::pace::Pace;
use crate::proxy;
use crate::settings::Settings;

/// Redirects that are followed for one request.
const MAX_REDIRECTS: u32 = 10;
/// Characters of a path that are sent as they are: those of paths, and `%`, for addresses are encoded already.
const OF_PATHS: &[u8] = b"/%!$&'()*+,;=:@";

/// A web server.
pub struct Web {
    http: Http,
    /// `https://host:port`.
    origin: String,
}

impl Web {
    /// # Errors
    /// An origin that is not one, and a wrong variable of a proxy.
    pub fn open(settings: &Settings, origin: &str) -> Result<Web, String> {
        let url: Uri =
            origin.parse().map_err(|_| "the address names no host; use https://host/path/file.txt".to_string())?;
        Ok(Web { http: Http::new(Pace::OF_SERVERS, proxy::to_server(settings, &url)?), origin: origin.into() })
    }

    /// By a client of a test.
    #[cfg(test)]
    pub fn with(http: Http, origin: &str) -> Web {
        Web { http, origin: origin.into() }
    }

    /// The least pace of the server.
    pub fn pace(&self) -> Pace {
        self.http.pace()
    }

    /// The answer to `method` of the object at `path`, which gives it. Redirects to the same server are followed.
    ///
    /// # Errors
    /// No answer, and one that refuses or redirects elsewhere.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        limit: Limit,
    ) -> Result<Response, Failure> {
        let mut url = format!("{}/{}", self.origin, encoded(path));
        for _ in 0..=MAX_REDIRECTS {
            let request = Request { method, headers: headers.to_vec(), ..Request::get(url.clone()) };
            let response = self.http.send(&request, limit)?;
            let is_redirect = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = response.header("location").filter(|_| is_redirect) else {
                return response.granted(About::Object);
            };
            url = followed(&url, location).map_err(|origin| elsewhere(&origin))?;
        }
        Err(Failure::Lasting(format!("more than {MAX_REDIRECTS} redirects; name the final address")))
    }
}

fn elsewhere(origin: &str) -> Failure {
    let rule = "and redirects are followed on the same server alone, or to its https";
    Failure::Lasting(format!("the server redirects to {origin}, {rule}; name the final address"))
}

/// The address that `location` names for the request at `url`, on the same server, or on the same host with TLS.
///
/// # Errors
/// Another server, by its name, or what is not an address.
fn followed(url: &str, location: &str) -> Result<String, String> {
    let origin_of = |text: &str| -> Option<(String, String, u16)> {
        let url: Uri = text.parse().ok()?;
        let scheme = url.scheme_str()?.to_string();
        let port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@'))?;
        Some((scheme, authority.host().to_ascii_lowercase(), authority.port_u16().unwrap_or(port)))
    };
    let nowhere = || "no usable address".to_string();
    let location = location.split('#').next().unwrap_or_default().trim();
    let (scheme, rest) = url.split_once("://").ok_or_else(nowhere)?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let target = if location.contains("://") {
        location.to_string()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.is_empty() {
        return Err(nowhere());
    } else {
        let path = url.split('?').next().unwrap_or_default();
        let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
        format!("{folder}/{location}")
    };
    let ((scheme, host, port), (to_scheme, to_host, to_port)) =
        origin_of(url).zip(origin_of(&target)).ok_or_else(nowhere)?;
    let is_same = scheme == to_scheme && port == to_port;
    let is_upgrade = scheme == "http" && to_scheme == "https";
    match host == to_host && (is_same || is_upgrade) {
        true => Ok(target),
        false => Err(format!("{to_scheme}://{to_host}:{to_port}")),
    }
}

/// `path` with `%XX` in place of what an address cannot have.
fn encoded(path: &str) -> String {
    crate::signature::encoded(path, OF_PATHS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_their_server() {
        let url = "http://host:8000/a/b.txt";
        for (location, target) in [
            ("/c.txt?signature=x", "http://host:8000/c.txt?signature=x"),
            ("c.txt", "http://host:8000/a/c.txt"),
            ("HTTP://HOST:8000/c", "HTTP://HOST:8000/c"),
            ("//host:8000/c#part", "http://host:8000/c"),
            ("https://host/c", "https://host/c"),
            ("https://host:8443/c", "https://host:8443/c"),
        ] {
            assert_eq!(followed(url, location), Ok(target.to_string()), "{location}");
        }
        assert_eq!(followed("https://host/a", "https://host:443/b"), Ok("https://host:443/b".into()));
    }

    #[test]
    fn redirects_elsewhere_are_refused_without_their_queries() {
        for (url, location, origin) in [
            ("http://host/a", "http://other/b?signature=hidden", "http://other:80"),
            ("http://host/a", "//other/b", "http://other:80"),
            ("http://host/a", "http://host:8000/b", "http://host:8000"),
            ("https://host/a", "http://host/b", "http://host:80"),
            ("https://host/a", "https://host:8443/b", "https://host:8443"),
            ("http://host/a", "http://host.other/b", "http://host.other:80"),
            ("http://host/a", "http://host@other/b", "no usable address"),
            ("http://host/a", "file:///etc/passwd", "no usable address"),
            ("http://host/a", "ftp://host/b", "no usable address"),
            ("http://host/a", "", "no usable address"),
            ("http://host/a", "#part", "no usable address"),
        ] {
            assert_eq!(followed(url, location), Err(origin.to_string()), "{location}");
        }
    }

    #[test]
    fn addresses_are_encoded_once() {
        assert_eq!(encoded("a b/c%20d/\u{e9}+(1)'.txt"), "a%20b/c%20d/%C3%A9+(1)'.txt");
    }
}
