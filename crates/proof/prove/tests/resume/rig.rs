//! Layouts by name, folders, and runs in two parts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{Format, GradientSums, Parallelism, Products, Tied};
use prove::Outcome;
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};
use testkit::numbers::{Numbers, model, training};
use testkit::resumed::{LayoutPart, outcome_of_parts};

/// A folder of a test, removed with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-resume-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The model of the support matrix, under `parallelism`: four steps.
pub fn layout(tied: Tied, format: Format, parallelism: Parallelism) -> Layout {
    Layout {
        model: model(tied),
        parallelism,
        train: training(Numbers::new(format, GradientSums::Single, Products::Chained)),
    }
}

pub fn plain(dp: usize, tp: usize, pp: usize) -> Layout {
    layout(Tied::Yes, Format::Fp32, plain_layout(dp, tp, pp, 1))
}

/// The undisturbed run.
pub fn whole(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).expect("a run")
}

/// `before` until `cut` steps are done, `after` from there to the end.
pub fn in_two(before: &Layout, after: &Layout, cut: u32) -> Outcome {
    let folder = Folder::new();
    let parts = [
        LayoutPart { layout: before.clone(), until: cut },
        LayoutPart { layout: after.clone(), until: after.train.steps },
    ];
    outcome_of_parts(&parts, &proof_text(), &folder.0).expect("a run in parts")
}
