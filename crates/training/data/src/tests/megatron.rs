//! Megatron-LM's pairs, against bytes laid out by hand, and whatever is changed in them.

use crate::tests::folder::Folder;
use data::megatron::{self, MegatronWriter};
use data::{Corpus, DataError};
use proptest::prelude::*;

fn contents(corpus: &Corpus) -> Vec<Vec<i64>> {
    (0..corpus.num_documents()).map(|index| corpus.document_tokens(index).collect()).collect()
}

/// An index as the format's documentation lays it out.
fn index(code: u8, lengths: &[i32], pointers: &[i64], documents: &[i64]) -> Vec<u8> {
    let mut bytes = b"MMIDIDX\x00\x00".to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.push(code);
    bytes.extend((lengths.len() as u64).to_le_bytes());
    bytes.extend((documents.len() as u64).to_le_bytes());
    lengths.iter().for_each(|length| bytes.extend(length.to_le_bytes()));
    pointers.iter().for_each(|pointer| bytes.extend(pointer.to_le_bytes()));
    documents.iter().for_each(|document| bytes.extend(document.to_le_bytes()));
    bytes
}

fn write(folder: &Folder, vocabulary: usize, documents: &[Vec<u32>]) -> Result<Corpus, DataError> {
    let mut writer = MegatronWriter::create(&folder.path("a.bin"), vocabulary)?;
    for document in documents {
        writer.push(document)?;
    }
    writer.finish()?;
    megatron::open(&folder.path("a.idx"))
}

/// The message for the pair `b`, without its path.
fn said(folder: &Folder, index: &[u8], tokens: &[u8]) -> String {
    folder.put("b.idx", index);
    folder.put("b.bin", tokens);
    let error = megatron::open(&folder.path("b.idx")).expect_err("the pair is wrong");
    error.to_string().replace(&folder.path("b").display().to_string(), "b")
}

#[test]
fn what_is_written_is_the_format_byte_for_byte() {
    let folder = Folder::new("megatron-bytes");
    write(&folder, 50_257, &[vec![1, 50_256], vec![], vec![3]]).expect("a pair");
    assert_eq!(folder.get("a.idx"), index(8, &[2, 0, 1], &[0, 4, 4], &[0, 1, 2, 3]));
    assert_eq!(folder.get("a.bin"), [1, 0, 0x50, 0xc4, 3, 0]);
    write(&folder, 65_500, &[vec![1, 65_499]]).expect("a pair");
    assert_eq!(folder.get("a.idx"), index(4, &[2], &[0], &[0, 1]));
    assert_eq!(folder.get("a.bin"), [1, 0, 0, 0, 0xdb, 0xff, 0, 0]);
}

#[test]
fn every_type_of_token_is_read_and_documents_of_several_sequences() {
    let folder = Folder::new("megatron-types");
    let types: [(u8, i64, &[u8]); 6] = [
        (1, 1, &[200, 1, 2]),
        (2, 1, &[100, 1, 2]),
        (3, 2, &[44, 1, 1, 0, 2, 0]),
        (4, 4, &[0, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
        (5, 8, &[0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        (8, 2, &[255, 255, 1, 0, 2, 0]),
    ];
    for ((code, width, tokens), first) in types.into_iter().zip([200, 100, 300, 65_536, 65_536, 65_535]) {
        folder.put("b.idx", &index(code, &[1, 1, 1], &[0, width, 2 * width], &[0, 2, 3]));
        folder.put("b.bin", tokens);
        for name in ["b", "b.bin", "b.idx"] {
            let corpus = megatron::open(&folder.path(name)).expect("a pair");
            assert_eq!(contents(&corpus), [vec![first, 1], vec![2]], "type {code}");
        }
    }
    // The modes of multimodal sequences are skipped.
    folder.put("b.idx", &[index(1, &[1, 1, 1], &[0, 1, 2], &[0, 2, 3]), vec![0; 3]].concat());
    folder.put("b.bin", &[1, 2, 3]);
    assert_eq!(contents(&megatron::open(&folder.path("b")).expect("a pair")), [vec![1, 2], vec![3]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn documents_come_back(
        documents in prop::collection::vec(prop::collection::vec(0u32..100_000, 0..40), 0..12),
        wide in any::<bool>(),
    ) {
        let folder = Folder::new("megatron-random");
        let vocabulary: u32 = if wide { 100_000 } else { 65_499 };
        let documents: Vec<Vec<u32>> =
            documents.into_iter().map(|tokens| tokens.into_iter().map(|token| token % vocabulary).collect()).collect();
        let corpus = write(&folder, vocabulary as usize, &documents).expect("a pair");
        let expected: Vec<Vec<i64>> = documents
            .iter()
            .filter(|document| !document.is_empty())
            .map(|document| document.iter().map(|token| i64::from(*token)).collect())
            .collect();
        prop_assert_eq!(contents(&corpus), expected);
        prop_assert!(corpus.check_vocabulary(vocabulary as usize).is_ok());
    }
}

#[test]
fn a_flipped_bit_of_the_index_is_found_or_changes_no_more_than_a_document() {
    let folder = Folder::new("megatron-flip");
    write(&folder, 300, &[vec![1, 2, 3], vec![4], vec![5, 6]]).expect("a pair");
    let (whole, tokens) = (folder.get("a.idx"), folder.get("a.bin"));
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << bit;
            folder.put("b.idx", &bytes);
            folder.put("b.bin", &tokens);
            // The format has no hash: u16 for i16, or where a document ends, may be changed without a contradiction.
            match megatron::open(&folder.path("b")) {
                Ok(corpus) => {
                    let is_type = place == 17;
                    let is_boundary = place >= 34 + 12 * 3;
                    assert!(is_type || is_boundary, "byte {place}, bit {bit}");
                    assert_eq!(corpus.len(), 6);
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains("b.idx: ") || said.contains("b.bin: "), "byte {place}: {said}");
                    assert!(said.contains("byte"), "byte {place}: {said}");
                }
            }
        }
    }
}

#[test]
fn every_other_length_is_found() {
    let folder = Folder::new("megatron-cut");
    write(&folder, 300, &[vec![1, 2, 3], vec![4], vec![5, 6]]).expect("a pair");
    let (whole, tokens) = (folder.get("a.idx"), folder.get("a.bin"));
    for len in 0..whole.len() {
        let said = said(&folder, &whole[..len], &tokens);
        let expected = if len < 9 { "not an index of Megatron-LM" } else { "it was cut off" };
        assert!(said.starts_with("b.idx: ") && said.contains(expected), "{len} bytes: {said}");
    }
    for (len, document) in [(0, 0), (5, 0), (6, 1), (7, 1), (8, 2), (11, 2)] {
        assert_eq!(
            said(&folder, &whole, &tokens[..len]),
            format!(
                "b.bin: it ends at byte {len} within document {document}, but its .idx announces 12 bytes; it was cut off: write it again"
            )
        );
    }
    assert!(
        said(&folder, &whole, &[&tokens[..], b"xx"].concat())
            .starts_with("b.bin: it has 14 bytes, but its .idx announces 12")
    );
    assert!(
        said(&folder, &[&whole[..], b"x"].concat(), &tokens)
            .starts_with("b.idx: it has 103 bytes, but its header announces 102")
    );
}

#[test]
fn each_contradiction_has_its_message() {
    let folder = Folder::new("megatron-messages");
    let tokens = [1u8, 2, 3];
    let lengths = [2, 1];
    let mut version = index(1, &lengths, &[0, 2], &[0, 1, 2]);
    version[9] = 2;
    for (index, expected) in [
        (version, "b.idx: version 2 at byte 9 is not known; use 1"),
        (
            index(7, &lengths, &[0, 2], &[0, 1, 2]),
            "b.idx: the type 7 of its tokens at byte 17 is not known; use 1, 2, 3, 4, 5 or 8",
        ),
        (
            index(1, &[2, -1], &[0, 2], &[0, 1, 2]),
            "b.idx: document 1: sequence 1 has -1 tokens at byte 38; write it again",
        ),
        (
            index(1, &lengths, &[0, 1], &[0, 1, 2]),
            "b.idx: document 1: sequence 1 begins at byte 1 of the tokens, not at 2 after the one before it, at byte 50; write it again",
        ),
        (
            index(1, &lengths, &[0, 2], &[0, 3, 2]),
            "b.idx: document 1: it begins at sequence 3 of 2, after 0 at byte 66; write it again",
        ),
        (
            index(1, &lengths, &[0, 2], &[0, 1, 1]),
            "b.idx: document 2: the documents end at sequence 1 of 2 at byte 74; write it again",
        ),
        (
            index(1, &lengths, &[0, 2], &[1, 1, 2]),
            "b.idx: document 0: it begins at sequence 1 of 2, after 0 at byte 58; write it again",
        ),
    ] {
        assert_eq!(said(&folder, &index, &tokens), expected);
    }
    folder.put("b.idx", &index(2, &[2, 1], &[0, 2], &[0, 1, 2]));
    folder.put("b.bin", &[1, 2, 0xff]);
    let corpus = megatron::open(&folder.path("b")).expect("a pair");
    let said = corpus.check_vocabulary(100).expect_err("negative").to_string();
    let path = folder.path("b").display().to_string();
    assert_eq!(
        said.replace(&path, "b"),
        "token -1 is token 0 of document 1 of b.bin (byte 2): no vocabulary has negative tokens; write the file again"
    );
    assert!(
        megatron::open(&folder.path("absent.idx"))
            .expect_err("absent")
            .to_string()
            .contains("absent.idx cannot be read: ")
    );
}
