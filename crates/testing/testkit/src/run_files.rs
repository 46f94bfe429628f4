//! Run files of many forms: those of `examples/`, and a small model under other layouts.

use std::fs;
use std::path::Path;

/// Names of layouts, with their keys of `[parallelism]`.
const LAYOUTS: [(&str, &str); 20] = [
    ("dp", "dp = 4\ntp = 1\npp = 1\nzero = 0"),
    ("dp_pp", "dp = 2\ntp = 1\npp = 2\nzero = 0"),
    ("dp_pp_zero1", "dp = 2\ntp = 1\npp = 2\nzero = 1\nstage_layers = [3, 1]"),
    ("dp_pp_zero2_microbatch", "dp = 2\ntp = 1\npp = 2\nzero = 2\nreduce = \"microbatch\""),
    ("dp_tp_pp_zero1", "dp = 2\ntp = 2\npp = 2\nzero = 1"),
    ("dp_tp_pp_zero2", "dp = 2\ntp = 2\npp = 2\nzero = 2"),
    ("dp_tp_pp_zero3", "dp = 2\ntp = 2\npp = 2\nzero = 3"),
    ("dp_tp_zero1", "dp = 2\ntp = 2\npp = 1\nzero = 1"),
    ("dp_tp_zero1_groups", "dp = 4\ntp = 2\npp = 1\nzero = 1\nshard_group = 2"),
    ("dp_tp_zero3", "dp = 2\ntp = 2\npp = 1\nzero = 3\nreshard = \"after-backward\""),
    ("dp_zero1", "dp = 4\ntp = 1\npp = 1\nzero = 1"),
    ("dp_zero3_groups", "dp = 4\ntp = 1\npp = 1\nzero = 3\nshard_group = 2"),
    // The ends compute the embedding and the head as well, so the stage between has more of four layers.
    ("pp", "dp = 1\ntp = 1\npp = 3"),
    ("pp_gpipe", "dp = 1\ntp = 1\npp = 4\nschedule = \"gpipe\"\nrecompute = \"full\""),
    ("pp_zb_auto", "dp = 1\ntp = 1\npp = 4\nschedule = \"zb-auto\"\nschedule_memory_percent = 150"),
    ("pp_zb_h1", "dp = 1\ntp = 1\npp = 3\nschedule = \"zb-h1\""),
    ("pp_zb_h2", "dp = 1\ntp = 1\npp = 3\nschedule = \"zb-h2\""),
    // Both uses of the tied token table are on the first rank.
    ("pp_zb_v", "dp = 1\ntp = 1\npp = 2\nschedule = \"zb-v\""),
    ("tp", "dp = 1\ntp = 3\npp = 1"),
    ("tp_pp", "dp = 1\ntp = 2\npp = 2"),
];

/// Name and text of each run file, by name. Files that they name are found from the root of the repository.
///
/// # Panics
/// Where `examples/` cannot be read.
#[allow(clippy::expect_used, reason = "tests call it, and end where something fails")]
pub fn run_files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let paths = fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").path());
    let examples = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("an example"))
    });
    let mut files: Vec<_> = examples.chain(LAYOUTS.map(|(name, keys)| (name.into(), text(name, keys)))).collect();
    files.sort();
    files
}

fn text(name: &str, keys: &str) -> String {
    format!(
        "[model]\nnum_layers = 4\nhidden = 96\nnum_heads = 6\ncontext = 64\ndropout = 0.1\n\n[parallelism]\n{keys}\n\n\
         [train]\nsteps = 200\nglobal_batch = 16\n\n[run]\nfolder = \"runs/{name}\"\n"
    )
}
