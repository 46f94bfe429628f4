//! Text into token files: the same bytes whatever the text is packed in, resumed after an end, found again by runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tests::folder::Folder;
use config::{DataSpec, OddFiles, Positions, SourceSpec, TokenizerSpec, Trusted, Visible};
use data::{
    Content, Dataset, Document, Earlier, Listener, NoListener, Progress, TokenFile, TokenFileWriter, Tokenizer,
    tokenize,
};

/// Documents of words, some empty, one longer than a part.
fn documents() -> Vec<String> {
    let words = |seed: u64, count: u64| -> String {
        let word = |index: u64| (seed * 7919 + index * index * 31 + index) % 997;
        (0..count).map(|index| format!("w{} {}", word(index), if index % 9 == 8 { "é\n" } else { "" })).collect()
    };
    let mut documents: Vec<String> = (0..300).map(|index| words(index, index % 40)).collect();
    documents.insert(7, words(1000, 230_000));
    documents
}

fn lines(documents: &[String]) -> String {
    documents.iter().map(|text| serde_json::json!({ "text": text }).to_string() + "\n").collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).and_then(|()| encoder.finish()).expect("a stream")
}

fn tokenizer(texts: &[String]) -> Tokenizer {
    let documents: Vec<Document> =
        texts[..5].iter().map(|text| Document { name: "a".into(), text: text.clone() }).collect();
    Tokenizer::train(&documents, 400).expect("trained")
}

fn written(folder: &Folder, source: &str, tokenizer: &Tokenizer) -> Vec<u8> {
    let out = folder.path("out.tokens");
    tokenize(&[SourceSpec::of(folder.path(source))], OddFiles::Refuse, tokenizer, &out, &NoListener).expect(source);
    TokenFile::open(&out).expect("a token file");
    folder.get("out.tokens")
}

/// Names in the folder of `path` that begin with a dot.
fn left_next_to(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path.parent().expect("a folder")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn packed_text_has_the_tokens_of_the_same_text_unpacked_and_in_memory() {
    let folder = Folder::new("packed");
    let documents = documents();
    let tokenizer = tokenizer(&documents);
    let text = lines(&documents);
    folder.put("a.jsonl", text.as_bytes());
    folder.put("a.gz", &gzip(text.as_bytes()));
    folder.put("parts/1.jsonl", &text.as_bytes()[..text.match_indices('\n').nth(100).expect("a line").0 + 1]);
    folder.put("parts/2.gz", &gzip(&text.as_bytes()[text.match_indices('\n').nth(100).expect("a line").0 + 1..]));
    let expected = written(&folder, "a.jsonl", &tokenizer);
    for source in ["a.gz", "parts", "parts/*"] {
        assert!(written(&folder, source, &tokenizer) == expected, "{source}");
    }
    // The writer of documents in memory knows nothing of parts and threads.
    let texts: Vec<&String> = documents.iter().filter(|text| !text.is_empty()).collect();
    let mut writer = TokenFileWriter::create(&folder.path("b.tokens"), &tokenizer, texts.len()).expect("a file");
    for text in texts {
        writer.push(&tokenizer.encode(text).expect("tokens")).expect("written");
    }
    writer.finish().expect("written");
    assert!(folder.get("b.tokens") == expected);
    assert_eq!(left_next_to(&folder.path("out.tokens")), [""; 0]);
}

#[test]
fn a_text_of_many_parts_has_the_tokens_of_the_whole() {
    let folder = Folder::new("parts");
    let text = "fn main() {\n    let x = 1; // words, words and more words\n}\n\n".repeat(50_000);
    let tokenizer = tokenizer(&vec![text[..2000].to_string(); 5]);
    folder.put("a.txt", text.as_bytes());
    folder.put("a.gz", &gzip(text.as_bytes()));
    let expected = written(&folder, "a.txt", &tokenizer);
    assert!(written(&folder, "a.gz", &tokenizer) == expected);
    let file = TokenFile::open(&folder.path("out.tokens")).expect("a file");
    assert_eq!(file.corpus.num_documents(), 1);
    // The library, given the whole text.
    let library: tokenizers::Tokenizer = tokenizer.description().expect("JSON").parse().expect("a tokenizer");
    let whole = library.encode_fast(text.as_str(), false).expect("tokens");
    assert!(file.corpus.document_tokens(0).eq(whole.get_ids().iter().map(|token| i64::from(*token))));
}

/// Fails after a number of batches, as a kill would end the work.
#[derive(Default)]
struct Stops {
    left: AtomicU64,
    heard: std::sync::Mutex<Vec<Progress>>,
    earlier: std::sync::Mutex<Option<Earlier>>,
}

impl Listener for Stops {
    fn earlier(&self, earlier: &Earlier) {
        *self.earlier.lock().expect("not poisoned") = Some(earlier.clone());
    }

    fn progress(&self, progress: Progress) {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(progress);
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        assert!(left > 0, "ended, as by a kill");
    }
}

#[test]
fn work_that_was_ended_resumes_and_gives_the_same_bytes() {
    let folder = Folder::new("resumed");
    let documents = documents();
    let tokenizer = tokenizer(&documents);
    for part in 0..8 {
        folder.put(&format!("in/{part}.jsonl"), lines(&documents[20 * part + 8..20 * part + 40]).as_bytes());
    }
    let expected = written(&folder, "in", &tokenizer);
    let source = [SourceSpec::of(folder.path("in"))];
    let out = folder.path("again.tokens");
    // A file is a batch here, and the first batch of each attempt is on the disk before anything else.
    for attempt in 1..4 {
        let stops = Stops { left: 1.into(), ..Stops::default() };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tokenize(&source, OddFiles::Refuse, &tokenizer, &out, &stops)
        }));
        assert!(ended.is_err() && !out.exists());
        let heard = stops.heard.into_inner().expect("not poisoned");
        assert_eq!(heard.iter().map(|progress| progress.files_done).collect::<Vec<_>>(), [attempt, attempt + 1]);
        assert_eq!(heard[0].tokens_before > 0, attempt > 1);
    }
    assert_eq!(left_next_to(&out).len(), 3);
    let parts = [".again.tokens.mark", ".again.tokens.part-tokens", ".again.tokens.part-ends"];
    let left = parts.map(|name| folder.get(name));
    // Bytes after the last mark are cut off.
    let mark = folder.get(".again.tokens.mark");
    let mut tokens = folder.get(".again.tokens.part-tokens");
    tokens.extend([7; 1001]);
    folder.put(".again.tokens.part-tokens", &tokens);
    let listener = Stops { left: 100.into(), ..Stops::default() };
    tokenize(&source, OddFiles::Refuse, &tokenizer, &out, &listener).expect("written");
    assert_eq!(listener.heard.into_inner().expect("not poisoned")[0].files_done, 4);
    match listener.earlier.into_inner().expect("not poisoned") {
        Some(Earlier::Continued { input: 3, path, files: 8, records: 0, documents, tokens }) => {
            assert_eq!(path, Some(folder.path("in/3.jsonl")));
            assert!(documents > 0 && tokens > documents);
        }
        other => panic!("{other:?}"),
    }
    // Parts with another byte, or without one, are not used.
    for (name, part) in parts.iter().zip(&left).skip(1) {
        let mut flipped = part.clone();
        // Bytes at the end may be after the mark.
        flipped[0] ^= 1;
        for changed in [&flipped[..], &part[..1]] {
            parts.iter().zip(&left).for_each(|(name, part)| folder.put(name, part));
            folder.put(name, changed);
            let listener = Stops { left: 100.into(), ..Stops::default() };
            tokenize(&source, OddFiles::Refuse, &tokenizer, &out, &listener).expect("written");
            let earlier = listener.earlier.into_inner().expect("not poisoned");
            assert_eq!(earlier, Some(Earlier::Changed { out: out.clone() }));
            assert_eq!(listener.heard.into_inner().expect("not poisoned")[0].tokens_before, 0);
            assert!(folder.get("again.tokens") == expected, "{name}");
        }
    }
    assert!(folder.get("again.tokens") == expected);
    assert_eq!(left_next_to(&out), [""; 0]);
    // A mark that is not whole, or of another text, begins again.
    for changed in [&mark[..mark.len() / 2], b"", b"0000000000000000 {}\n"] {
        folder.put(".again.tokens.mark", changed);
        folder.put(".again.tokens.part-tokens", &tokens);
        tokenize(&source, OddFiles::Refuse, &tokenizer, &out, &NoListener).expect("written");
        assert!(folder.get("again.tokens") == expected);
    }
}

#[test]
fn a_refusal_names_the_place_and_leaves_nothing() {
    let folder = Folder::new("refused");
    let text = lines(&documents());
    folder.put("in/1.jsonl", text.as_bytes());
    folder.put("in/2.jsonl", b"{\"text\": \"a\"}\n{\"text\": 1}\n");
    folder.put("out/old.tokens", b"old");
    let out = folder.path("out/old.tokens");
    let source = [SourceSpec::of(folder.path("in"))];
    let said =
        tokenize(&source, OddFiles::Refuse, &Tokenizer::bytes(), &out, &NoListener).expect_err("refused").to_string();
    assert!(said.contains("2.jsonl:2 (byte 14) has a field `text` that is not a string; "), "{said}");
    assert_eq!((folder.get("out/old.tokens").as_slice(), left_next_to(&out).len()), (b"old".as_slice(), 0));
    folder.put("in/2.jsonl", b"{\"input_ids\": [1, 300]}\n");
    let said =
        tokenize(&source, OddFiles::Refuse, &Tokenizer::bytes(), &out, &NoListener).expect_err("refused").to_string();
    assert!(said.starts_with("token 300 is token 1 of ") && said.contains("2.jsonl:1: "), "{said}");
    folder.put("none/a.txt", b"");
    let source = [SourceSpec::of(folder.path("none"))];
    let said =
        tokenize(&source, OddFiles::Refuse, &Tokenizer::bytes(), &out, &NoListener).expect_err("empty").to_string();
    assert!(said.contains("a.txt holds no text; "), "{said}");
}

/// A name of 243 letters has room for the ending of the mark, and not for those of the parts.
#[test]
fn parts_that_cannot_be_made_leave_nothing() {
    let folder = Folder::new("no-parts");
    folder.put("a.txt", b"a text");
    folder.put("out/.b.tokens.part-ends/file", b"");
    let long = (243..251).map(|letters| format!("{}.tokens", "n".repeat(letters - ".tokens".len())));
    for name in long.chain(["b.tokens".to_string()]) {
        let out = folder.path(&format!("out/{name}"));
        let written =
            tokenize(&[SourceSpec::of(folder.path("a.txt"))], OddFiles::Refuse, &Tokenizer::bytes(), &out, &NoListener);
        assert!(written.is_err(), "{name}");
        assert_eq!(left_next_to(&out), [".b.tokens.part-ends"], "{name}");
    }
}

#[test]
fn a_tokenizer_that_is_trained_as_sources_are_read_is_the_one_of_their_documents() {
    let folder = Folder::new("trained");
    let documents = documents();
    folder.put("a.gz", &gzip(lines(&documents).as_bytes()));
    let streamed = data::train(&[SourceSpec::of(folder.path("a.gz"))], OddFiles::Refuse, 500).expect("trained");
    let texts: Vec<Document> = match data::read(&folder.path("a.gz"), None).expect("text") {
        Content::Text(documents) => documents,
        Content::Tokens(_) => panic!("text"),
    };
    let whole = Tokenizer::train(&texts, 500).expect("trained");
    assert_eq!(streamed.description().expect("JSON"), whole.description().expect("JSON"));
}

fn spec(sources: Vec<SourceSpec>, tokenizer: PathBuf, cache: Option<PathBuf>) -> DataSpec {
    DataSpec {
        sources,
        tokenizer: TokenizerSpec::File(tokenizer),
        begin: String::new(),
        end: String::new(),
        visible: Visible::Past,
        positions: Positions::Sequence,
        blanks: None,
        chat: None,
        held_out: 0.1,
        validation: vec![],
        cache: cache.map(Trusted::of_command_line),
        odd_files: OddFiles::Refuse,
        requests: None,
    }
}

/// Writes a file of the cache and counts how often one is made.
struct Counts(AtomicU64);

impl Listener for Counts {
    fn progress(&self, _: Progress) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn runs_find_their_tokens_until_text_or_tokenizer_is_another_one() {
    let folder = Folder::new("cache");
    let documents = documents();
    let trained = tokenizer(&documents);
    trained.save_as(&folder.path("a.json")).expect("written");
    Tokenizer::train(&[Document { name: "b".into(), text: documents[20].clone() }], 300)
        .and_then(|other| other.save_as(&folder.path("b.json")))
        .expect("written");
    folder.put("in/a.jsonl", lines(&documents).as_bytes());
    folder.put("in/b.jsonl", lines(&documents[..50]).as_bytes());
    let source = || vec![SourceSpec { weight: 2.0, ..SourceSpec::of(folder.path("in/*.jsonl")) }];
    let cache = folder.path("cache");
    let opened = |name: &str| {
        let counts = Counts(0.into());
        let spec = spec(source(), folder.path(name), Some(cache.clone()));
        let sources = data::Sources::open_with_listener(&spec, &counts).expect("sources");
        let given = sources.tokenizer(&spec.tokenizer).expect("a tokenizer");
        (Dataset::new(&spec, sources, given).expect("a dataset"), counts.0.into_inner() > 0)
    };
    let (first, made) = opened("a.json");
    assert!(made);
    // The documents, their order and what is held out of them are those of a run without a cache, but for where
    // lengths count.
    let plain = Dataset::open(&spec(source(), folder.path("a.json"), None)).expect("a dataset");
    let tokens = |dataset: &Dataset| -> usize { dataset.train.len() + dataset.held_out.len() };
    assert_eq!(tokens(&first), tokens(&plain));
    let (again, made) = opened("a.json");
    assert!(!made && again.hash() == first.hash());
    let (_, made) = opened("b.json");
    assert!(made, "another tokenizer");
    let (_, made) = opened("a.json");
    assert!(!made);
    folder.put("in/b.jsonl", lines(&documents[..51]).as_bytes());
    let (longer, made) = opened("a.json");
    assert!(made && longer.hash() != first.hash(), "another text");
    // A damaged file is made again. A map would change with it.
    let hash = longer.hash();
    drop(longer);
    for entry in std::fs::read_dir(&cache).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).expect("written");
    }
    let (repaired, made) = opened("a.json");
    assert!(made && repaired.hash() == hash);
}
