//! Token files: what is written comes back, and whatever is changed in one is found when it is opened.

use crate::tests::folder::Folder;
use data::{Corpus, DataError, Document, FileProblem, TokenFile, TokenFileWriter, Tokenizer, split_tokens};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// A tokenizer with more tokens than two bytes can count.
fn wide() -> Tokenizer {
    let document = Document { name: "a".into(), text: "some text".into() };
    Tokenizer::train(&[document], 70_000).expect("trained")
}

fn write(folder: &Folder, tokenizer: &Tokenizer, documents: &[Vec<u32>]) -> Result<TokenFile, DataError> {
    let path = folder.path("a.tokens");
    let mut writer = TokenFileWriter::create(&path, tokenizer, documents.len())?;
    for document in documents {
        writer.push(document)?;
    }
    writer.finish()?;
    TokenFile::open(&path)
}

fn contents(corpus: &Corpus) -> Vec<Vec<u32>> {
    let documents = 0..corpus.num_documents();
    documents.map(|index| corpus.document_tokens(index).map(|token| token as u32).collect()).collect()
}

/// The message for the file with these bytes, without its path.
fn said(folder: &Folder, bytes: &[u8]) -> String {
    folder.put("b.tokens", bytes);
    let path = folder.path("b.tokens");
    let error = TokenFile::open(&path).expect_err("the file is wrong");
    error.to_string().replace(&path.display().to_string(), "b.tokens")
}

/// The bytes with the hash that belongs to them, as someone would write who means it.
fn with_hash(mut bytes: Vec<u8>) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let front = (72 + 8 * number(16) + number(40)).next_multiple_of(8);
    let mut hashed = bytes[front..].to_vec();
    hashed.extend(&bytes[..56]);
    hashed.extend([0; 8]);
    hashed.extend(&bytes[64..front]);
    bytes[56..64].copy_from_slice(&xxh3_64(&hashed).to_le_bytes());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn documents_come_back(documents in prop::collection::vec(prop::collection::vec(0u32..256, 0..40), 0..12)) {
        let folder = Folder::new("tokens-random");
        let file = write(&folder, &Tokenizer::bytes(), &documents).expect("a file");
        let expected: Vec<Vec<u32>> = documents.into_iter().filter(|document| !document.is_empty()).collect();
        prop_assert_eq!(contents(&file.corpus), expected.clone());
        let row: Vec<u32> = expected.concat();
        prop_assert_eq!(file.corpus.len(), row.len());
        // Any window, whatever documents it touches.
        for (start, end) in [(0, row.len()), (row.len() / 3, row.len() / 2), (row.len() / 2, row.len())] {
            if start < end {
                let mut window = vec![0; end - start];
                file.corpus.read(start, &mut window);
                prop_assert!(window.iter().map(|token| *token as u32).eq(row[start..end].iter().copied()));
            }
        }
        let parts = split_tokens(&file.corpus, 0.25);
        prop_assert_eq!(parts.train.len() + parts.held_out.len(), row.len());
    }
}

#[test]
fn tokens_of_every_width_come_back_with_their_tokenizer() {
    let folder = Folder::new("tokens-width");
    let documents = Document { name: "a".into(), text: "some text, some text".into() };
    let narrow = Tokenizer::train(&[documents], 300).expect("trained");
    for (tokenizer, tokens) in
        [(Tokenizer::bytes(), vec![0, 255]), (narrow, vec![0, 256, 299]), (wide(), vec![69_999, 1])]
    {
        let file = write(&folder, &tokenizer, std::slice::from_ref(&tokens)).expect("a file");
        assert_eq!(contents(&file.corpus), [tokens]);
        assert_eq!(file.tokenizer.vocabulary(), tokenizer.vocabulary());
        assert_eq!(file.tokenizer.identity().expect("JSON"), tokenizer.identity().expect("JSON"));
        assert_eq!(TokenFile::vocabulary(&folder.path("a.tokens")).expect("a header"), tokenizer.vocabulary());
    }
    let files = std::fs::read_dir(folder.path("a.tokens").parent().expect("a folder")).expect("a folder");
    assert_eq!(files.count(), 1, "nothing unfinished is left");
}

#[test]
fn every_flipped_bit_is_found() {
    let folder = Folder::new("tokens-flip");
    write(&folder, &Tokenizer::bytes(), &[vec![1, 2, 3], vec![], vec![4, 5]]).expect("a file");
    let whole = folder.get("a.tokens");
    for index in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[index] ^= 1 << bit;
            let said = said(&folder, &bytes);
            assert!(said.starts_with("b.tokens: ") && said.contains("byte"), "byte {index}: {said}");
        }
    }
}

#[test]
fn every_other_length_is_found() {
    let folder = Folder::new("tokens-cut");
    write(&folder, &Tokenizer::bytes(), &[vec![1, 2, 3], vec![], vec![4, 5]]).expect("a file");
    let whole = folder.get("a.tokens");
    for len in 0..whole.len() {
        let said = said(&folder, &whole[..len]);
        let expected = if len < 8 { "it is not a token file" } else { "it was cut off" };
        assert!(said.starts_with("b.tokens: ") && said.contains(expected), "{len} bytes: {said}");
    }
    // 64 of header, 4 starts, 30 of the tokenizer's description, and 2 up to a multiple of 8.
    assert_eq!(
        said(&folder, &whole[..whole.len() - 1]),
        "b.tokens: it ends at byte 132 within document 2, but its header announces 133 bytes; it was cut off: write it again"
    );
    assert_eq!(
        said(&folder, &[&whole[..], b"more"].concat()),
        "b.tokens: it has 137 bytes, but its header announces 133; the bytes after them belong to no document: write it again"
    );
}

#[test]
fn each_problem_has_its_message() {
    let folder = Folder::new("tokens-messages");
    write(&folder, &Tokenizer::bytes(), &[vec![1, 2, 3], vec![], vec![4, 5]]).expect("a file");
    let whole = folder.get("a.tokens");
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    assert_eq!(
        said(&folder, b"MMIDIDX\0\0"),
        "b.tokens: it begins with [4d, 4d, 49, 44, 49, 44, 58, 00] at byte 0, not with [50, 4c, 45, 41, 43, 48, 54, 4b]: it is \
         not a token file of `pleach data tokenize`; give text another ending than .tokens"
    );
    assert_eq!(said(&folder, &changed(8, &[9])), "b.tokens: version 9 at byte 8 is not known; use 1");
    assert_eq!(
        said(&folder, &changed(12, &[3])),
        "b.tokens: the type 3 of its tokens at byte 12 is not known; use 1, 2 or 4 bytes"
    );
    let hash = said(&folder, &changed(130, &[9]));
    assert!(hash.starts_with("b.tokens: the hash of its content is ") && hash.contains("at byte 56"), "{hash}");
    assert_eq!(
        said(&folder, &with_hash(changed(72, &[9]))),
        "b.tokens: document 1: 9 must be a place among 5 tokens after 0 at byte 72; write it again"
    );
    assert_eq!(
        said(&folder, &with_hash(changed(100, b"X"))),
        "b.tokens: its tokenizer at byte 96: it is not the one that the header names; write it again"
    );
    let few = said(&folder, &with_hash(changed(32, &[0, 0])));
    assert_eq!(few, "b.tokens: its tokenizer at byte 96: it has 256 tokens, but the header says 0; write it again");
    assert_eq!(with_hash(whole.clone()), whole);
}

#[test]
fn a_token_outside_the_vocabulary_is_named_with_document_and_offset() {
    let folder = Folder::new("tokens-outside");
    let document = Document { name: "a".into(), text: "aaaa bbbb".into() };
    let tokenizer = Tokenizer::train(&[document], 1000).expect("trained");
    let error = write(&folder, &tokenizer, &[vec![1], vec![2, 3, 1000]]).expect_err("too large");
    let path = folder.path("a.tokens").display().to_string();
    let said = error.to_string().replace(&path, "a.tokens");
    let at = folder.get("a.tokens").len() - 2;
    assert_eq!(
        said,
        format!(
            "token 1000 is token 2 of document 1 of a.tokens (byte {at}): outside model.vocabulary = 1000; use at least 1001"
        )
    );
}

#[test]
fn a_problem_is_data() {
    let folder = Folder::new("tokens-data");
    folder.put("b.tokens", b"");
    let error = TokenFile::open(&folder.path("b.tokens")).expect_err("empty");
    assert!(matches!(error, DataError::BadFile { problem: FileProblem::Magic { .. }, .. }), "{error}");
    assert!(matches!(TokenFile::open(&folder.path("")).expect_err("a folder"), DataError::Unreadable { .. }));
    let writer = TokenFileWriter::create(&folder.path("no/such/a.tokens"), &Tokenizer::bytes(), 0);
    assert!(matches!(writer.err(), Some(DataError::Unwritable { .. })));
}
