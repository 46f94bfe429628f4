//! Bits that flip, files that are cut, missing or another's: found, and named by file and tensor.

use std::fs;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, CheckpointError};
use philox::philox4x32_10;

use crate::checkpoints::rig::{Folder, check, save, store};

/// A checkpoint after one step and one after two.
fn two() -> (Folder, [PathBuf; 2]) {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let paths = [1, 2].map(|steps| save(&store, steps).outcome.expect("saved").path);
    (folder, paths)
}

fn load(path: &Path) -> Result<(), CheckpointError> {
    check(&Checkpoint::open(path)?)
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// R4: every bit is in a hash. A flipped one is found by whoever loads, and named with its file and tensor.
#[test]
fn a_flipped_bit_is_found() {
    let (_folder, [_, path]) = two();
    let files = files(&path);
    let manifest = Checkpoint::open(&path).expect("sound").manifest().clone();
    for number in 0..60u32 {
        let [which, place, bit, _] = philox4x32_10([number, 0, 0, 0], [4, 0]);
        let file = &files[which as usize % files.len()];
        let sound = fs::read(file).expect("a file");
        let at = place as usize % sound.len();
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (bit % 8);
        fs::write(file, &bytes).expect("written");
        let error = load(&path).expect_err("a flipped bit");
        assert!(error.is_damage(), "{error}");
        let told = error.to_string();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(name), "byte {at} of {name}: {told}");
        if let Some(index) = manifest.files.iter().position(|file| file.name == name) {
            let pieces = &manifest.pieces_of_files()[index];
            let of_tensor = pieces.iter().rfind(|(_, piece)| piece.offset <= at as u64);
            let expected = of_tensor.map_or("its header".into(), |(tensor, _)| format!("of tensor {tensor}, "));
            assert!(told.contains(&expected), "byte {at} of {name}: {told} lacks {expected}");
        }
        fs::write(file, &sound).expect("written");
    }
    load(&path).expect("sound again");
}

/// R5: files that are cut, gone, exchanged, or of another step.
#[test]
fn a_file_that_is_not_its_own_is_found() {
    let (_folder, [before, path]) = two();
    let [first, second] = ["rank-00000.safetensors", "rank-00001.safetensors"].map(|name| path.join(name));
    let sound = [&first, &second].map(|file| fs::read(file).expect("a file"));
    let refused = |expected: &str| {
        let error = load(&path).expect_err("damage");
        assert!(error.is_damage() && error.to_string().contains(expected), "{error} lacks: {expected}");
        for (file, bytes) in [&first, &second].into_iter().zip(&sound) {
            fs::write(file, bytes).expect("written");
        }
    };
    fs::write(&first, &sound[0][..sound[0].len() - 1]).expect("written");
    refused(&format!("rank-00000.safetensors has {} bytes where {} were written", sound[0].len() - 1, sound[0].len()));
    fs::remove_file(&second).expect("removed");
    refused("rank-00001.safetensors cannot be read: ");
    fs::write(&first, &sound[1]).expect("written");
    fs::write(&second, &sound[0]).expect("written");
    refused("rank-00000.safetensors has ");
    fs::copy(before.join("rank-00000.safetensors"), &first).expect("copied");
    refused("rank-00000.safetensors: bytes ");
    load(&path).expect("sound again");
    fs::copy(before.join("manifest.json"), path.join("manifest.json")).expect("copied");
    refused("it is of step 1, and its folder has the name of step 2");
}

/// Files of the same length, exchanged: the header says whose they are.
#[test]
fn files_of_one_length_cannot_be_exchanged() {
    let (_folder, [_, path]) = two();
    let file = path.join("rank-00001.safetensors");
    let mut bytes = fs::read(&file).expect("a file");
    let place = bytes.windows(4).position(|four| four == b"5:10").expect("a piece's name");
    bytes[place] = b'4';
    fs::write(&file, &bytes).expect("written");
    let checkpoint = Checkpoint::open(&path).expect("its length is right");
    let error = check(&checkpoint).expect_err("another header");
    assert!(error.to_string().contains("rank-00001.safetensors: its header, the first "), "{error}");
    assert_eq!(checkpoint.damage(), Some(error.to_string().as_str()));
    assert_eq!(checkpoint.verify().len(), 1);
}
