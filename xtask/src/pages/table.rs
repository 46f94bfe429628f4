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
            "crates/step/mesh/src",
            "crates/step/config/src",
            "crates/base/philox/src",
            "crates/step/device/src",
            "crates/step/program/src",
            "crates/network/comm/src",
            "crates/kernels/cpu/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/training/data/src",
            "crates/base/formats/src",
            "crates/training/train/src",
            "crates/proof/prove/src/class.rs",
            "crates/proof/prove/src/distance.rs",
            "crates/proof/prove/src/runner.rs",
            "crates/proof/prove/src/verdict.rs",
            "crates/testing/testkit/src/layout.rs",
            "crates/testing/testkit/src/models.rs",
            "crates/testing/testkit/src/numbers.rs",
            "crates/testing/testkit/src/poison.rs",
            "crates/testing/testkit/src/text.rs",
            "crates/testing/surveys/src/arena_use.rs",
            "crates/testing/surveys/src/drawers.rs",
            "crates/testing/surveys/src/kept.rs",
            "crates/testing/surveys/src/page.rs",
            "crates/testing/surveys/src/results.rs",
            "crates/testing/surveys/src/space.rs",
            "crates/testing/surveys/src/space",
            "crates/testing/surveys/src/survey.rs",
            "crates/testing/surveys/src/programs/equality.rs",
            "crates/testing/surveys/src/programs/equality",
        ],
        renewal: Renewal::Writes(
            "cargo run --release -p surveys -- equality --results target/equality-{hash}.txt --write docs/equality.md",
        ),
        confirmation: Confirmation::Samples(&["cargo run --release -p surveys -- equality --sample 24 --seed {seed}"]),
    },
    Page {
        name: "matrix",
        path: "docs/support-matrix.md",
        files: &[
            "crates/step/mesh/src",
            "crates/step/config/src",
            "crates/base/philox/src",
            "crates/step/device/src",
            "crates/step/program/src",
            "crates/network/comm/src",
            "crates/kernels/cpu/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/training/data/src",
            "crates/base/formats/src",
            "crates/training/train/src",
            "crates/proof/prove/src/class.rs",
            "crates/proof/prove/src/distance.rs",
            "crates/proof/prove/src/runner.rs",
            "crates/proof/prove/src/verdict.rs",
            "crates/testing/testkit/src/layout.rs",
            "crates/testing/testkit/src/models.rs",
            "crates/testing/testkit/src/numbers.rs",
            "crates/testing/testkit/src/poison.rs",
            "crates/testing/testkit/src/text.rs",
            "crates/testing/surveys/src/arena_use.rs",
            "crates/testing/surveys/src/drawers.rs",
            "crates/testing/surveys/src/kept.rs",
            "crates/testing/surveys/src/page.rs",
            "crates/testing/surveys/src/results.rs",
            "crates/testing/surveys/src/space.rs",
            "crates/testing/surveys/src/space",
            "crates/testing/surveys/src/survey.rs",
            "crates/testing/surveys/src/programs/matrix.rs",
            "crates/testing/surveys/src/programs/matrix",
        ],
        renewal: Renewal::Writes(
            "cargo run --release -p surveys -- matrix --results target/matrix-{hash}.txt --write docs/support-matrix.md",
        ),
        confirmation: Confirmation::Samples(&["cargo run --release -p surveys -- matrix --sample 96 --seed {seed}"]),
    },
    Page {
        name: "reliability",
        path: "docs/reliability.md",
        files: &[
            "crates/step/mesh/src",
            "crates/training/checkpoint/src",
            "crates/training/train/src",
            "crates/proof/prove/src/class.rs",
            "crates/proof/prove/src/promise.rs",
            "crates/testing/testkit/src/faulty_disk.rs",
            "crates/testing/testkit/src/layout.rs",
            "crates/testing/testkit/src/numbers.rs",
            "crates/testing/testkit/src/resumed.rs",
            "crates/testing/surveys/src/kept.rs",
            "crates/testing/surveys/src/reliability.rs",
            "crates/testing/surveys/src/reliability",
            "crates/testing/surveys/src/space.rs",
            "crates/testing/surveys/src/space",
            "crates/testing/surveys/src/programs/reliability.rs",
        ],
        renewal: Renewal::Writes("cargo run --release -p surveys -- reliability --write docs/reliability.md"),
        confirmation: Confirmation::Samples(&["cargo run --release -p surveys -- reliability --sample 10"]),
    },
    Page {
        name: "experts",
        path: "docs/experts.md",
        files: &[
            "crates/step/mesh/src",
            "crates/step/config/src",
            "crates/base/philox/src",
            "crates/step/device/src",
            "crates/step/program/src",
            "crates/network/comm/src",
            "crates/kernels/cpu/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/training/data/src",
            "crates/base/formats/src",
            "crates/training/train/src",
            "crates/proof/prove/src",
            "crates/testing/testkit/src/intercepted.rs",
            "crates/testing/testkit/src/layout.rs",
            "crates/testing/testkit/src/models.rs",
            "crates/testing/testkit/src/text.rs",
            "crates/testing/testkit/src/wrapped_engine.rs",
            "crates/testing/surveys/src/kept.rs",
            "crates/testing/surveys/src/random_choices.rs",
            "crates/testing/surveys/src/expert_pairs",
            "crates/testing/surveys/src/space/form.rs",
            "crates/testing/surveys/src/space/schedule.rs",
            "crates/testing/surveys/src/space/sharing.rs",
            "crates/testing/surveys/src/programs/expert_pairs.rs",
        ],
        renewal: Renewal::Writes(
            "cargo run --release -p surveys -- expert-pairs --results target/expert-pairs-{hash}.txt --write docs/experts.md",
        ),
        confirmation: Confirmation::Samples(&[
            "cargo run --release -p surveys -- expert-pairs --sample 60 --seed {seed}",
        ]),
    },
    Page {
        name: "accuracy",
        path: "docs/accuracy.md",
        files: &[
            "crates/step/mesh/src",
            "crates/step/config/src",
            "crates/planning/cluster/src",
            "crates/planning/cluster/profiles",
            "crates/planning/cluster/software",
            "crates/step/device/src",
            "crates/step/program/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/planning/sim/src",
            "crates/planning/plan/src",
            "crates/planning/plan/tables",
            "crates/testing/surveys/src/accuracy.rs",
            "crates/testing/surveys/src/accuracy",
            "crates/testing/surveys/src/resident.rs",
            "crates/testing/surveys/src/this_machine.rs",
            "crates/testing/surveys/src/this_machine",
            "crates/testing/surveys/src/programs/accuracy.rs",
            "crates/testing/surveys/src/programs/accuracy",
            "crates/training/train/src/setup/step_order.rs",
        ],
        renewal: Renewal::Writes("cargo run --release -p surveys -- accuracy --write docs/accuracy.md"),
        confirmation: Confirmation::Samples(&["cargo run --release -p surveys -- accuracy --compare docs/accuracy.md"]),
    },
    Page {
        name: "six-models",
        path: "docs/six-models.md",
        files: &[
            "crates/step/mesh/src",
            "crates/step/config/src",
            "crates/planning/cluster/src",
            "crates/planning/cluster/profiles",
            "crates/planning/cluster/software",
            "crates/step/device/src",
            "crates/step/program/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/planning/sim/src",
            "crates/planning/plan/src",
            "crates/training/train/src/setup/step_order.rs",
            "crates/app/run/presets",
            "crates/app/run/src/presets.rs",
            "crates/app/cli/src/plan/published_runs.rs",
        ],
        renewal: Renewal::Prints("cargo run --release -p cli -- presets --compare"),
        confirmation: Confirmation::Prints("cargo run --release -p cli -- presets --compare"),
    },
    Page {
        name: "performance",
        path: "docs/performance.md",
        files: &[
            "bench/compare",
            "crates/network/comm/src",
            "crates/kernels/cpu/src",
            "crates/step/device/src",
            "crates/step/model/src",
            "crates/training/record/src",
            "crates/training/train/src",
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
