//! Text from files: what is read, in which order, and what is said about files that cannot be.

mod folder;

use config::{DataSpec, Positions, RunConfig, SourceSpec, TokenizerSpec, Visible};
use data::{Batches, Dataset, Order, TokenFileWriter, Tokenizer, read, vocabulary_of};
use folder::Folder;

fn data_spec(sources: &[std::path::PathBuf], tokenizer: TokenizerSpec) -> DataSpec {
    let sources = sources.iter().map(|path| SourceSpec { path: path.clone(), weight: 1.0 }).collect();
    DataSpec { sources, tokenizer, visible: Visible::Past, positions: Positions::Sequence, blanks: None, held_out: 0.1 }
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
        "a.txt holds no text; name a text file, or a folder with text files (*.txt, *.md, *.jsonl or sources)"
    );
    assert_eq!(
        said("a.jsonl", b"{\"text\": \"a\"}\n{\"text\": 3}\n"),
        format!("a.jsonl:2 (byte 14) has a field `text` that is not a string{line}")
    );
    assert_eq!(said("a.jsonl", b"\n{\"txt\": \"a\"}\n"), format!("a.jsonl:2 (byte 1) has no field `text`{line}"));
    assert_eq!(said("a.jsonl", b"[1]"), format!("a.jsonl:1 (byte 0) is not a JSON object{line}"));
    assert_eq!(said("a.jsonl", b"{\"text\": \"a\"} x"), format!("a.jsonl:1 (byte 14) is not JSON{line}"));
    assert!(said("a.jsonl", b"{\"text\": \"\"}\n").starts_with("a.jsonl holds no text"));
    assert!(read(&folder.path("absent")).expect_err("absent").to_string().contains("absent cannot be read: "));
    assert!(read(&folder.path("")).expect_err("no text").to_string().contains("holds no text"));
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
    let batches = Batches::new(dataset.train.clone(), "training", &train, 300, Order::AsWritten);
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
