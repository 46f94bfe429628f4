//! Signatures of requests by Signature Version 4 of AWS.

use std::fmt;

use ring::digest::{SHA256, digest};
use ring::hmac;

use crate::date::Stamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Keys that sign requests. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub key: String,
    pub secret: String,
    /// Of credentials that end.
    pub token: Option<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// The parts of a request that are signed, in addition to the time and the token of the credentials. Other headers,
/// such as that of a range, may be changed on the way.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub method: &'a str,
    /// With its port, where that is not the one of the scheme.
    pub host: &'a str,
    /// Encoded, as it is sent.
    pub path: &'a str,
    /// Encoded and sorted, as it is sent.
    pub query: &'a str,
    pub body: &'a [u8],
}

/// The service and the region that requests are signed for.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
}

/// The headers that sign `request`.
pub fn headers(request: Signed<'_>, scope: Scope<'_>, by: &Credential, at: &Stamp) -> Vec<(&'static str, String)> {
    let hash = hex(digest(&SHA256, request.body).as_ref());
    let mut headers = vec![("x-amz-content-sha256", hash.clone()), ("x-amz-date", at.time.clone())];
    headers.extend(by.token.clone().map(|token| ("x-amz-security-token", token)));
    let names = ["host"].into_iter().chain(headers.iter().map(|(name, _)| *name)).collect::<Vec<_>>().join(";");
    let values: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let Signed { method, host, path, query, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\nhost:{host}\n{values}\n{names}\n{hash}");
    let place = format!("{}/{}/{}/aws4_request", at.date, scope.region, scope.service);
    let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{}\n{place}\n{hash}", at.time);
    let mut key = format!("AWS4{}", by.secret).into_bytes();
    for part in [&at.date, scope.region, scope.service, "aws4_request"] {
        key = hmac(&key, part).as_ref().to_vec();
    }
    let signature = hex(hmac(&key, &to_sign).as_ref());
    let credential = format!("{}/{place}", by.key);
    let text = format!("{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}");
    headers.push(("authorization", text));
    headers
}

fn hmac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `text` with all but letters, digits, `-`, `.`, `_`, `~` and the bytes `kept` as `%XX`.
pub fn encoded(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

/// A query in the order in which it is signed.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let mut pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| (encoded(name, b""), encoded(value, b""))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example keys of AWS's documentation.
    fn example(token: Option<&str>) -> Credential {
        Credential {
            key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: token.map(Into::into),
        }
    }

    fn signature(signed: Signed<'_>, region: &str, by: &Credential, at: i64) -> (String, String) {
        let headers = headers(signed, Scope { region, service: "s3" }, by, &Stamp::at(at));
        let (_, text) = headers.into_iter().find(|(name, _)| *name == "authorization").expect("a signature");
        let (_, rest) = text.split_once("SignedHeaders=").expect("names");
        let (names, signature) = rest.split_once(", Signature=").expect("a signature");
        (names.into(), signature.into())
    }

    /// The examples "GET Bucket Lifecycle" and "Get Bucket (List Objects)" of "Signature Calculations for the
    /// Authorization Header" in AWS's documentation.
    #[test]
    fn published_examples_have_their_signatures() {
        for (query, expected) in [
            (query(&[("lifecycle", "")]), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            (
                query(&[("prefix", "J"), ("max-keys", "2")]),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let host = "examplebucket.s3.amazonaws.com";
            let signed = Signed { method: "GET", host, path: "/", query: &query, body: b"" };
            let (names, signature) = signature(signed, "us-east-1", &example(None), 1_369_353_600);
            assert_eq!(names, "host;x-amz-content-sha256;x-amz-date");
            assert_eq!(signature, expected, "{query}");
        }
    }

    /// The expected value is that of `hmac` and `hashlib` of Python 3.11, by the steps of the same documentation: names
    /// `host;x-amz-content-sha256;x-amz-date;x-amz-security-token`, canonical request `PUT`, path, query, headers,
    /// names and `sha256(body)`, and `key = hmac(key, part)` over `20260102`, `eu-west-1`, `s3` and `aws4_request`.
    #[test]
    fn a_part_with_a_token_and_names_of_all_kinds_has_the_signature_of_another_program() {
        let path = format!("/bucket/{}", encoded("runs/a b/\u{e9}+=~.txt", b"/"));
        assert_eq!(path, "/bucket/runs/a%20b/%C3%A9%2B%3D~.txt");
        let query = query(&[("uploadId", "a/b=="), ("partNumber", "2")]);
        assert_eq!(query, "partNumber=2&uploadId=a%2Fb%3D%3D");
        let body = b"Welcome to Amazon S3.";
        let signed = Signed { method: "PUT", host: "127.0.0.1:9000", path: &path, query: &query, body };
        let (names, signature) = signature(signed, "eu-west-1", &example(Some("a/token+of==a-role")), 1_767_323_045);
        assert_eq!(names, "host;x-amz-content-sha256;x-amz-date;x-amz-security-token");
        assert_eq!(signature, "030daeed55a59979adc948ff3d66613adcc12907d00aab9aa2ad650605883e9a");
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", example(Some("token"))), "Credential");
    }
}
