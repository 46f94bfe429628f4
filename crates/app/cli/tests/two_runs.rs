//! `pleach prove` and `pleach diff`: two layouts of one run, run and compared.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use crate::harness::{pleach, stderr, stdout};

/// The keys that all layouts of a test share.
const RUN: &str = "[model]\nnum_layers = 2\nhidden = 16\nnum_heads = 2\ncontext = 8\n\
                   [train]\nsteps = 8\nwarmup_steps = 1\nglobal_batch = 4\nepsilon = 1e-5\n\
                   [data]\ntokenizer = \"bytes\"\n";

/// Run files in a folder that is removed with this.
struct Files {
    folder: PathBuf,
    names: Vec<String>,
}

impl Files {
    /// One file per layout.
    fn new(name: &str, layouts: &[&str]) -> Files {
        let folder: PathBuf = std::env::temp_dir().join(format!("pleach-two-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |(index, layout): (usize, &&str)| {
            let file = folder.join(format!("{index}.toml"));
            std::fs::write(&file, format!("{RUN}[parallelism]\n{layout}\n")).expect("a file");
            file.display().to_string()
        };
        let names = layouts.iter().enumerate().map(write).collect();
        Files { folder, names }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const ONE: &str = "dp = 1\ntp = 1\npp = 1\nzero = 0\nmicrobatch_size = 1";
const STAGES: &str = "dp = 1\ntp = 1\npp = 2\nzero = 0\nmicrobatch_size = 1";
const REPLICAS: &str = "dp = 2\ntp = 1\npp = 1\nzero = 0\nmicrobatch_size = 1";
const HALVES: &str = "dp = 1\ntp = 2\npp = 1\nzero = 0\nmicrobatch_size = 1";

#[test]
fn runs_that_do_not_fit_promise_each_other_nothing() {
    let Files { names: files, .. } = &Files::new("fit", &[ONE, STAGES]);
    let check =
        |bytes: &str| pleach(&["check", &files[0], &files[1], "--set", &format!("run.rank_memory_bytes={bytes}")]);
    assert!(stdout(&check("100000000")).contains("same order"));
    let refused = check("1000");
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    assert!(stderr(&refused).contains("run.rank_memory_bytes = 1000"), "{}", stderr(&refused));
}

#[test]
fn layouts_of_the_same_order_have_the_same_bits() {
    let Files { names: files, .. } = &Files::new("same", &[ONE, STAGES]);
    let proved = pleach(&["prove", &files[0], &files[1]]);
    let said = stdout(&proved);
    assert_eq!(proved.status.code(), Some(0), "{said}{}", stderr(&proved));
    let (line, hash) = said.trim_end().rsplit_once(' ').expect("words");
    assert_eq!(line, format!("{} and {}, 3 steps: same bits, weights xxh3", files[0], files[1]));
    assert!(hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok(), "{hash}");
    let compared = pleach(&["diff", &files[0], &files[1], "--steps", "2"]);
    let expected = format!(
        "{} and {}, 2 steps: no difference; 160 values have the same bits on all ranks that hold them\n",
        files[0], files[1]
    );
    assert_eq!(stdout(&compared), expected, "{}", stderr(&compared));
}

#[test]
fn replicas_with_exact_sums_have_the_bits_of_one() {
    let Files { names: files, .. } = &Files::new("exact", &[ONE, REPLICAS]);
    let proved = |exact: &[&str]| {
        let output = pleach(&[&["prove", &files[0], &files[1], "--json"], exact].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let value: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        (value["class"].clone(), value["same_bits"].clone())
    };
    assert_eq!(proved(&[]), ("other order".into(), false.into()));
    assert_eq!(proved(&["--exact"]), ("any order".into(), true.into()));
    let compared = pleach(&["diff", &files[0], &files[1], "--exact"]);
    assert!(stdout(&compared).contains("no difference"), "{}{}", stdout(&compared), stderr(&compared));
}

#[test]
fn layouts_of_another_order_are_within_the_bounds() {
    let Files { names: files, .. } = &Files::new("other", &[ONE, REPLICAS, HALVES]);
    for (other, class) in [(1, "other order"), (2, "other sums")] {
        let proved = pleach(&["prove", &files[0], &files[other], "--json", "--steps", "2"]);
        assert_eq!(proved.status.code(), Some(0), "{}", stderr(&proved));
        let value: serde_json::Value = serde_json::from_str(&stdout(&proved)).expect("JSON");
        assert_eq!((&value["class"], &value["holds"], &value["steps"]), (&class.into(), &true.into(), &2.into()));
        let gradient = &value["gradient"];
        assert!(gradient["distance"].as_f64() <= gradient["bound"].as_f64(), "{gradient}");
        let weight = &value["weight"];
        assert!(weight["distance"].as_f64() <= weight["bound"].as_f64(), "{weight}");
    }
    let compared = pleach(&["diff", &files[0], &files[2]]);
    let expected = format!(
        "step 1: output of layer 0, forward, sequence 0, token 0, channel 2\n  \
         {}  9.949415e-3 on rank 0 (pp 0, dp 0, tp 0; microbatch 0)\n  \
         {}  9.949416e-3 on rank 0 (pp 0, dp 0, tp 0; microbatch 0), rank 1 (pp 0, dp 0, tp 1; microbatch 0)\n\
         1 last place apart; 143 of 512 elements differ\n",
        files[0], files[2]
    );
    assert_eq!(stdout(&compared), expected, "{}", stderr(&compared));
    let json = pleach(&["diff", &files[0], &files[2], "--json"]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!((&value["differs"], &value["step"]), (&true.into(), &1.into()));
    assert_eq!(value["b"].as_array().map(Vec::len), Some(2));
}

/// A short head decides how far two runs are apart: nothing is compared, and `prove` says which key is the reason.
#[test]
fn norms_of_short_heads_are_named_instead_of_compared() {
    let Files { names: files, .. } = &Files::new("short", &[ONE, HALVES]);
    let short = ["--set", "model.qk_norm=true", "--set", "model.hidden=32", "--set", "model.head_dim=4"];
    let line = |keys: &[&str]| {
        let proved = pleach(&[&["prove", files[0].as_str(), &files[1]], keys].concat());
        assert_eq!(proved.status.code(), Some(0), "{}", stderr(&proved));
        stdout(&proved)
    };
    let said = line(&short);
    let expected = " (no bound): nothing is promised; norms of heads (model.qk_norm) have a bound from model.head_dim = 8 on; \
                    got 4\n";
    assert!(said.ends_with(expected) && said.matches("(no bound)").count() == 3, "{said}");
    let strict = pleach(&[&["prove", files[0].as_str(), &files[1], "--strict"], &short[..]].concat());
    let refused = "--strict: no bound for first gradients and losses and weights\n";
    assert_eq!((strict.status.code(), stderr(&strict).as_str()), (Some(1), refused), "{}", stdout(&strict));
    let bounded = pleach(&["prove", &files[0], &files[1], "--strict"]);
    assert_eq!(bounded.status.code(), Some(0), "{}", stderr(&bounded));
    assert!(line(&[&short[..], &["--set", "model.head_dim=8"]].concat()).ends_with("): the promise holds\n"));
    let narrow =
        "): the promise holds; bounds are derived from model.hidden = 32 on; 16 may exceed them without a fault\n";
    assert!(line(&[]).ends_with(narrow));
}

/// Steps as large as the weights diverge; bounds are derived for runs that do not, and `prove` says so.
#[test]
fn losses_and_weights_have_no_bound_beyond_a_sum_of_learning_rates() {
    let Files { names: files, .. } = &Files::new("broken", &[ONE, HALVES]);
    let diverging = ["--steps", "8", "--set", "train.learning_rate=1", "--set", "train.weight_decay=0"];
    let proved = pleach(&[&["prove", files[0].as_str(), &files[1]], &diverging[..]].concat());
    let text = stdout(&proved);
    assert_eq!(proved.status.code(), Some(0), "{text}{}", stderr(&proved));
    let [_, losses] = text.split(", losses ").collect::<Vec<_>>()[..] else { panic!("{text}") };
    let [loss, weight] = losses.split(" (no bound)").take(2).collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(loss.parse::<f64>().is_ok_and(|loss| loss > 0.0) && weight.starts_with(", weights "), "{text}");
    let limit = "; the learning rates of these steps add up to 5.30e0, and losses and weights have a bound up to 4.00e-2 with \
                 model.hidden = 16, model.num_layers = 2 and model.init_std = 0.02; prove fewer steps, or use a lower \
                 train.learning_rate\n";
    assert!(text.ends_with(limit), "{text}");
}

#[test]
fn state_and_activations_in_memory_of_the_host_change_no_bit() {
    let Files { names: files, .. } = &Files::new("offload", &[ONE, ONE]);
    let other = std::fs::read_to_string(&files[1]).expect("a file");
    let other = other.replace("global_batch = 4", "global_batch = 4\noffload = \"all\"");
    std::fs::write(&files[1], other).expect("a file");
    let proved = pleach(&["prove", &files[0], &files[1]]);
    assert_eq!(proved.status.code(), Some(0), "{}", stderr(&proved));
    assert!(stdout(&proved).contains(", 3 steps: same bits, "), "{}", stdout(&proved));
}

#[test]
fn two_runs_that_are_not_one_are_refused() {
    let Files { names: files, .. } = &Files::new("two", &[ONE, STAGES]);
    let other = std::fs::read_to_string(&files[1]).expect("a file").replace("global_batch = 4", "global_batch = 8");
    std::fs::write(&files[1], other).expect("a file");
    for command in ["prove", "diff"] {
        let refused = pleach(&[command, &files[0], &files[1]]);
        let expected = format!(
            "{} and {} must be layouts of one run; these keys differ:\n  \
             train.global_batch = 4 | 8; --set train.global_batch=VALUE sets both\n",
            files[0], files[1]
        );
        assert_eq!((stderr(&refused), refused.status.code()), (expected, Some(2)));
        let both = pleach(&[command, &files[0], &files[1], "--set", "train.global_batch=8", "--steps", "1"]);
        assert_eq!(both.status.code(), Some(0), "{}", stderr(&both));
    }
    let one = pleach(&["prove", &files[0]]);
    assert_eq!(one.status.code(), Some(2));
    let none = pleach(&["diff", &files[0], &files[1], "--steps", "0"]);
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
}
