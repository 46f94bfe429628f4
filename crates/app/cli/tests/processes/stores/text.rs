//! Text at addresses, over a line with faults: the bits of the same files on this machine.

use std::fs;
use std::path::Path;

use super::proxy::{Line, Proxy};
use super::server::Server;
use super::{Store, run_of, said, weights_of, words};
use crate::harness::several::{Folder, succeeds};

/// Files of a folder with their content; the last ones are not read as text of a folder.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let text = |seed: usize| -> Vec<u8> {
        let words = (0..40_000).map(|n| format!("{} ", (n * seed + n / 7) % 991));
        words.collect::<String>().into_bytes()
    };
    let lines: String = (0..400).map(|n| format!("{{\"text\": \"line {n} of {}\"}}\n", n * n)).collect();
    vec![
        ("a.txt", text(3)),
        ("deeper/b.jsonl", lines.into_bytes()),
        ("deeper/c d.txt", text(5)),
        ("notes.unknown", b"not text".to_vec()),
    ]
}

fn with_text(folder: &Folder, name: &str, path: &str, more: &[&str]) -> Vec<String> {
    let path = format!("data.path=\"{path}\"");
    // Tokens of bytes need no training, so there may be a cache.
    let cache = format!("data.cache={}", folder.path("cache"));
    let keys: Vec<&str> = [path.as_str(), cache.as_str()].into_iter().chain(more.iter().copied()).collect();
    run_of(folder, name, 2, &keys)
}

#[test]
fn access_that_is_denied_has_the_remedy_of_its_address() {
    let (server, folder) = (Server::start(), Folder::new("denied"));
    let store = Store { port: server.port };
    let web = format!("http://127.0.0.1:{}/bucket/denied/a.txt", server.port);
    for (address, remedy) in [
        ("s3://bucket/denied/a.txt", "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile by AWS_PROFILE, or"),
        (web.as_str(), "; web servers are read without credentials: download the file, and name it, or use a store"),
    ] {
        let output = store.output(&words(&with_text(&folder, "run", address, &[])));
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(": access is denied: ") && text.contains(remedy), "{text}");
    }
}

#[test]
fn text_at_addresses_has_the_bits_of_files() {
    let (server, folder) = (Server::start(), Folder::new("text"));
    let local = folder.0.join("local");
    for (name, content) in files() {
        server.put(&format!("bucket/texts/{name}"), &content);
        let path = local.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }
    let proxy = Proxy::start(server.port, 77);
    let store = Store { port: proxy.port };
    let web = format!("http://127.0.0.1:{}/bucket/texts/deeper/c%20d.txt", proxy.port);
    let cases = [
        ("s3://bucket/texts", "".to_string()),
        ("s3://bucket/texts/a.txt", "a.txt".into()),
        ("s3://bucket/texts/**/*.txt", "**/*.txt".into()),
        ("s3://bucket/texts/deeper/?.jsonl", "deeper/?.jsonl".into()),
        (web.as_str(), "deeper/c d.txt".into()),
    ];
    for (number, (address, name)) in cases.iter().enumerate() {
        let path = local.join(name).display().to_string();
        let [here, there] = [format!("here-{number}"), format!("there-{number}")];
        succeeds(&store.output(&words(&with_text(&folder, &here, path.trim_end_matches('/'), &[]))));
        succeeds(&store.output(&words(&with_text(&folder, &there, address, &[]))));
        let [here, there] = [here, there].map(|name| weights_of(&folder.0.join(name)));
        assert!(here == there, "{address} has other bits than {path}");
    }
    // The run file has the address, and a resumption finds the same text.
    let run = folder.0.join("there-0");
    let run_file = fs::read_to_string(run.join("run.toml")).expect("a run file");
    assert!(run_file.contains("path = \"s3://bucket/texts\""), "{run_file}");
    let more = ["train", "--resume", run.to_str().expect("a path"), "--set", "train.steps=3"];
    store.succeeds(&more);
    // Objects that are there are not downloaded again, and one that has changed is named.
    proxy.set(Line::Sound);
    server.put(
        "bucket/texts/a.txt",
        b"other text, and not much of it: but it is longer than a sequence of the run is. It is other text.",
    );
    let changed = store.output(&words(&with_text(&folder, "changed", "s3://bucket/texts", &[])));
    succeeds(&changed);
    let text = said(&changed);
    assert!(
        text.contains("s3://bucket/texts/a.txt has changed since it was downloaded; it is downloaded again"),
        "{text}"
    );
    assert_eq!(text.matches("has changed since").count(), 1, "{text}");
    let refused = store.output(&["train", "--resume", run.to_str().expect("a path"), "--set", "train.steps=4"]);
    assert!(said(&refused).contains("the text of [data] differs"), "{}", said(&refused));
    assert!(!has_partial(&folder.0.join("cache/downloads")), "a download left something");
}

/// Whether a download that did not end is left below `folder`.
fn has_partial(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.any(|path| path.ends_with(".object.partial") || path.is_dir() && has_partial(&path))
}

#[test]
fn addresses_that_name_nothing_are_refused_by_name() {
    let (server, folder) = (Server::start(), Folder::new("nothing"));
    let store = Store { port: server.port };
    let web = format!("http://127.0.0.1:{}/bucket/none.txt", server.port);
    for (address, told) in [
        ("s3://bucket/none", "s3://bucket/none is not there"),
        ("s3://bucket/*.txt", "s3://bucket/*.txt is not there"),
        (web.as_str(), "none.txt is not there"),
        ("https://user:of-the-test@host/a.txt", "must not have a user or a password"),
        (
            "https://host/a.txt?key=of-the-test",
            "data.path must not have a user or a password in an address, nor a signature",
        ),
        ("https://host/a.txt?page=2", "must not have `?` or `#`"),
        ("s3://bucket/a.tokens", "s3://bucket/a.tokens is not on this machine; set model.vocabulary"),
    ] {
        let more: &[&str] = if address.ends_with(".tokens") { &["data.tokenizer=of the token files"] } else { &[] };
        let output = store.output(&words(&with_text(&folder, "run", address, more)));
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{address}: {text}");
        assert!(text.contains(told), "{address}: {text}");
    }
}
