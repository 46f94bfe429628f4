//! The pages of figures: what each one vouches for, and the commands that renew and confirm it.

/// How all figures of a page are made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// A command that writes the page.
    Writes(&'static str),
    /// A command that prints the page.
    Prints(&'static str),
    /// Commands whose figures somebody puts into the page, on the machines that it names.
    ByHand(&'static [&'static str]),
}

/// How a page is confirmed on newer code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Commands that fail unless a sample agrees with the page; each prints `confirmed: ` and its result, or succeeds
    /// in silence.
    Samples(&'static [&'static str]),
    /// A command that prints the page; the text must be the same.
    Prints(&'static str),
}

/// A page of figures. In commands, `{hash}` is the hash of the code and `{seed}` a number that changes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name in commands.
    pub name: &'static str,
    pub path: &'static str,
    /// Files and folders whose code its figures depend on.
    pub files: &'static [&'static str],
    /// The full count.
    pub renewal: Renewal,
    /// The sample.
    pub confirmation: Confirmation,
}

impl Page {
    /// Whether the figures depend on the file at `path`. Files of unit tests do not count.
    pub fn vouches_for_file(&self, path: &str) -> bool {
        !path.ends_with("/tests.rs")
            && !path.contains("/tests/")
            && self.files.iter().any(|entry| Page::covers(entry, path))
    }

    /// Whether `entry`, a file or a folder, is or has the file at `path`.
    pub fn covers(entry: &str, path: &str) -> bool {
        path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The page that commands call `name`.
///
/// # Errors
/// No such page; the message has all names.
pub fn page(name: &str) -> Result<&'static Page, String> {
    let names: Vec<&str> = PAGES.iter().map(|page| page.name).collect();
    let found = PAGES.iter().find(|page| page.name == name);
    found.ok_or_else(|| format!("PAGE must be one of {}; got {name}", names.join(", ")))
}

/// All pages of figures.
pub const PAGES: &[Page] = &[
    Page {
        name: "equality",
        path: "docs/equality.md",
        files: &[
            "crates/mesh/src",
            "crates/config/src",
            "crates/philox/src",
            "crates/device/src",
            "crates/program/src",
            "crates/comm/src",
            "crates/cpu/src",
            "crates/model/src",
            "crates/record/src",
            "crates/data/src",
            "crates/formats/src",
            "crates/train/src",
            "crates/prove/src/class.rs",
            "crates/prove/src/distance.rs",
            "crates/prove/src/runner.rs",
            "crates/prove/src/verdict.rs",
            "crates/testkit/src/layout.rs",
            "crates/testkit/src/models.rs",
            "crates/testkit/src/text.rs",
            "crates/surveys/src/cases.rs",
            "crates/surveys/src/results.rs",
            "crates/surveys/src/survey.rs",
            "crates/surveys/src/bin/equality",
        ],
        renewal: Renewal::Writes(
            "cargo run --release -p surveys --bin equality -- --results target/equality-{hash}.txt --write docs/equality.md",
        ),
        confirmation: Confirmation::Samples(&[
            "cargo run --release -p surveys --bin equality -- --sample 24 --seed {seed}",
        ]),
    },
    Page {
        name: "matrix",
        path: "docs/support-matrix.md",
        files: &[
            "crates/mesh/src",
            "crates/config/src",
            "crates/philox/src",
            "crates/device/src",
            "crates/program/src",
            "crates/comm/src",
            "crates/cpu/src",
            "crates/model/src",
            "crates/record/src",
            "crates/data/src",
            "crates/formats/src",
            "crates/train/src",
            "crates/prove/src/class.rs",
            "crates/prove/src/distance.rs",
            "crates/prove/src/runner.rs",
            "crates/prove/src/verdict.rs",
            "crates/testkit/src/layout.rs",
            "crates/testkit/src/models.rs",
            "crates/testkit/src/numbers.rs",
            "crates/testkit/src/poison.rs",
            "crates/testkit/src/text.rs",
            "crates/surveys/src/arena_use.rs",
            "crates/surveys/src/cases.rs",
            "crates/surveys/src/matrix.rs",
            "crates/surveys/src/matrix",
            "crates/surveys/src/results.rs",
            "crates/surveys/src/bin/matrix",
        ],
        renewal: Renewal::Writes(
            "cargo run --release -p surveys --bin matrix -- --results target/matrix-{hash}.txt --write docs/support-matrix.md",
        ),
        confirmation: Confirmation::Samples(&[
            "cargo run --release -p surveys --bin matrix -- --sample 96 --seed {seed}",
        ]),
    },
    Page {
        name: "reliability",
        path: "docs/reliability.md",
        files: &[
            "crates/mesh/src",
            "crates/checkpoint/src",
            "crates/train/src",
            "crates/prove/src/class.rs",
            "crates/prove/src/promise.rs",
            "crates/testkit/src/faulty_disk.rs",
            "crates/testkit/src/layout.rs",
            "crates/testkit/src/numbers.rs",
            "crates/testkit/src/resumed.rs",
            "crates/surveys/src/reliability.rs",
            "crates/surveys/src/reliability",
            "crates/surveys/src/bin/reliability",
        ],
        renewal: Renewal::Writes("cargo run --release -p surveys --bin reliability -- --write docs/reliability.md"),
        confirmation: Confirmation::Samples(&["cargo run --release -p surveys --bin reliability -- --sample 10"]),
    },
    Page {
        name: "accuracy",
        path: "docs/accuracy.md",
        files: &[
            "crates/mesh/src",
            "crates/config/src",
            "crates/cluster/src",
            "crates/cluster/profiles",
            "crates/cluster/software",
            "crates/device/src",
            "crates/program/src",
            "crates/model/src",
            "crates/record/src",
            "crates/sim/src",
            "crates/plan/src",
            "crates/plan/tables",
            "crates/train/src/setup/step_order.rs",
        ],
        renewal: Renewal::Writes("cargo run --release -p plan --bin accuracy -- --write docs/accuracy.md"),
        confirmation: Confirmation::Samples(&[
            "cargo run --release -p plan --bin accuracy -- --compare docs/accuracy.md",
        ]),
    },
    Page {
        name: "six-models",
        path: "docs/six-models.md",
        files: &[
            "crates/mesh/src",
            "crates/config/src",
            "crates/cluster/src",
            "crates/cluster/profiles",
            "crates/cluster/software",
            "crates/device/src",
            "crates/program/src",
            "crates/model/src",
            "crates/record/src",
            "crates/sim/src",
            "crates/plan/src",
            "crates/train/src/setup/step_order.rs",
            "crates/cli/presets",
            "crates/cli/src/input/presets.rs",
            "crates/cli/src/plan/published_runs.rs",
        ],
        renewal: Renewal::Prints("cargo run --release -p cli -- presets --compare"),
        confirmation: Confirmation::Prints("cargo run --release -p cli -- presets --compare"),
    },
    Page {
        name: "performance",
        path: "docs/performance.md",
        files: &[
            "bench/compare",
            "crates/comm/src",
            "crates/cpu/src",
            "crates/device/src",
            "crates/model/src",
            "crates/record/src",
            "crates/train/src",
        ],
        renewal: Renewal::ByHand(&[
            "python bench/compare/compare.py --venv FOLDER",
            "python bench/compare/compare.py --venv FOLDER --products pairs",
            "python bench/compare/compare.py --venv FOLDER --products pairs --precision bf16",
            "cargo bench -p train --bench ranks",
            "cargo bench -p cpu --bench attention",
            "cargo bench -p train --bench checkpoint",
        ]),
        confirmation: Confirmation::Samples(&[
            "cargo test --release -p surveys --test suite golden::",
            "cargo bench -p cpu --bench gemm -- --with-peer",
        ]),
    },
];
