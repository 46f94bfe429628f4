//! Readers of files that come from elsewhere, under files that are nearly sound: each is read or refused with a
//! message.
//!
//! As plain tests they try a few hundred inputs, the same each time, and every file in `found`.
//! For longer, each target in turn (`tools/fuzz.sh`), or under a fuzzer that looks at what is reached (`cargo bolero`,
//! which brings libFuzzer):
//!
//! ```text
//! tools/fuzz.sh 600
//! BOLERO_RANDOM_ITERATIONS=10000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test -p testkit --test fuzz manifests
//! cargo bolero test --package testkit --test fuzz manifests
//! ```
//!
//! This is a program without other tests, because a target watches the memory of its process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where something fails")]

mod chats;
mod corrupted;
mod folders;
mod records;
mod texts;
mod watched;

use std::path::Path;

use checkpoint::{Checkpoint, TensorReader};
use config::{DataSpec, Files, RunConfig};
use corrupted::Corrupted;
use data::{Corpus, DataError, Document, TokenFile, TokenFileWriter, Tokenizer};
use mesh::Region;
use watched::{INPUTS, Read, Scratch, Target};
use xxhash_rust::xxh3::xxh3_64;

/// Nothing in the file depends on the rest.
fn no_seal(_file: &mut [u8]) {}

/// The files that run files name, without a disk.
struct Named;

impl Files for Named {
    fn vocabulary(&self, _data: &DataSpec) -> Result<usize, String> {
        Ok(300)
    }

    fn text(&self, _path: &Path) -> Result<String, String> {
        Ok(include_str!("../../../../../examples/pp_schedule_file.txt").into())
    }
}

/// The seeds in a folder of the repository whose names end in `ending`.
fn files_in(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(folder);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn run_files() {
    let mut seeds: Vec<Vec<u8>> =
        testkit::run_files::run_files().into_iter().map(|(_, text)| text.into_bytes()).collect();
    seeds.push(RunConfig::quick_start().to_toml().into_bytes());
    let read = |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return Read::Refused };
        let loaded = RunConfig::load_with("run.toml", text, &[], &Named);
        if let Ok((config, _)) = &loaded {
            let written = config.to_toml();
            let again = RunConfig::load_with("run.toml", &written, &[], &Named);
            let again = again.unwrap_or_else(|problems| panic!("{written}\n{problems:?}"));
            assert_eq!(again.0.to_toml(), written, "what is written means the same");
        }
        Read::from(&loaded)
    };
    let target = Target { name: "run_files", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// A checkpoint that an earlier version wrote.
const CHECKPOINT: &str = "crates/training/checkpoint/tests/checkpoints/format_1/step-00000002";

#[test]
fn manifests() {
    let scratch = Scratch::new("manifests");
    for (rank, bytes) in files_in(CHECKPOINT, "safetensors").iter().enumerate() {
        scratch.file(&format!("rank-{rank:05}.safetensors"), bytes);
    }
    let seal = |file: &mut [u8]| {
        if let Some(digits) = file.get_mut(9..25) {
            digits.copy_from_slice(&[b'0'; 16]);
            let hash = format!("{:016x}", xxh3_64(file));
            file[9..25].copy_from_slice(hash.as_bytes());
        }
    };
    let read = |bytes: &[u8]| {
        scratch.file("manifest.json", bytes);
        let opened = Checkpoint::open(scratch.path());
        if let Ok(checkpoint) = &opened {
            checkpoint.verify();
            for (name, tensor) in &checkpoint.manifest().tensors {
                let whole = Region::whole(&tensor.shape);
                let mut values = vec![0.0; whole.len()];
                // A reference to missing bytes is refused.
                let _ = checkpoint.get(name, &whole, &mut values);
            }
        }
        Read::from(&opened)
    };
    let target = Target { name: "manifests", seeds: files_in(CHECKPOINT, "json"), seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// A file of tensors of each type that can be read, and one without elements.
fn tensors() -> Vec<u8> {
    let header = br#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b.weight":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"F16","shape":[1,2,2],"data_offsets":[32,40]},"d":{"dtype":"F32","shape":[0,7],"data_offsets":[40,40]}}"#;
    [&(header.len() as u64).to_le_bytes()[..], header, &[0x3c; 40]].concat()
}

#[test]
fn safetensors_headers() {
    let scratch = Scratch::new("safetensors");
    let seal = |file: &mut [u8]| {
        // The length of the header, which ends with its last brace.
        if let (Some(behind), true) = (file.iter().rposition(|byte| *byte == b'}'), file.len() > 8) {
            let len_bytes = (behind + 1).saturating_sub(8) as u64;
            file[..8].copy_from_slice(&len_bytes.to_le_bytes());
        }
    };
    let read = |bytes: &[u8]| {
        let opened = TensorReader::open(&scratch.file("a.safetensors", bytes));
        if let Ok(reader) = &opened {
            for name in reader.names() {
                let whole = Region::whole(reader.shape(name).unwrap());
                let mut values = vec![0.0; whole.len()];
                reader.get(name, &whole, &mut values).expect("what the header describes is there");
            }
        }
        Read::from(&opened)
    };
    let seeds = [vec![tensors()], files_in(CHECKPOINT, "safetensors")].concat();
    let target = Target { name: "safetensors_headers", seeds, seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

fn trained() -> Tokenizer {
    let text = "a few words, and a few more words, of which some are the same words".repeat(4);
    Tokenizer::train(&[Document { name: "a".into(), text }], 280).unwrap()
}

/// Hashes of the content and of the tokenizer as they belong to it, as far as the file says where these are.
fn seal_tokens(file: &mut [u8]) {
    let number = |at: usize| {
        let bytes = file.get(at..at + 8)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let of_header = || {
        let description = number(16)?.checked_mul(8)?.checked_add(72)?;
        let end = description.checked_add(number(40)?)?;
        (end <= file.len()).then(|| (description..end, end.next_multiple_of(8).min(file.len())))
    };
    let Some((description, front)) = of_header() else { return };
    let identity = xxh3_64(&file[description]);
    file[48..56].copy_from_slice(&identity.to_le_bytes());
    let hashed = [&file[front..], &file[..56], &[0; 8], &file[64..front]].concat();
    file[56..64].copy_from_slice(&xxh3_64(&hashed).to_le_bytes());
}

/// Takes every token of every document, as a run does.
fn use_corpus(corpus: &Corpus, tokenizer: &Tokenizer) {
    let mut row = vec![0; corpus.len()];
    if !row.is_empty() {
        corpus.read(0, &mut row);
    }
    for index in 0..corpus.num_documents() {
        let tokens: Vec<u32> = corpus.document_tokens(index).map(|token| u32::try_from(token).unwrap()).collect();
        // The library may refuse; it may not end the process.
        let _ = tokenizer.decode(&tokens);
    }
}

#[test]
fn token_files() {
    let scratch = Scratch::new("tokens");
    let seed = |tokenizer: &Tokenizer| {
        let path = scratch.path().join("seed.tokens");
        let mut writer = TokenFileWriter::create(&path, tokenizer, 3).unwrap();
        for tokens in [&[1, 2, 3][..], &[], &[200, 40, 99, 255]] {
            writer.push(tokens).unwrap();
        }
        writer.finish().unwrap();
        std::fs::read(path).unwrap()
    };
    let seeds = vec![seed(&Tokenizer::bytes()), seed(&trained())];
    let read = |bytes: &[u8]| {
        let path = scratch.file("a.tokens", bytes);
        let opened: Result<TokenFile, DataError> = TokenFile::open(&path);
        assert!(opened.is_err() || TokenFile::vocabulary(&path).is_ok(), "its header was read");
        if let Ok(file) = &opened {
            use_corpus(&file.corpus, &file.tokenizer);
        }
        Read::from(&opened)
    };
    let target = Target { name: "token_files", seeds, seal: seal_tokens, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// Tokenizers of the other kinds that the library knows, in its own words.
const OTHERS: [&str; 3] = [
    r###"{"version":"1.0","truncation":{"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":0},"padding":{"strategy":{"Fixed":8},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"[PAD]"},"added_tokens":[{"id":0,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[PAD]":0,"[UNK]":1,"a":2,"few":3,"word":4,"##s":5}}}"###,
    r###"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{"type":"Replace","pattern":{"Regex":" +"},"content":"▁"},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},"post_processor":null,"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁a",-1.5],["▁few",-2.0],["w",-3.0],["o",-3.0],["rds",-2.5]],"byte_fallback":false}}"###,
    r###"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|\\w+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"a":{"id":"a","ids":[0],"tokens":["a"]}}},"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2,"w":3,"o":4,"wo":5},"merges":[["a","b"],["w","o"]]}}"###,
];

#[test]
fn tokenizer_files() {
    let scratch = Scratch::new("tokenizers");
    let seeds = [trained().description().unwrap(), Tokenizer::bytes().description().unwrap()].into_iter();
    let seeds = seeds.chain(OTHERS.map(String::from)).map(String::into_bytes).collect();
    let read = |bytes: &[u8]| {
        let opened = Tokenizer::open(&scratch.file("tokenizer.json", bytes));
        if let Ok(tokenizer) = &opened {
            for text in ["", "a few  words", "\n ab\u{e9}\u{1f642}[UNK] <unk>"] {
                // The library may refuse; it may not end the process.
                let Ok(tokens) = tokenizer.encode(text) else { continue };
                assert!(
                    tokens.iter().all(|token| (*token as usize) < tokenizer.vocabulary()),
                    "{tokens:?} of {text:?}"
                );
                let _ = tokenizer.decode(&tokens);
            }
            let _ = tokenizer.decode(&[0, 7, u32::MAX]);
        }
        Read::from(&opened)
    };
    let target = Target { name: "tokenizer_files", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}
