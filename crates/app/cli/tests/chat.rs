//! Runs on conversations: layouts, checkpoints and measurements, with loss on answers only.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::PathBuf;

use crate::harness::{pleach, stderr, stdout};

const TEMPLATE: &str = "{% for message in messages %}<{{ message.role }}>{{ message.content }}</{{ message.role }}>\n\
                        {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/// A folder with conversations of many lengths, their template, and run files of layouts; removed with this.
struct Files {
    folder: PathBuf,
    names: Vec<String>,
}

impl Files {
    fn new(name: &str, layouts: &[&str]) -> Files {
        let folder: PathBuf = std::env::temp_dir().join(format!("pleach-chat-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let line = |index: usize| {
            let answer = "yes ".repeat(1 + (index * 5) % 7);
            let second = format!(
                ", {{\"role\": \"user\", \"content\": \"b{index}\"}}, {{\"role\": \"assistant\", \"content\": \"c\"}}"
            );
            let more = if index.is_multiple_of(3) { second.as_str() } else { "" };
            format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"a{index}\"}}, {{\"role\": \"assistant\", \"content\": \"{answer}\"}}{more}]}}\n"
            )
        };
        fs::write(folder.join("chats.jsonl"), (0..60).map(line).collect::<String>()).expect("a file");
        fs::write(folder.join("it.jinja"), TEMPLATE).expect("a file");
        let run = format!(
            "[model]\nnum_layers = 2\nhidden = 16\nnum_heads = 2\ncontext = 192\n\
             [train]\nsteps = 4\nwarmup_steps = 1\nglobal_batch = 4\nepsilon = 1e-5\n\
             [data]\ntokenizer = \"bytes\"\npath = {:?}\nchat = {{ template = {:?} }}\nheld_out = 0.2\n",
            folder.join("chats.jsonl").display().to_string(),
            folder.join("it.jinja").display().to_string(),
        );
        let write = |(index, layout): (usize, &&str)| {
            let file = folder.join(format!("{index}.toml"));
            fs::write(&file, format!("{run}[parallelism]\n{layout}\n")).expect("a file");
            file.display().to_string()
        };
        let names = layouts.iter().enumerate().map(write).collect();
        Files { folder, names }
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const ONE: &str = "dp = 1\ntp = 1\npp = 1\nzero = 0\nmicrobatch_size = 1";
const STAGES: &str = "dp = 1\ntp = 1\npp = 2\nzero = 0\nmicrobatch_size = 1";
const REPLICAS: &str = "dp = 2\ntp = 1\npp = 1\nzero = 3\nmicrobatch_size = 2";
const HALVES: &str = "dp = 1\ntp = 2\npp = 1\nzero = 0\nmicrobatch_size = 2\nsequence_parallel = true";
const SHARED: &str = "dp = 1\ncp = 2\ntp = 1\npp = 2\nzero = 0\nmicrobatch_size = 1";

/// The mean is over the learned tokens of a batch, however these are spread over replicas and microbatches.
#[test]
fn layouts_keep_their_promise_on_conversations() {
    let files = Files::new("layouts", &[ONE, STAGES, REPLICAS, HALVES, SHARED]);
    let proved = |other: usize, sets: &[&str]| {
        let output = pleach(&[&["prove", &files.names[0], &files.names[other]], sets].concat());
        assert_eq!(output.status.code(), Some(0), "{other}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    assert!(proved(1, &[]).contains("same bits"));
    assert!(proved(2, &["--set", "train.sums=exact"]).contains("same bits"));
    for other in [2, 3, 4] {
        proved(other, &[]);
    }
}

#[test]
fn a_run_on_conversations_resumes_with_its_bits_and_is_measured_by_answers() {
    let files = Files::new("resume", &[STAGES]);
    let train = |run: &str, sets: &[&str]| {
        let folder = format!("run.folder={:?}", files.at(run));
        let output = pleach(&[&["train", &files.names[0], "--set", &folder], sets].concat());
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    let said = train("whole", &["--set", "train.steps=6"]);
    assert!(said.contains(" nats per token of an answer, "), "{said}");
    assert!(!said.contains("bits per byte") && !said.contains("sample"), "{said}");
    // The schedule of six steps, ended after four.
    train("parts", &["--set", "train.steps=6", "--set", "run.save_every=4"]);
    let newest = files.folder.join("parts/checkpoints");
    let kept = |path: &PathBuf| fs::read_dir(path).expect("a folder").count();
    assert!(kept(&newest) > 1, "a checkpoint of step 4 and one of step 6");
    for entry in fs::read_dir(&newest).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with('6')) {
            fs::remove_dir_all(path).expect("removed");
        }
    }
    let resumed = pleach(&["train", "--resume", &files.at("parts")]);
    assert_eq!(resumed.status.code(), Some(0), "{}{}", stdout(&resumed), stderr(&resumed));
    let weights = |run: &str| fs::read(files.folder.join(run).join("weights.safetensors")).expect("weights");
    assert!(weights("whole") == weights("parts"), "the bits of an uninterrupted run");
    let evaluated = pleach(&["eval", "--from", &files.at("whole")]);
    assert!(stdout(&evaluated).contains(" nats per token of an answer, over "), "{}", stderr(&evaluated));
    // Other answers are other data.
    fs::write(files.folder.join("it.jinja"), TEMPLATE.replace("</{{ message.role }}>", "")).expect("a file");
    let other = pleach(&["train", "--resume", &files.at("parts"), "--set", "train.steps=8"]);
    assert_eq!(other.status.code(), Some(2), "{}", stdout(&other));
}
