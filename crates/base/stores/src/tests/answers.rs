//! Answers that do not end, are not what was asked for, or are the same whenever they are asked for.

use std::io::Write;
use std::time::Duration;

use super::served::{Served, answer};
use stores::{Address, Object, Remote, RetryLimit, Settings, StoreError};

/// The place `address`, with the store at `endpoint`.
fn remote(address: &str, endpoint: &str) -> Remote {
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "one"),
        ("AWS_SECRET_ACCESS_KEY", "two"),
        ("AWS_REGION", "three"),
    ];
    let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
    let settings = Settings::new(variables, RetryLimit { limit: Duration::from_secs(60) });
    let address = Address::parse(address).expect("an address").expect("sound");
    Remote::open(&address, &settings).expect("a place")
}

fn listed(server: &Served) -> Result<Vec<Object>, StoreError> {
    remote("s3://bucket/prefix", &server.url).list("")
}

/// A page of a listing with this inside.
fn page(inside: &str) -> String {
    format!("<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name>{inside}</ListBucketResult>")
}

fn entry(key: &str) -> String {
    format!(
        "<Contents><Key>{key}</Key><Size>1</Size><ETag>&quot;1&quot;</ETag>\
         <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )
}

#[test]
fn an_answer_without_an_end_is_refused() {
    let endless = Served::start(|stream, _, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n")?;
        loop {
            stream.write_all(&[b'a'; 1 << 16])?;
        }
    });
    let error = listed(&endless).expect_err("no end").to_string();
    assert!(error.contains("the store sends more than 16777216 bytes, the limit of an answer"), "{error}");
}

#[test]
fn a_listing_without_an_end_is_refused() {
    let pages = Served::start(|stream, _, _| {
        let next = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        answer(stream, "200 OK", "", page(&format!("{next}{}", " ".repeat(15 << 20))).as_bytes())
    });
    let error = listed(&pages).expect_err("no end").to_string();
    assert!(error.contains("the store sends more than 268435456 bytes, the limit of a listing"), "{error}");
}

#[test]
fn pages_of_a_listing_are_asked_for_by_their_signs() {
    let pages = Served::start(|stream, asked, _| {
        let target = asked.head.split(' ').nth(1).unwrap_or_default();
        let inside = match target {
            "/bucket?list-type=2&prefix=prefix%2F" => {
                let marks = entry("prefix/") + &entry("prefix/folder/");
                format!(
                    "<IsTruncated>true</IsTruncated>{marks}{}<NextContinuationToken>a/b==</NextContinuationToken>",
                    entry("prefix/b")
                )
            }
            "/bucket?continuation-token=a%2Fb%3D%3D&list-type=2&prefix=prefix%2F" => {
                format!("<IsTruncated>false</IsTruncated>{}", entry("prefix/a/c &amp; d"))
            }
            _ => panic!("{target} was not named"),
        };
        answer(stream, "200 OK", "", page(&inside).as_bytes())
    });
    let names: Vec<String> = listed(&pages).expect("a listing").into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["a/c & d", "b"]);
}

#[test]
fn a_listing_that_is_none_is_refused_at_once() {
    for (body, reason) in [
        ("<html></html>".to_string(), "not the XML of a store: another root at byte 0; check AWS_ENDPOINT_URL"),
        (page("<Contents><Key>prefix/a</Key></Contents>"), "an object of the listing has no name, size or time"),
        (page(&entry("a"))[..60].to_string(), "not the XML of a store"),
    ] {
        let server = Served::start(move |stream, _, _| answer(stream, "200 OK", "", body.as_bytes()));
        let error = listed(&server).expect_err("no listing").to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[test]
fn answers_that_no_other_attempt_changes_are_refused_at_once() {
    let empty = "Content-Length: 0";
    for (head, remedy) in [
        (format!("302 Found\r\nLocation: /a.txt\r\n{empty}"), "name the final address"),
        (format!("302 Found\r\nLocation: file:///etc/passwd\r\n{empty}"), "name the final address"),
        (format!("302 Found\r\n{empty}"), "name the final address"),
        (format!("400 Bad Request\r\n{empty}"), "the server refuses the request"),
        (format!("410 Gone\r\n{empty}"), "the server refuses the request"),
        (format!("405 Method Not Allowed\r\n{empty}"), "does not take the requests HEAD and GET with a range"),
        ("200 OK".into(), "does not say how long the object is"),
        (
            "200 OK\r\nContent-Length: 99999999999999999999999".into(),
            "content-length header not a number; check its address",
        ),
        ("\u{15}\u{3}\u{1}".into(), "the server does not speak HTTP/1.1: "),
    ] {
        let told = head.clone();
        let server = Served::start(move |stream, _, _| {
            stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())
        });
        let web = remote(&format!("{}/a.txt", server.url), &server.url);
        let error = web.describe("").expect_err("refused").to_string();
        assert!(error.contains(remedy), "{told}: {error}");
        // The client follows ten redirects.
        assert!(server.asked().len() <= 11, "{told}: {} requests", server.asked().len());
    }
}

#[test]
fn a_store_in_another_place_is_told_with_the_keys_that_name_it() {
    let moved = "<Error><Code>PermanentRedirect</Code><Message>m</Message>\
                 <Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>";
    let malformed =
        "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region></Error>";
    for (status, headers, body, remedy) in [
        ("301 Moved Permanently", "", moved, "set AWS_REGION to the region of the bucket, which is at b.s3.eu-west-1."),
        ("301 Moved Permanently", "", "", "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL"),
        ("301 Moved Permanently", "x-amz-bucket-region: eu-west-1\r\n", "", "set AWS_REGION=eu-west-1, the region"),
        ("400 Bad Request", "", malformed, "set AWS_REGION=eu-west-1, the region of the bucket"),
        ("400 Bad Request", "", "", "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL"),
        ("405 Method Not Allowed", "", "", "check AWS_ENDPOINT_URL, such as its port"),
    ] {
        let server = Served::start(move |stream, _, _| answer(stream, status, headers, body.as_bytes()));
        let error = listed(&server).expect_err("refused").to_string();
        assert!(error.contains(remedy), "{status}: {error}");
    }
}

#[test]
fn endpoints_that_are_none_are_refused_before_any_request() {
    for (endpoint, reason) in [
        ("127.0.0.1:9000", "AWS_ENDPOINT_URL must be https://HOST or http://HOST:PORT"),
        ("ftp://host", "AWS_ENDPOINT_URL must be https://HOST or http://HOST:PORT"),
        ("http://host?x=1", "AWS_ENDPOINT_URL must be https://HOST or http://HOST:PORT"),
        ("http://user:hidden@host", "AWS_ENDPOINT_URL must not have a user or a password"),
    ] {
        let variables = [("AWS_ENDPOINT_URL".to_string(), endpoint.to_string())];
        let settings = Settings::new(variables, RetryLimit { limit: Duration::from_secs(1) });
        let address = Address::parse("s3://bucket").expect("an address").expect("sound");
        let error = Remote::open(&address, &settings).expect_err("no endpoint").to_string();
        assert!(error.contains(reason) && !error.contains("hidden"), "{error}");
    }
}
