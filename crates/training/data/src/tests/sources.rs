//! Text from files: what is read, in which order, and what is said about files that cannot be.

use std::path::Path;

use crate::tests::folder::Folder;
use config::{DataSpec, OddFiles, Positions, RunConfig, SourceSpec, TokenizerSpec, ValidationSpec, Visible};
use data::{Batches, Content, DataError, Dataset, Document, Order, TokenFileWriter, Tokenizer, vocabulary_of};

fn data_spec(sources: &[std::path::PathBuf], tokenizer: TokenizerSpec) -> DataSpec {
    let sources = sources.iter().map(SourceSpec::of).collect();
    DataSpec {
        sources,
        tokenizer,
        begin: String::new(),
        end: String::new(),
        visible: Visible::Past,
        positions: Positions::Sequence,
        blanks: None,
        chat: None,
        held_out: 0.1,
        validation: vec![],
        cache: None,
        odd_files: OddFiles::Refuse,
        requests: None,
    }
}

fn read(path: &Path) -> Result<Vec<Document>, DataError> {
    match data::read(path, None)? {
        Content::Text(documents) => Ok(documents),
        Content::Tokens(_) => panic!("{} holds tokens", path.display()),
    }
}

#[test]
fn a_folder_is_read_in_the_order_of_its_paths_and_what_is_no_text_is_left_out() {
    let folder = Folder::new("order");
    folder.put("z.txt", b"last");
    folder.put("b/a.md", b"first");
    folder.put("b/.hidden/x.txt", b"hidden");
    folder.put("b/picture.png", b"\x89PNG");
    folder.put("c.jsonl", b"{\"text\": \"one\", \"id\": 1}\n\n{\"text\": \"two\\n\"}");
    folder.put("empty.txt", b"");
    let documents = read(&folder.path("")).expect("text");
    let texts: Vec<&str> = documents.iter().map(|document| document.text.as_str()).collect();
    assert_eq!(texts, ["first", "one", "two\n", "last"]);
    let names: Vec<&str> =
        documents.iter().map(|document| &document.name[folder.path("").as_os_str().len()..]).collect();
    assert_eq!(names, ["b/a.md", "c.jsonl:1", "c.jsonl:3", "z.txt"]);
    assert!(read(&folder.path("b/picture.png")).expect_err("a picture").to_string().contains("byte 0"));
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_place() {
    let folder = Folder::new("errors");
    let said = |name: &str, bytes: &[u8]| {
        folder.put(name, bytes);
        let path = folder.path(name);
        read(&path).expect_err(name).to_string().replace(&path.display().to_string(), name)
    };
    let line = "; each line is an object such as {\"text\": \"...\"}";
    assert_eq!(said("a.txt", b"caf\xe9 au lait"), "a.txt is not UTF-8 at byte 3; convert it, or leave it out");
    assert_eq!(
        said("a.txt", b""),
        "a.txt holds no text; name a text file, or a folder with text files (*.txt, *.md, *.jsonl, *.parquet or sources)"
    );
    assert_eq!(
        said("a.jsonl", b"{\"text\": \"a\"}\n{\"text\": 3}\n"),
        format!("a.jsonl:2 (byte 14) has a field `text` that is not a string{line}")
    );
    assert_eq!(said("a.jsonl", b"\n{}\n"), format!("a.jsonl:2 (byte 1) has no field `text`{line}"));
    assert_eq!(
        said("a.jsonl", b"{\"content\": \"a\", \"id\": 1}\n"),
        format!(
            "a.jsonl:1 (byte 0) has no field `text` but `content`, `id`; name the one with the text by `column`{line}"
        )
    );
    assert_eq!(
        said("a.jsonl", b"{\"text\": null}\n"),
        format!("a.jsonl:1 (byte 0) has a field `text` that is null; leave the line out, or give it a string{line}")
    );
    let weights = [&16u64.to_le_bytes()[..], b"{\"a\":{\"dtype\":\"F32\""].concat();
    assert_eq!(
        said("a.txt", &weights),
        "a.txt is weights in safetensors; decompress or convert it first, or leave it out"
    );
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for name in ["a.parquet", "b.txt"] {
        let expected = "is a pointer of Git LFS, and its file was not downloaded; use `git lfs pull`";
        assert_eq!(said(name, pointer), format!("{name} {expected}"));
        std::fs::remove_file(folder.path(name)).expect("a file");
    }
    for name in ["a.parquet", "b.arrow", "c.Feather"] {
        let expected = "has the name of a table and does not hold one; write it again, or name it *.txt if it is text";
        assert_eq!(said(name, b"<html>not found</html>"), format!("{name} {expected}"));
        std::fs::remove_file(folder.path(name)).expect("a file");
    }
    assert_eq!(
        said("a.jsonl", b"{\"messages\": []}"),
        format!("a.jsonl:1 (byte 0) has no field `text` but `messages`, which `data.chat` reads{line}")
    );
    assert_eq!(said("a.jsonl", b"[1]"), format!("a.jsonl:1 (byte 0) is not a JSON object{line}"));
    assert_eq!(said("a.jsonl", b"{\"text\": \"a\"} x"), format!("a.jsonl:1 (byte 14) is not JSON{line}"));
    assert_eq!(
        said("a.jsonl", b"{\"text\": \"\"}\n{\"text\": \"\"}\n"),
        "a.jsonl has 2 rows or lines, and no text in any of them: their column is empty or null; name another one by `column`"
    );
    assert!(read(&folder.path("absent")).expect_err("absent").to_string().contains("absent cannot be read: "));
    folder.put("a.txt", b"");
    assert!(read(&folder.path("")).expect_err("no text").to_string().contains("no text in any of them"));
}

#[test]
fn a_column_of_plain_text_is_refused() {
    let folder = Folder::new("columns");
    folder.put("a.txt", b"a text");
    let path = folder.path("a.txt");
    let expected = format!(
        "{} has neither JSON lines nor a table, so column \"content\" has no effect; leave it out, or name another file",
        path.display()
    );
    let said = data::read(&path, Some("content")).expect_err("text").to_string();
    assert_eq!(said, expected);
    let source = SourceSpec { column: Some("content".into()), ..SourceSpec::of(&path) };
    let out = folder.path("a.tokens");
    let tokenize = |sources: &[SourceSpec]| {
        data::tokenize(sources, OddFiles::Refuse, &Tokenizer::bytes(), &out, &data::NoListener)
    };
    assert_eq!(tokenize(std::slice::from_ref(&source)).expect_err("text").to_string(), expected);
    // Next to text, a table may have the column.
    folder.put("b.jsonl", b"{\"content\": \"b\"}\n");
    let table = SourceSpec { column: Some("content".into()), ..SourceSpec::of(folder.path("b.jsonl")) };
    assert_eq!(tokenize(&[source, table]).expect("written").documents, 2);
}

#[test]
fn all_sources_that_cannot_be_used_are_named() {
    let folder = Folder::new("several");
    folder.put("a.txt", b"a text");
    folder.put("b.jsonl", b"{\"txt\": \"b\"}\n");
    let paths = ["a.txt", "b.jsonl", "none.txt"].map(|name| folder.path(name));
    let validation = vec![ValidationSpec { name: "books".into(), source: SourceSpec::of(folder.path("books.txt")) }];
    let spec = DataSpec { validation, ..data_spec(&paths, TokenizerSpec::Bytes) };
    let said = Dataset::open(&spec).expect_err("three").to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "3 sources cannot be used:"), "{said}");
    assert!(lines[1].contains("b.jsonl:1 (byte 0) has no field `text` but `txt`"), "{said}");
    assert!(
        lines[2].contains("none.txt cannot be read: ") && lines[3].contains("books.txt cannot be read: "),
        "{said}"
    );
    // The same before anything is tokenized.
    let sources = paths.map(SourceSpec::of);
    let out = folder.path("a.tokens");
    let said = data::tokenize(&sources, OddFiles::Refuse, &Tokenizer::bytes(), &out, &data::NoListener)
        .expect_err("two")
        .to_string();
    assert!(said.starts_with("2 sources cannot be used:\n") && said.contains("none.txt"), "{said}");
    // A long list is cut.
    let paths: Vec<_> = (0..10).map(|number| folder.path(&format!("no-{number}.txt"))).collect();
    let said = Dataset::open(&data_spec(&paths, TokenizerSpec::Bytes)).expect_err("ten").to_string();
    assert!(said.lines().count() == 10 && said.ends_with("\n  and 2 more"), "{said}");
}

#[test]
fn a_dataset_holds_out_whole_documents_of_every_source_and_counts_their_bytes() {
    let folder = Folder::new("dataset");
    for index in 0..20 {
        folder.put(&format!("a/{index:02}.txt"), format!("document {index} of a, with words\n").as_bytes());
    }
    let lines: Vec<String> = (0..30).map(|index| format!("{{\"text\": \"line {index} of b\"}}")).collect();
    folder.put("b.jsonl", lines.join("\n").as_bytes());
    let spec = data_spec(&[folder.path("a"), folder.path("b.jsonl")], TokenizerSpec::Bpe { vocabulary: 300 });
    let dataset = Dataset::open(&spec).expect("text");
    assert_eq!((dataset.train.num_documents(), dataset.held_out.num_documents()), (45, 5));
    let held_out = dataset.text_of(&dataset.held_out).expect("text");
    assert_eq!(dataset.held_out_bytes, held_out.len() as u64);
    assert!(dataset.held_out.len() < held_out.len());
    assert!(dataset.train.ingredients[1].name.ends_with("b.jsonl"));
    let train = RunConfig::quick_start().train;
    let batches = Batches::new(dataset.train.clone(), "training", &train, 300, Order::Shuffled { seed: 1 });
    let said = batches.expect_err("short").to_string();
    assert!(said.starts_with("the training text of ") && said.contains("needs 129"), "{said}");
    // Nothing that is held out is seen by the tokenizer: training on the training text alone gives the same one.
    let parts = data::split(read(&folder.path("a")).expect("text"), 0.1).train;
    let more = data::split(read(&folder.path("b.jsonl")).expect("text"), 0.1).train;
    let again = Tokenizer::train(&[parts, more].concat(), 300).expect("trained");
    assert_eq!(again.identity().expect("JSON"), dataset.tokenizer.identity().expect("JSON"));
}

#[test]
fn token_files_bring_their_tokenizer_and_do_not_mix_with_others() {
    let folder = Folder::new("mix");
    folder.put("a.txt", "some words and some words again\n".repeat(20).as_bytes());
    let texts = read(&folder.path("a.txt")).expect("text");
    let trained = Tokenizer::train(&texts, 280).expect("trained");
    for (name, tokenizer) in [("bpe.tokens", &trained), ("bytes.tokens", &Tokenizer::bytes())] {
        let mut writer = TokenFileWriter::create(&folder.path(name), tokenizer, 1).expect("writable");
        writer.push(&tokenizer.encode(&texts[0].text).expect("tokens")).expect("writable");
        writer.finish().expect("writable");
    }
    let open = |names: &[&str], tokenizer| {
        let paths: Vec<_> = names.iter().map(|name| folder.path(name)).collect();
        let spec = data_spec(&paths, tokenizer);
        Dataset::open(&spec).map(|dataset| (dataset, vocabulary_of(&spec).expect("known")))
    };
    let (dataset, vocabulary) = open(&["a.txt", "bpe.tokens"], TokenizerSpec::OfTokenFiles).expect("one tokenizer");
    assert_eq!((dataset.tokenizer.vocabulary(), vocabulary), (280, 280));
    assert_eq!(dataset.tokenizer.identity().expect("JSON"), trained.identity().expect("JSON"));
    let said = open(&["bpe.tokens", "bytes.tokens"], TokenizerSpec::OfTokenFiles).expect_err("two").to_string();
    assert!(said.starts_with("the tokenizer \"bytes\" is not that of the run, in "), "{said}");
    let said = open(&["bpe.tokens"], TokenizerSpec::Bytes).expect_err("another").to_string();
    assert!(said.ends_with("is not that of the run, \"bytes\"; leave data.tokenizer out"), "{said}");
    let none = open(&["a.txt"], TokenizerSpec::OfTokenFiles).expect_err("none").to_string();
    assert_eq!(none, "no source names its tokenizer: only *.tokens files do; give data.tokenizer");
}

/// The tables that pyarrow wrote for the tests of crate `formats`.
fn table(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/formats/src/tests/tables");
    std::fs::read(Path::new(folder).join(name)).expect("a table")
}

#[test]
fn formats_are_recognised_by_content_and_hold_the_same_documents() {
    let folder = Folder::new("formats");
    let texts = |documents: Vec<Document>| documents.into_iter().map(|document| document.text).collect::<Vec<_>>();
    // Names say nothing about the format.
    folder.put("a", &table("zstd-pages-2.parquet"));
    folder.put("b.txt", &table("views-lz4.arrow"));
    folder.put("c.parquet", &table("stream.arrows"));
    let expected = texts(read(&folder.path("a")).expect("a table"));
    assert_eq!((expected.len(), expected[1].as_str()), (54, "row 1 wörter für "));
    let lines: Vec<String> =
        expected.iter().map(|text| serde_json::json!({ "n": 1, "text": text }).to_string()).collect();
    folder.put("d.json", lines.join("\n").as_bytes());
    let compressed = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, bytes).and_then(|()| encoder.finish()).expect("a stream")
    };
    folder.put("e", &compressed(lines.join("\r\n").as_bytes()));
    for name in ["b.txt", "c.parquet", "d.json", "e"] {
        assert_eq!(texts(read(&folder.path(name)).expect(name)), expected, "{name}");
    }
    let row = read(&folder.path("a")).expect("a table").remove(9);
    assert!(row.name.ends_with("a, row 10"), "{}", row.name);
    folder.put("lines.gz", &table("lines.txt.gz"));
    folder.put("lines.zst", &table("lines.txt.zst"));
    assert_eq!(
        texts(read(&folder.path("lines.gz")).expect("text")),
        texts(read(&folder.path("lines.zst")).expect("text"))
    );
    // The first line of a text may have a brace.
    folder.put("brace.txt", b"{not an object}\n{\"text\": 1}");
    assert_eq!(texts(read(&folder.path("brace.txt")).expect("text")).len(), 1);
    folder.put("within.gz", &compressed(&table("plain.parquet")));
    let said = read(&folder.path("within.gz")).expect_err("within").to_string();
    assert!(said.ends_with("within.gz holds a table of parquet; decompress it first"), "{said}");
    folder.put("cut.gz", &table("lines.txt.gz")[..200]);
    let said = read(&folder.path("cut.gz")).expect_err("cut").to_string();
    assert!(said.contains("cut.gz, gzip stream 2, near byte 200: the file ends within compressed data; "), "{said}");
    folder.put("cut.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"b");
    let said = read(&folder.path("cut.jsonl")).expect_err("cut").to_string();
    assert!(said.contains("cut.jsonl:2 (byte 24) is not JSON; "), "{said}");
}

#[test]
fn tokens_of_columns_are_documents_with_the_tokenizer_of_the_run() {
    let folder = Folder::new("token-columns");
    folder.put("a.parquet", &table("prefixes.parquet"));
    folder.put("b.jsonl", b"{\"input_ids\": [1, 2, 3]}\n{\"tokens\": [4]}\n");
    let source = SourceSpec { column: Some("input_ids".into()), ..SourceSpec::of(folder.path("a.parquet")) };
    let spec = DataSpec {
        sources: vec![source, SourceSpec::of(folder.path("b.jsonl"))],
        held_out: 0.0,
        ..data_spec(&[], TokenizerSpec::Bytes)
    };
    let dataset = Dataset::open(&spec).expect("tokens");
    let tokens = dataset.train.ingredients[0].corpus.document_tokens(1).collect::<Vec<_>>();
    assert_eq!(tokens, [62, 69]);
    let lengths: Vec<usize> = dataset.train.ingredients.iter().map(|ingredient| ingredient.corpus.len()).collect();
    assert_eq!(lengths, [110, 4]);
    folder.put("c.jsonl", b"{\"input_ids\": [1, 2, 3]}\n{\"text\": \"a\"}\n");
    let said = data::read(&folder.path("c.jsonl"), None).expect_err("both").to_string();
    assert!(said.ends_with("c.jsonl holds text and tokens; name them as two sources"), "{said}");
    folder.put("d.jsonl", b"{\"input_ids\": [1, -2]}\n");
    let said = data::read(&folder.path("d.jsonl"), None).expect_err("negative").to_string();
    assert!(said.contains("d.jsonl:1 (byte 0) has a field `input_ids` that is not a list of tokens; "), "{said}");
}

#[test]
fn a_column_of_tokens_needs_its_tokenizer() {
    let folder = Folder::new("tokens-alone");
    folder.put("a.jsonl", b"{\"tokens\": [1, 300]}\n{\"tokens\": [4614, 2]}\n{\"tokens\": [5, 4999]}\n");
    folder.put("b.txt", b"the cat sat on the mat, and the rat sat on the cat");
    let (tokens, text) = (folder.path("a.jsonl"), folder.path("b.txt"));
    let rule = "holds tokens, and data.tokenizer = \"bpe:300\" is trained on text; a column of tokens \
                needs data.tokenizer = \"FOLDER/tokenizer.json\", the tokenizer that made it, or \"bytes\"";
    let bpe = TokenizerSpec::Bpe { vocabulary: 300 };
    for sources in [&[tokens.clone()][..], &[text, tokens.clone()]] {
        let said = Dataset::open(&data_spec(sources, bpe.clone())).expect_err("no tokenizer").to_string();
        assert_eq!(said, format!("{} {rule}", tokens.display()));
    }
    let said = data::train(&[SourceSpec::of(&tokens)], OddFiles::Refuse, 300).expect_err("no text").to_string();
    assert_eq!(said, format!("{}:1 {rule}", tokens.display()));
    // The largest token is named as well as the first of the training text, and the vocabulary is the tokenizer's.
    let said = Dataset::open(&data_spec(std::slice::from_ref(&tokens), TokenizerSpec::Bytes)).expect_err("others");
    let said = said.to_string();
    assert!(said.starts_with("token 4614 is token 0 of ") && said.contains("a.jsonl:2: "), "{said}");
    let told = "\"bytes\" has 256 tokens, and the largest one there is 4999; use the tokenizer that made them";
    assert!(said.ends_with(told), "{said}");
}

#[test]
fn patterns_name_files_in_the_order_of_their_paths() {
    let folder = Folder::new("patterns");
    for name in ["b/2.txt", "b/10.txt", "b/c/1.txt", "a/1.txt", "a/1.md", "a/.1.txt", ".h/1.txt"] {
        folder.put(name, name.as_bytes());
    }
    let texts = |pattern: &str| -> Vec<String> {
        let documents = read(&folder.path(pattern)).expect(pattern);
        documents.into_iter().map(|document| document.text).collect()
    };
    assert_eq!(texts("*/*.txt"), ["a/1.txt", "b/10.txt", "b/2.txt"]);
    assert_eq!(texts("**/?.txt"), ["a/1.txt", "b/2.txt", "b/c/1.txt"]);
    let said = read(&folder.path("*.csv")).expect_err("none").to_string();
    assert!(said.ends_with("*.csv matches no file; `*` stands for any characters, `**` for any folders"), "{said}");
}

#[test]
fn all_files_that_cannot_be_read_are_named_at_once() {
    let folder = Folder::new("odd-files");
    folder.put("a.txt", b"words");
    folder.put("b.txt", b"old \xe9 words");
    folder.put("c.arrows", b"not a table");
    folder.put("d.txt", b"more words");
    folder.put("e.txt", b"\xff");
    let said = data::read(&folder.path(""), None).expect_err("odd files").to_string();
    let said = said.replace(&folder.path("").display().to_string(), "");
    assert!(said.starts_with("3 sources cannot be used:"), "{said}");
    for part in ["b.txt is not UTF-8 at byte 4", "c.arrows has the name of a table", "e.txt is not UTF-8 at byte 0"] {
        assert!(said.contains(part), "{said}");
    }
    let tokenizer = Tokenizer::bytes();
    let sources = [SourceSpec::of(folder.path(""))];
    let out = folder.path("o.tokens");
    let tokenized = data::tokenize(&sources, OddFiles::Refuse, &tokenizer, &out, &data::NoListener)
        .expect_err("odd files")
        .to_string();
    assert!(tokenized.starts_with("3 sources cannot be used:"), "{tokenized}");
}

#[test]
fn odd_files_are_reported_and_left_out_where_a_run_asks_for_it() {
    #[derive(Default)]
    struct Heard(std::cell::RefCell<Vec<String>>);
    impl data::Listener for Heard {
        fn skipped(&self, error: &DataError) {
            self.0.borrow_mut().push(error.to_string());
        }
        fn progress(&self, _: data::Progress) {}
    }
    let folder = Folder::new("skipped-files");
    folder.put("a.txt", b"words");
    folder.put("b.txt", b"old \xe9 words");
    folder.put("c.arrows", b"not a table");
    folder.put("d.jsonl", b"{\"text\": \"one\"}\n{\"text\": 2}\n");
    folder.put("e.txt", b"more words");
    let spec =
        DataSpec { odd_files: OddFiles::Skip, held_out: 0.0, ..data_spec(&[folder.path("")], TokenizerSpec::Bytes) };
    let heard = Heard::default();
    let sources = data::Sources::open_with_listener(&spec, &heard).expect("two files");
    assert_eq!(sources.text_bytes(), 15);
    let heard_of = |heard: &Heard| {
        heard
            .0
            .take()
            .into_iter()
            .map(|text| text.replace(&folder.path("").display().to_string(), ""))
            .collect::<Vec<_>>()
    };
    let named = heard_of(&heard);
    assert_eq!(named.len(), 3, "{named:?}");
    for (line, beginning) in named.iter().zip(["b.txt is not UTF-8", "c.arrows has the name", "d.jsonl:2 (byte 16)"]) {
        assert!(line.starts_with(beginning), "{line}");
    }
    let (given, out) = ([SourceSpec::of(folder.path(""))], folder.path("o.tokens"));
    let written = data::tokenize(&given, OddFiles::Skip, &Tokenizer::bytes(), &out, &heard).expect("two files");
    assert_eq!((written.documents, written.tokens), (2, 15));
    assert_eq!(heard_of(&heard), named);
    // A file that is named itself, and a folder of odd ones alone, are refused.
    let alone = DataSpec { odd_files: OddFiles::Skip, ..data_spec(&[folder.path("b.txt")], TokenizerSpec::Bytes) };
    assert!(data::Sources::open(&alone).is_err());
    let odd = DataSpec { odd_files: OddFiles::Skip, ..data_spec(&[folder.path("[bc].*")], TokenizerSpec::Bytes) };
    assert!(data::Sources::open(&odd).is_err());
}
