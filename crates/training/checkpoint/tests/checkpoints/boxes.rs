//! Boxes of one layout out of boxes of another, and no more bytes than they touch.

use checkpoint::{BLOCK_BYTES, Checkpoint, Uncovered, cover};
use mesh::{Region, boxes, copy_runs};
use proptest::prelude::*;

use crate::checkpoints::rig::{Folder, TENSORS, check, region, save, store, value};

/// A shape, cuts of its flat elements (what ranks save), and two numbers that a wanted box is drawn by.
fn saved_and_wanted() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Region)> {
    proptest::collection::vec(1usize..6, 1..4).prop_flat_map(|shape| {
        let len: usize = shape.iter().product();
        let wanted = shape.iter().map(|size| {
            let size = *size;
            (0..size).prop_flat_map(move |start| (Just(start), 1..=size - start))
        });
        let wanted = wanted.collect::<Vec<_>>().prop_map(|dims| {
            let (start, extent) = dims.into_iter().unzip();
            Region { start, extent }
        });
        (Just(shape), proptest::collection::vec(0..=len, 0..5), wanted)
    })
}

proptest! {
    #[test]
    fn shares_are_every_wanted_element_once((shape, mut cuts, wanted) in saved_and_wanted(), gone in any::<prop::sample::Index>()) {
        let whole = Region::whole(&shape);
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let saved: Vec<Region> = cuts.windows(2).flat_map(|cut| boxes(cut[0]..cut[1], &shape)).collect();
        let shares = cover(&saved, &wanted).expect("all was saved");
        let mut found = vec![None; wanted.len()];
        for share in &shares {
            let stored: Vec<usize> = {
                let mut stored = vec![0; saved[share.piece].len()];
                for run in copy_runs(&whole, &saved[share.piece]) {
                    (0..run.len).for_each(|index| stored[run.target + index] = run.source + index);
                }
                stored
            };
            for run in &share.runs {
                for index in 0..run.len {
                    prop_assert_eq!(found[run.target + index].replace(stored[run.source + index]), None);
                }
            }
        }
        for run in copy_runs(&whole, &wanted) {
            for index in 0..run.len {
                prop_assert_eq!(found[run.target + index], Some(run.source + index));
            }
        }
        // Without a box that has a part of it, the wanted box is refused; with one twice, too.
        let used: Vec<usize> = shares.iter().map(|share| share.piece).collect();
        let gone = used[gone.index(used.len())];
        let mut fewer = saved.clone();
        fewer.remove(gone);
        let missing = matches!(cover(&fewer, &wanted), Err(Uncovered::Gap { .. }));
        prop_assert!(missing);
        let twice = [saved.clone(), vec![saved[gone].clone()]].concat();
        let overlaps = matches!(cover(&twice, &wanted), Err(Uncovered::Overlap { .. }));
        prop_assert!(overlaps);
    }
}

#[test]
fn pieces_of_one_layout_are_boxes_of_another() {
    let folder = Folder::new();
    let saved = save(&store(&folder.0).expect("a store"), 3).outcome.expect("saved");
    let checkpoint = Checkpoint::open(&saved.path).expect("a checkpoint");
    check(&checkpoint).expect("sound");
    assert_eq!(checkpoint.state().sequences, 24);
    assert_eq!(checkpoint.manifest().data_bytes(), saved.data_bytes);
    assert_eq!(checkpoint.verify().len(), 0);
    // Every other tool reads the pieces.
    let bytes = std::fs::read(saved.path.join("rank-00001.safetensors")).expect("a file");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let piece = file.tensor("matrix[0:6,5:10]").expect("a piece");
    assert_eq!(piece.shape(), [6, 5]);
    assert_eq!(piece.data()[..4], value("matrix", 3, 5).to_le_bytes());
}

#[test]
fn only_blocks_that_a_box_touches_are_read() {
    let folder = Folder::new();
    let saved = save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
    let read = |name: &str, region: &Region| {
        let checkpoint = Checkpoint::open(&saved.path).expect("a checkpoint");
        let mut values = vec![0.0; region.len()];
        checkpoint.get(name, region, &mut values).expect("read");
        let headers: u64 = checkpoint.manifest().files.iter().map(|file| file.header_bytes).sum();
        (values, checkpoint.bytes_read(), headers)
    };
    let block = BLOCK_BYTES as u64;
    let len = BLOCK_BYTES / 4;
    // One element in the second block of the first piece.
    let (values, bytes, headers) = read("long", &region(&[len], &[1]));
    assert_eq!(values, [value("long", 1, len)]);
    assert!(bytes < block && bytes >= 400_000 * 4 - block, "the rest of the piece's second block: {bytes}");
    // Around the end of the first block: two blocks, which are the piece.
    let (_, bytes, _) = read("long", &region(&[len - 1], &[2]));
    assert!((400_000 * 4..400_000 * 4 + headers).contains(&bytes), "{bytes}");
    // All of it, from both files: each byte of the tensor once, and both headers.
    let (_, bytes, headers) = read("long", &region(&[0], &[600_000]));
    assert_eq!(bytes, 600_000 * 4 + headers);
    // Columns of the second half: the other rank's file is not touched.
    let (values, bytes, _) = read("matrix", &region(&[2, 6], &[2, 3]));
    assert_eq!(values, [26, 27, 28, 36, 37, 38].map(|index| value("matrix", 1, index)));
    assert!(bytes < 2000, "{bytes}");
}

#[test]
fn what_was_not_saved_is_refused_by_name() {
    let folder = Folder::new();
    let saved = save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
    let checkpoint = Checkpoint::open(&saved.path).expect("a checkpoint");
    let error = checkpoint.get("other", &region(&[0], &[1]), &mut [0.0]).expect_err("no such tensor").to_string();
    assert!(error.ends_with("step-00000001 has no tensor other"), "{error}");
    assert_eq!(checkpoint.shape("other"), None);
    assert_eq!(checkpoint.damage(), None, "a tensor of another model is not damage");
    assert_eq!(checkpoint.shape("long"), Some(TENSORS[3].1));
}
