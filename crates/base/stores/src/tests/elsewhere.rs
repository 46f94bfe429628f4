//! Requests stay with the server that a user names: redirects of stores are refused, and web servers redirect to
//! themselves alone. No message has a secret.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::served::{Asked, Served, answer};
use stores::{Address, Object, Remote, RetryLimit, Settings, StoreError};

/// The keys of the tests; no message may have them.
const KEYS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "the-key-of-the-test"),
    ("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test"),
    ("AWS_SESSION_TOKEN", "the-token-of-the-test"),
];

fn settings(endpoint: &str, seconds: f32) -> Settings {
    let variables = KEYS.into_iter().chain([("AWS_ENDPOINT_URL", endpoint)]);
    let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
    Settings::new(variables, RetryLimit { limit: Duration::from_secs_f32(seconds) })
}

fn remote(address: &str, settings: &Settings) -> Remote {
    let address = Address::parse(address).expect("an address").expect("sound");
    Remote::open(&address, settings).expect("a place")
}

fn object() -> Object {
    Object { name: "a.txt".into(), bytes: 4, tag: None, modified_ms: 0 }
}

/// A use of a place, by name.
type Act = (&'static str, fn(&Remote) -> Result<(), StoreError>);

/// A file without a name.
fn file() -> File {
    let path = std::env::temp_dir().join(format!("stores-{}-{:?}", std::process::id(), std::thread::current().id()));
    let file = File::options().create(true).read(true).write(true).truncate(true).open(&path).expect("a file");
    std::fs::remove_file(path).expect("a file");
    file
}

const READS: [Act; 3] = [
    ("describe", |remote| remote.describe("a.txt").map(drop)),
    ("read", |remote| remote.read("a.txt", 100).map(drop)),
    ("download", |remote| remote.download(&object(), &mut file())),
];

const WRITES: [Act; 4] = [
    ("list", |remote| remote.list("").map(drop)),
    ("upload", |remote| remote.upload("a.txt", &mut file())),
    ("remove", |remote| remote.remove("a.txt")),
    ("upload in parts", |remote| {
        let mut long = file();
        long.set_len(9 << 20)?;
        remote.upload("a.txt", &mut long)
    }),
];

/// A server that redirects to `target`.
fn redirecting(status: &'static str, target: String) -> Served {
    Served::start(move |stream, _, _| answer(stream, status, &format!("Location: {target}\r\n"), b""))
}

/// A server that has everything.
fn other() -> Served {
    Served::start(|stream, _, _| answer(stream, "200 OK", "ETag: \"1\"\r\n", b"text"))
}

#[test]
fn a_store_that_redirects_is_refused_and_no_other_server_is_asked() {
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let other = other();
        let first = redirecting(status, format!("{}/bucket/a.txt", other.url));
        let remote = remote("s3://bucket", &settings(&first.url, 30.0));
        for (name, act) in READS.into_iter().chain(WRITES) {
            let error = act(&remote).expect_err("a redirect").to_string();
            assert!(
                error.contains("set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL"),
                "{name}: {error}"
            );
            assert!(!error.contains(&other.url), "{name}: {error}");
        }
        assert_eq!(first.asked().len(), 7, "each is asked once");
        assert!(other.asked().is_empty(), "{status}: {:?}", other.asked());
    }
}

#[test]
fn a_store_does_not_redirect_to_itself_either() {
    let first = Served::start(|stream, asked, _| match asked.head.starts_with("GET /again") {
        true => answer(stream, "200 OK", "ETag: \"1\"\r\n", b"text"),
        false => answer(stream, "307 Temporary Redirect", "Location: /again\r\n", b""),
    });
    let remote = remote("s3://bucket", &settings(&first.url, 30.0));
    remote.read("a.txt", 100).expect_err("a redirect");
    assert_eq!(first.asked().len(), 1);
}

#[test]
fn web_servers_redirect_to_themselves_alone() {
    let other = other();
    let first = redirecting("302 Found", format!("{}/a.txt?signature=hidden", other.url));
    let web = remote(&format!("{}/texts", first.url), &settings(&first.url, 30.0));
    for (name, act) in READS {
        let error = act(&web).expect_err("a redirect").to_string();
        let told =
            format!("the server redirects to {}, and redirects are followed on the same server alone", other.url);
        assert!(error.contains(&told) && error.contains("name the final address"), "{name}: {error}");
        assert!(!error.contains("hidden"), "{name}: {error}");
    }
    assert!(other.asked().is_empty(), "{:?}", other.asked());
    // The same server may do so, by a path or by its whole address.
    let itself = Served::start(|stream, asked, _| {
        let host = asked.header("host").unwrap_or_default();
        match asked.head.split(' ').nth(1).unwrap_or_default() {
            "/texts/a.txt" => answer(stream, "301 Moved Permanently", "Location: ../b/c.txt?x=1\r\n", b""),
            "/texts/../b/c.txt?x=1" => {
                answer(stream, "307 Temporary Redirect", &format!("Location: http://{host}/d.txt\r\n"), b"")
            }
            "/d.txt" => answer(stream, "200 OK", "ETag: \"1\"\r\n", b"text"),
            path => panic!("{path} was not named"),
        }
    });
    let web = remote(&format!("{}/texts", itself.url), &settings(&itself.url, 30.0));
    assert_eq!(web.read("a.txt", 100).expect("text"), b"text");
    assert_eq!(web.describe("a.txt").expect("an object").bytes, 4);
    // Web servers get no credentials, and redirects carry no address of before.
    for asked in itself.asked().iter().chain(&first.asked()) {
        assert!(!asked.head.contains("of-the-test") && asked.header("referer").is_none(), "{}", asked.head);
    }
}

#[test]
fn a_server_without_ranges_is_read_again_after_a_broken_transfer() {
    let text: Vec<u8> = (0..200_000_u32).flat_map(|number| (number as u8).to_le_bytes()).collect();
    let tag = "ETag: \"1\"\r\n";
    for (place, tag) in [("s3://bucket", tag), ("", tag), ("", "")] {
        let sent = text.clone();
        let server = Served::start(move |stream, asked, number| {
            let headers = format!("Content-Length: {}\r\n{tag}Connection: close\r\n", sent.len());
            let body = match (asked.head.starts_with("HEAD"), number) {
                (true, _) => &sent[..0],
                // The first two bodies break off.
                (false, ..3) => &sent[..sent.len() / 2],
                (false, _) => &sent[..],
            };
            std::io::Write::write_all(stream, format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes())?;
            std::io::Write::write_all(stream, body)
        });
        let place = if place.is_empty() { format!("{}/texts", server.url) } else { place.into() };
        let web = remote(&place, &settings(&server.url, 10.0));
        let (object, mut file) = (web.describe("a.txt").expect("an object"), file());
        web.download(&object, &mut file).expect("all of it");
        let mut found = vec![];
        file.rewind().expect("a file");
        file.read_to_end(&mut found).expect("a file");
        assert!(found == text, "{} bytes", found.len());
        let ranges: Vec<bool> = server.asked().iter().map(|asked| asked.header("range").is_some()).collect();
        // Without a tag the rest may be of another object, and is not asked for.
        assert_eq!(ranges, [false, false, !tag.is_empty(), !tag.is_empty()]);
    }
}

#[test]
fn a_server_that_repeats_secrets_does_not_bring_them_into_messages() {
    let repeated = |asked: &Asked| {
        let head = asked.head.replace('\n', " ");
        format!("<Error><Code>Odd</Code><Message>the-secret-of-the-test of {head}</Message></Error>")
    };
    let server = Served::start(move |stream, asked, number| {
        let status = if number == 1 { "403 Forbidden" } else { "500 Internal Server Error" };
        answer(stream, status, "", repeated(asked).as_bytes())
    });
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let settings = settings(&server.url, 4.0).with_on_unanswered(Arc::new(move |unanswered| {
        hears.lock().expect("texts").push(format!("{unanswered:?}"));
    }));
    let remote = remote("s3://bucket/runs", &settings);
    let mut texts = vec![format!("{remote:?} {settings:?}")];
    for act in [READS[1].1, WRITES[0].1] {
        let error = act(&remote).expect_err("no answer");
        texts.push(format!("{error} {error:?}"));
    }
    texts.extend(heard.lock().expect("texts").clone());
    assert!(texts.len() > 3 && texts[1].contains("Odd: *** of GET"), "{texts:?}");
    for (text, (_, secret)) in texts.iter().flat_map(|text| KEYS.iter().map(move |key| (text, key))) {
        assert!(!text.contains(secret), "{text}");
    }
    // The token was sent to the store: it is in no message because it is taken out.
    assert!(server.asked()[0].header("x-amz-security-token") == Some("the-token-of-the-test"));
}
