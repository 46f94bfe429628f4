//! Manifests: what is written is read, and what does not fit is refused.

use checkpoint::{FORMAT, Hash, LossScaleState, Manifest, ManifestError, RunState};

use crate::checkpoints::rig::{Folder, save, store};

fn manifest() -> Manifest {
    let folder = Folder::new();
    let saved = save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
    checkpoint::Checkpoint::open(&saved.path).expect("a checkpoint").manifest().clone()
}

fn refusal(change: impl FnOnce(&mut Manifest)) -> String {
    let mut manifest = manifest();
    change(&mut manifest);
    Manifest::parse(&manifest.to_bytes().expect("JSON")).expect_err("refused").to_string()
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let loss_scale = Some(LossScaleState { factor: 4_294_967_296.0, finite_steps: 7, tolerated: 1 });
    let state = RunState {
        loss_scale,
        held_out_loss: Some(2.5),
        data_xxh3: Some(Hash(7)),
        spikes: None,
        skipped_steps: 3,
        ..manifest().state
    };
    let manifest = Manifest { state, ..manifest() };
    let bytes = manifest.to_bytes().expect("JSON");
    assert_eq!(Manifest::parse(&bytes), Ok(manifest));
    assert!(bytes.starts_with(b"{\"xxh3\":\"") && bytes.ends_with(b"}\n"));
    assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(), "it is JSON for everyone");
}

#[test]
fn any_other_byte_makes_another_hash() {
    let bytes = manifest().to_bytes().expect("JSON");
    for index in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert!(matches!(Manifest::parse(&changed), Err(ManifestError::Malformed(_))), "byte {index}");
    }
    for len in [0, 8, 24, 100, bytes.len() - 1] {
        assert!(Manifest::parse(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_later_format_is_told_apart_from_damage() {
    let later = Manifest { format: FORMAT + 1, ..manifest() };
    assert_eq!(Manifest::parse(&later.to_bytes().expect("JSON")), Err(ManifestError::Newer(FORMAT + 1)));
}

/// A hash can be right and the rest wrong, if another program wrote it.
#[test]
fn parts_that_do_not_fit_are_refused() {
    let piece = |manifest: &mut Manifest, change: fn(&mut checkpoint::PieceRecord)| {
        change(&mut manifest.tensors.get_mut("bias").expect("a tensor").pieces[0]);
    };
    let cases: [(String, &str); 10] = [
        (refusal(|manifest| manifest.files[0].name = "../run.toml".into()), "is not the name of a file in its folder"),
        (refusal(|manifest| manifest.files[0].name = ".hidden".into()), "is not the name of a file in its folder"),
        (refusal(|manifest| manifest.files[0].bytes += 4), "its pieces end at"),
        (refusal(|manifest| piece(manifest, |piece| piece.offset += 4)), "a piece is at byte"),
        (refusal(|manifest| piece(manifest, |piece| piece.file = 2)), "tensor bias: a piece is in file 2 of 2"),
        (
            refusal(|manifest| piece(manifest, |piece| piece.start = vec![6])),
            "tensor bias: a piece of [3] from [6] on is not in [7]",
        ),
        (refusal(|manifest| piece(manifest, |piece| piece.extent = vec![usize::MAX])), "is not in [7]"),
        (refusal(|manifest| piece(manifest, |piece| piece.xxh3.clear())), "tensor bias: 0 hashes of a piece"),
        (
            refusal(|manifest| manifest.tensors.get_mut("bias").expect("a tensor").dtype = "F64".into()),
            "tensor bias: elements of type F64; use F32",
        ),
        (
            refusal(|manifest| manifest.tensors.get_mut("bias").expect("a tensor").shape = vec![9]),
            "2 of 9 elements of tensor bias are in no piece",
        ),
    ];
    for (refusal, expected) in cases {
        assert!(refusal.contains(expected), "{refusal} lacks: {expected}");
    }
}
