//! Written tensors are read back by boxes of any layout; an incomplete file never appears.

use std::fs;
use std::path::PathBuf;

use checkpoint::{FileError, TensorEntry, TensorReader, TensorWriter};
use mesh::Region;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-checkpoint-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entries() -> Vec<TensorEntry> {
    let entry = |name: &str, shape: &[usize]| TensorEntry { name: name.into(), shape: shape.to_vec() };
    vec![entry("matrix", &[4, 6]), entry("bias", &[5])]
}

fn region(start: &[usize], extent: &[usize]) -> Region {
    Region { start: start.to_vec(), extent: extent.to_vec() }
}

fn write(writer: &TensorWriter) {
    // Two columns' halves, as tensor parallelism delivers them.
    for half in 0..2 {
        let values: Vec<f32> =
            (0..4).flat_map(|row| (0..3).map(move |col| (row * 6 + half * 3 + col) as f32)).collect();
        writer.put("matrix", &region(&[0, 3 * half], &[4, 3]), &values);
    }
    writer.put("bias", &region(&[0], &[5]), &[0.5, 1.5, 2.5, 3.5, 4.5]);
}

#[test]
fn boxes_of_one_layout_are_boxes_of_another() {
    let folder = Folder::new("boxes");
    let path = folder.0.join("weights.safetensors");
    let writer = TensorWriter::create(&path, &entries()).expect("a file");
    write(&writer);
    assert!(!path.exists(), "the name is taken before the file is whole");
    writer.finish().expect("whole");
    assert_eq!(folder.names(), ["weights.safetensors"]);

    let reader = TensorReader::open(&path).expect("a file");
    assert_eq!(reader.names().collect::<Vec<_>>(), ["bias", "matrix"]);
    assert_eq!(reader.shape("matrix"), Some([4, 6].as_slice()));
    let mut rows = [0.0; 12];
    reader.get("matrix", &region(&[1, 0], &[2, 6]), &mut rows).expect("rows");
    assert_eq!(rows, std::array::from_fn::<f32, 12, _>(|index| 6.0 + index as f32));
    let mut columns = [0.0; 8];
    reader.get("matrix", &region(&[0, 4], &[4, 2]), &mut columns).expect("columns");
    assert_eq!(columns, [4.0, 5.0, 10.0, 11.0, 16.0, 17.0, 22.0, 23.0]);
    // Every other tool reads the same file.
    let bytes = fs::read(&path).expect("bytes");
    let all = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    assert_eq!(all.tensor("bias").expect("bias").data(), bytemuck::cast_slice::<f32, u8>(&[0.5, 1.5, 2.5, 3.5, 4.5]));
}

#[test]
fn what_is_not_whole_leaves_the_old_file() {
    let folder = Folder::new("partial");
    let path = folder.0.join("weights.safetensors");
    fs::write(&path, "old").expect("a file");
    let writer = TensorWriter::create(&path, &entries()).expect("a file");
    writer.put("bias", &region(&[0], &[5]), &[0.0; 5]);
    let error = writer.finish().expect_err("the matrix is missing");
    assert!(error.to_string().contains("0 of 24 elements of matrix"), "{error}");
    let writer = TensorWriter::create(&path, &entries()).expect("a file");
    write(&writer);
    writer.put("other", &region(&[0], &[1]), &[0.0]);
    let error = writer.finish().expect_err("an unknown tensor");
    assert!(error.to_string().contains("without a tensor other"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
    assert_eq!(folder.names(), ["weights.safetensors"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let error = TensorWriter::create(&PathBuf::from("/proc/weights.safetensors"), &entries()).expect_err("no files");
    assert!(matches!(error, FileError::Write { .. }), "{error}");
    assert!(error.to_string().starts_with("/proc/weights.safetensors cannot be written: "), "{error}");
}

#[test]
fn a_file_has_one_writer_and_a_killed_one_leaves_nothing_in_the_way() {
    let folder = Folder::new("writers");
    let path = folder.0.join("weights.safetensors");
    // As a process that was killed leaves it: longer than the file that comes.
    fs::write(folder.0.join(".weights.safetensors.partial"), [7; 5000]).expect("a file");
    let writer = TensorWriter::create(&path, &entries()).expect("a file");
    let error = TensorWriter::create(&path, &entries()).expect_err("it is being written");
    assert!(matches!(error, FileError::Busy { .. }), "{error}");
    write(&writer);
    writer.finish().expect("whole");
    assert_eq!(folder.names(), ["weights.safetensors"]);
    TensorReader::open(&path).expect("a whole file");
    drop(TensorWriter::create(&path, &entries()).expect("a file"));
    assert_eq!(folder.names(), ["weights.safetensors"]);
}

/// No disk has room for this, and no file system that can take room says otherwise.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_is_found_out_before_anything_is_written() {
    let folder = Folder::new("room");
    let path = folder.0.join("weights.safetensors");
    fs::write(&path, "old").expect("a file");
    let huge = TensorEntry { name: "huge".into(), shape: vec![1 << 40, 1 << 18] };
    let error = TensorWriter::create(&path, &[huge]).expect_err("no room");
    assert!(matches!(error, FileError::NoSpace { len_bytes, .. } if len_bytes > 1 << 60), "{error}");
    assert!(error.to_string().ends_with("; nothing under that name was changed"), "{error}");
    assert_eq!(folder.names(), ["weights.safetensors"]);
}

#[test]
fn a_folder_of_that_name_is_told_before_anything_is_written() {
    let folder = Folder::new("folder");
    let error = TensorWriter::create(&folder.0, &entries()).expect_err("a folder");
    assert!(
        error.to_string().contains(" cannot be written: it is a folder, and a file of that name is written here; "),
        "{error}"
    );
}

#[test]
fn files_of_something_else_are_refused() {
    let folder = Folder::new("format");
    let path = folder.0.join("weights.safetensors");
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a file");
        let error = TensorReader::open(&path).expect_err("not safetensors").to_string();
        error.strip_prefix(&format!("{} is not a safetensors file: ", path.display())).expect(&error).to_string()
    };
    assert_eq!(open(b"abc"), "it has 3 bytes");
    assert_eq!(open(&[255; 20]), format!("its first 8 bytes promise a header of {} bytes", u64::MAX));
    let writer = TensorWriter::create(&path, &entries()).expect("a file");
    write(&writer);
    writer.finish().expect("whole");
    let whole = fs::read(&path).expect("bytes");
    let cut = open(&whole[..whole.len() - 4]);
    let data_bytes = whole.len() - 8 - u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let end = "it was cut off; copy or download it again";
    assert_eq!(cut, format!("its header describes {data_bytes} bytes of data, it has {}: {end}", data_bytes - 4));
    // Tensors of which each fits, and all together fill what 64 bits can count.
    let size = (1u64 << 61) - 1;
    let huge = |index: u64| {
        let (start, end) = (index * size, (index + 1) * size);
        format!("\"{index}\":{{\"dtype\":\"U8\",\"shape\":[{size}],\"data_offsets\":[{start},{end}]}}")
    };
    let header = format!("{{{}}}", (0..8).map(huge).collect::<Vec<_>>().join(","));
    let all = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    assert_eq!(open(&all), format!("its header describes {} bytes of data, it has 0: {end}", 8 * size));
    assert!(matches!(TensorReader::open(&folder.0.join("none")), Err(FileError::Read { .. })));
}

/// A tensor-parallel rank with a quarter of the columns reads a quarter of the bytes, and the header.
#[test]
fn a_box_costs_its_own_bytes() {
    let folder = Folder::new("bytes");
    let path = folder.0.join("weights.safetensors");
    let shape = vec![6, 8192];
    let writer =
        TensorWriter::create(&path, &[TensorEntry { name: "wide".into(), shape: shape.clone() }]).expect("a file");
    let values: Vec<f32> = (0..6 * 8192).map(|value| value as f32).collect();
    writer.put("wide", &Region::whole(&shape), &values);
    writer.finish().expect("whole");
    let reader = TensorReader::open(&path).expect("a file");
    let header = reader.read_bytes();
    assert_eq!(header + 6 * 8192 * 4, fs::metadata(&path).expect("a file").len());
    let mut part = vec![0.0; 6 * 2048];
    reader.get("wide", &region(&[0, 2048], &[6, 2048]), &mut part).expect("read");
    assert_eq!((part[0], part[2048]), (2048.0, 8192.0 + 2048.0));
    assert_eq!(reader.read_bytes(), header + 6 * 2048 * 4);
}

/// The same numbers, as they are stored in 16 bits: 1, -2, 65504 and the smallest half above 0.
#[test]
fn narrow_numbers_are_widened() {
    let folder = Folder::new("narrow");
    for (dtype, bits, expected) in [
        ("F16", [0x3c00u16, 0xc000, 0x7bff, 0x0001], [1.0, -2.0, 65504.0, 2.0f32.powi(-24)]),
        ("BF16", [0x3f80, 0xc000, 0x7f7f, 0x0001], [1.0, -2.0, 3.389_531_4e38, f32::from_bits(1 << 16)]),
    ] {
        let path = folder.0.join("narrow.safetensors");
        let header = format!("{{\"x\":{{\"dtype\":\"{dtype}\",\"shape\":[4],\"data_offsets\":[0,8]}}}}");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bits.iter().for_each(|bits| bytes.extend(bits.to_le_bytes()));
        fs::write(&path, bytes).expect("written");
        let mut values = [0.0; 4];
        TensorReader::open(&path).expect("a file").get("x", &region(&[0], &[4]), &mut values).expect("read");
        assert_eq!(values, expected, "{dtype}");
    }
}
