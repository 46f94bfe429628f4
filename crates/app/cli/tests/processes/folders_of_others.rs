//! Folders of other people: their run files run no command, listen nowhere, send nothing and write nowhere else. Those
//! of the user keep all of it.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use checkpoint::Manifest;
use config::KeptRunFile;

use crate::harness::several::{Folder, processes_of, succeeds, with_keys};
use crate::harness::{caches, stderr, stdout};
use crate::processes::launch::kill;
use crate::processes::stores::server::Server;
use crate::processes::wait::wait;

/// One rank, whose steps take a moment.
const SMALL: &[&str] =
    &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1", "model.num_layers=1", "run.save_every=1"];

/// The command with the home folder `home`, or with none.
pub fn pleach_of(home: Option<&Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments).env_remove("HOME").env("XDG_CACHE_HOME", caches()).stdin(Stdio::null());
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
    home.map(|home| command.env("HOME", home));
    command
}

fn output(home: Option<&Path>, arguments: &[&str]) -> Output {
    pleach_of(home, arguments).output().expect("pleach")
}

/// The home of a user, in the folder of the test.
pub fn home(folder: &Folder, name: &str) -> PathBuf {
    let home = folder.0.join(name);
    fs::create_dir_all(&home).expect("a folder");
    home
}

/// All that a command said.
pub fn said(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

/// Trains the run `run` of `folder` for two steps, with these keys more.
fn train(home: Option<&Path>, folder: &Folder, run: &str, keys: &[&str]) -> Output {
    let run = folder.run(run);
    let keys = [SMALL, &["train.steps=2", run.as_str()], keys].concat();
    let output = output(home, &with_keys(&["train"], &keys));
    succeeds(&output);
    output
}

fn resume(home: Option<&Path>, run: &str, more: &[&str]) -> Output {
    let set = ["train", "--resume", run, "--set", "train.steps=4"];
    output(home, &[&set[..], more].concat())
}

/// Replaces `old` by `new` in the run file of a manifest, and seals it again: anyone can.
pub fn edit_manifest(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    let mut manifest = Manifest::parse(bytes).expect("a manifest");
    let text = manifest.state.run.to_text();
    assert!(text.contains(old), "{text}");
    manifest.state.run = KeptRunFile::new(text.replacen(old, new, 1));
    manifest.to_bytes().expect("JSON")
}

/// The same in the run file of a folder and of its checkpoint after two steps.
fn edit(run: &str, old: &str, new: &str) {
    let path = Path::new(run).join("run.toml");
    let text = fs::read_to_string(&path).expect("a run file");
    fs::write(&path, text.replacen(old, new, 1)).expect("a run file");
    let path = Path::new(run).join("checkpoints/step-00000002/manifest.json");
    let bytes = edit_manifest(&fs::read(&path).expect("a manifest"), old, new);
    fs::write(&path, bytes).expect("a manifest");
}

/// Things that a stranger would have happen, and that do not.
struct Traps {
    folder: PathBuf,
    /// Nothing else may listen at its port, and nothing may connect.
    listener: TcpListener,
}

impl Traps {
    fn new(folder: &Folder) -> Traps {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        Traps { folder: folder.0.join("traps"), listener }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }

    /// The server of stores for commands.
    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Puts a key of each kind that acts into the run file of `run`, which has the folder `own`.
    fn set(&self, run: &str, own: &str) {
        let (command, elsewhere) = (format!("mkdir -p {}", self.path("command")), self.path("elsewhere/.ssh"));
        let more = format!(
            "[run]\nnotify = \"{command}\"\nmetrics_address = \"{}\"\nstore = \"s3://bucket/a\"\nstore_seconds = 1.0\n",
            self.port()
        );
        edit(run, "[run]\n", &more);
        edit(run, &format!("folder = \"{own}\""), &format!("folder = \"{elsewhere}\""));
        edit(run, "[data]\n", &format!("[data]\ncache = \"{}\"\n", self.path("cache")));
    }

    #[track_caller]
    fn assert_untouched(&self, by: &Output) {
        let text = said(by);
        assert!(!self.folder.exists(), "a trap was touched: {text}");
        let connected = self.listener.accept().expect_err(&format!("a connection: {text}"));
        assert_eq!(connected.kind(), ErrorKind::WouldBlock, "{text}");
        assert!(!text.contains("mkdir"), "the value of a key may have a secret: {text}");
    }
}

const REASONS: [&str; 3] = [
    "no code shows that you wrote it",
    "its code is not yours, so someone else wrote it, or changed it",
    "its code cannot be compared: ",
];

#[track_caller]
fn assert_left_out(by: &Output, keys: &[&str], reason: &str) {
    for key in keys {
        let line = said(by).lines().find(|line| line.starts_with(&format!("{key} of "))).map(str::to_string);
        let line = line.unwrap_or_else(|| panic!("{key} is not named: {}", said(by)));
        assert!(line.contains(&format!(" is left out: {reason}")), "{line}");
        assert!(line.ends_with(&format!("; to have it, use --set {key}=...")), "{line}");
    }
}

#[test]
fn a_strangers_checkpoint_trains_and_does_nothing_else() {
    let folder = Folder::new("stranger");
    let (home, run, traps) = (home(&folder, "home"), folder.path("run"), Traps::new(&folder));
    train(Some(&home), &folder, "run", &[]);
    traps.set(&run, &run);
    let resumed = pleach_of(Some(&home), &["train", "--resume", &run, "--set", "train.steps=4"])
        .env("AWS_ENDPOINT_URL", traps.endpoint())
        .output()
        .expect("pleach");
    succeeds(&resumed);
    traps.assert_untouched(&resumed);
    assert_left_out(&resumed, &["run.notify", "run.metrics_address", "run.store", "data.cache"], REASONS[0]);
    assert!(!said(&resumed).contains("run.folder"), "a run resumes in the folder that was named: {}", said(&resumed));
    let kept = fs::read_to_string(format!("{run}/run.toml")).expect("a run file");
    assert!(kept.contains(&format!("folder = \"{run}\"")), "{kept}");
    assert!(
        !["notify", "metrics_address", "store", "cache"].iter().any(|key| kept.contains(&format!("\n{key} = "))),
        "{kept}"
    );
    // From then on it is the user's, with the keys that the user sets.
    let heard = folder.path("heard");
    let notify = format!("run.notify=echo $PLEACH_EVENT >> {heard}");
    succeeds(&output(Some(&home), &["train", "--resume", &run, "--set", "train.steps=5", "--set", &notify]));
    let again = output(Some(&home), &["train", "--resume", &run, "--set", "train.steps=6"]);
    succeeds(&again);
    assert!(!said(&again).contains("left out"), "{}", said(&again));
    assert_eq!(fs::read_to_string(&heard).expect("heard").lines().filter(|line| *line == "started").count(), 2);
}

#[test]
fn commands_that_read_a_strangers_folder_do_nothing_else() {
    let folder = Folder::new("readers");
    let (home, run, traps) = (home(&folder, "home"), folder.path("run"), Traps::new(&folder));
    train(Some(&home), &folder, "run", &[]);
    traps.set(&run, &run);
    // The only key of a folder that one of these commands uses: an author who is believed has a request sent.
    let address = format!("http://127.0.0.1:{}/text.txt", traps.port());
    edit(&run, "[data]\n", &format!("[data]\npath = \"{address}\"\n"));
    let (tokens, checkpoint) = (folder.path("tokens.json"), format!("{run}/checkpoints/step-00000002"));
    fs::write(&tokens, "{\"input_ids\": [[1, 2, 3, 4]], \"labels\": [[2, 3, 4, 5]]}").expect("a file");
    let (exported, logits, new) = (folder.path("exported"), folder.path("logits.safetensors"), folder.run("new"));
    let keys = ["train.steps=1", "train.sequence_length=16", "train.global_batch=2", &new];
    let keys = [&SMALL[..3], &keys].concat();
    let from: Vec<&str> = keys.iter().flat_map(|key| ["--set", key]).collect();
    let commands: Vec<Vec<&str>> = vec![
        vec!["eval", "--from", &run],
        vec!["eval", "--from", &checkpoint],
        vec!["generate", "--from", &run, "--prompt", "a", "--max-tokens", "1"],
        vec!["forward", "--from", &run, "--tokens", &tokens, "--out", &logits],
        vec!["export", &run, "--out", &exported],
        vec!["report", &run],
        vec!["inspect", &run, "--verify"],
        vec!["blame", &run],
        [&["check", "--from", &run][..], &from].concat(),
        [&["train", "--from", &run][..], &from].concat(),
    ];
    for words in commands {
        let mut command = pleach_of(Some(&home), &words);
        let ended = command.env("AWS_ENDPOINT_URL", traps.endpoint()).output().expect("pleach");
        // Without a failure there is nothing to blame; a small model may not have a form to export; the text of the
        // folder is at an address.
        let is_refusable = ["blame", "export", "eval"].contains(&words[0]);
        let is_asked_for = !said(&ended).contains(&format!("no request is sent to {address}"));
        assert!(words[0] != "eval" || !is_asked_for, "{words:?}: {}", said(&ended));
        assert!(ended.status.success() || is_refusable, "{words:?}: {}", said(&ended));
        traps.assert_untouched(&ended);
    }
    // A page has a name in the folder, which may be a link.
    let (page, target) = (format!("{run}/report.html"), folder.path("target"));
    fs::remove_file(&page).expect("a page");
    fs::write(&target, "something of the user").expect("a file");
    std::os::unix::fs::symlink(&target, &page).expect("a link");
    let refused = output(Some(&home), &["report", &run]);
    let expected = format!("{page} is a link; remove it, or use --out FILE.html for a page elsewhere\n");
    assert!(refused.status.code() == Some(2) && said(&refused).ends_with(&expected), "{}", said(&refused));
    assert_eq!(fs::read_to_string(&target).expect("a file"), "something of the user");
}

#[test]
fn text_at_an_address_of_a_stranger_is_not_asked_for() {
    let folder = Folder::new("address");
    let (home, run, traps) = (home(&folder, "home"), folder.path("run"), Traps::new(&folder));
    let text = folder.path("text.txt");
    fs::write(&text, "the same words again and again, ".repeat(200)).expect("a text");
    train(Some(&home), &folder, "run", &[&format!("data.path={text}")]);
    let address = format!("http://127.0.0.1:{}/text.txt", traps.port());
    edit(&run, &format!("path = \"{text}\""), &format!("path = \"{address}\""));
    for refused in [resume(Some(&home), &run, &[]), output(Some(&home), &["eval", "--from", &run])] {
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        let expected = format!(
            "no request is sent to {address}, which [data] of a run file names that nothing shows to be \
                                yours; to read it, use --data {address}, or set the key of [data] that names it by --set\n"
        );
        assert!(said(&refused).ends_with(&expected), "{}", said(&refused));
        traps.assert_untouched(&refused);
    }
    let generated = output(Some(&home), &["generate", "--from", &run, "--prompt", "a", "--max-tokens", "1"]);
    succeeds(&generated);
    traps.assert_untouched(&generated);
    // The user may ask for it, and may name a file instead.
    let asked = output(Some(&home), &["eval", "--from", &run, "--data", &text]);
    succeeds(&asked);
    succeeds(&resume(Some(&home), &run, &["--data", &text]));
}

#[test]
fn a_users_own_folder_keeps_its_keys_wherever_it_is() {
    let folder = Folder::new("own");
    let (own, other) = (home(&folder, "own"), home(&folder, "other"));
    let (run, heard) = (folder.path("run"), folder.path("heard"));
    let notify = format!("run.notify=echo $PLEACH_EVENT $PLEACH_RUN >> {heard}");
    train(Some(&own), &folder, "run", &[&notify]);
    let secret = own.join(".pleach/secret");
    assert_eq!(fs::metadata(&secret).expect("a secret").permissions().mode() & 0o777, 0o600);
    let copies = ["copied", "unpacked", "changed"].map(|name| folder.path(name));
    let parent = folder.0.display();
    let pack = format!(
        "cd {parent} && cp -r run copied && cp -r run changed && mkdir unpacked && tar -cf run.tar -C run . && \
         tar -xf run.tar -C unpacked"
    );
    assert!(Command::new("sh").args(["-c", &pack]).status().expect("sh").success());
    for copy in &copies[..2] {
        let resumed = resume(Some(&own), copy, &[]);
        succeeds(&resumed);
        assert!(!said(&resumed).contains("left out"), "{}", said(&resumed));
        let calls = fs::read_to_string(&heard).expect("heard");
        assert!(
            calls.contains(&format!("started {copy}\n")) && calls.contains(&format!("finished {copy}\n")),
            "{calls}"
        );
    }
    // The code is of the whole run file: another value has none, and neither has the value in another run file.
    edit(&copies[2], "notify = \"echo ", "notify = \"echo changed ");
    let changed = resume(Some(&own), &copies[2], &[]);
    succeeds(&changed);
    assert_left_out(&changed, &["run.notify"], REASONS[1]);
    // An archive that another user has made has that user's code.
    let stranger = resume(Some(&other), &run, &[]);
    succeeds(&stranger);
    assert_left_out(&stranger, &["run.notify"], REASONS[2]);
    let calls = fs::read_to_string(&heard).expect("heard");
    assert!(!calls.contains("changed") && calls.matches(&format!(" {run}\n")).count() == 2, "{calls}");
}

#[test]
fn without_a_secret_a_run_trains_and_says_so() {
    let folder = Folder::new("secretless");
    let open = home(&folder, "open");
    fs::create_dir_all(open.join(".pleach")).expect("a folder");
    fs::write(open.join(".pleach/secret"), "00".repeat(32)).expect("a secret");
    fs::set_permissions(open.join(".pleach/secret"), Permissions::from_mode(0o644)).expect("permissions");
    let heard = folder.path("heard");
    let notify = format!("run.notify=echo $PLEACH_EVENT >> {heard}");
    let reasons = [
        "HOME is not the path of a folder",
        &format!("{}/.pleach/secret holds a secret and has mode 644; use `chmod 600", open.display()),
    ];
    for (run, (home, reason)) in ["none", "open"].into_iter().zip([None, Some(open.as_path())].into_iter().zip(reasons))
    {
        let trained = train(home, &folder, run, &[&notify]);
        let warning =
            "warning: a resumption will leave out run.notify, for no code can show that you wrote the run file: ";
        let line = said(&trained).lines().find(|line| line.starts_with(warning)).map(str::to_string);
        let line = line.unwrap_or_else(|| panic!("no warning: {}", said(&trained)));
        assert!(line.contains(reason) && line.ends_with("; resume with --set run.notify=..."), "{line}");
        let resumed = resume(home, &folder.path(run), &[]);
        succeeds(&resumed);
        assert_left_out(&resumed, &["run.notify"], REASONS[0]);
    }
    assert_eq!(fs::read_to_string(&heard).expect("heard"), "started\nfinished\n".repeat(2));
    // A secret of the environment needs no home, and differs from that of another one.
    let with_secret = |digit: &str, words: &[&str]| {
        let ended = pleach_of(None, words).env("PLEACH_SECRET", digit.repeat(64)).output().expect("pleach");
        succeeds(&ended);
        ended
    };
    let run = folder.path("given");
    let (key, keys) = (folder.run("given"), [SMALL, &["train.steps=2", &notify]].concat());
    with_secret("7", &with_keys(&["train"], &[&keys[..], &[key.as_str()]].concat()));
    let resume = |steps| ["train", "--resume", &run, "--set", steps];
    let other = with_secret("8", &[&resume("train.steps=3")[..], &["--set", "run.save_every=0"]].concat());
    assert_left_out(&other, &["run.notify"], REASONS[1]);
    fs::remove_dir_all(format!("{run}/checkpoints/step-00000003")).expect("a checkpoint");
    assert!(!said(&with_secret("7", &resume("train.steps=3"))).contains("left out"));
}

/// Starts `words` by a launcher with one restart, kills its process once the run has a checkpoint after `step` steps,
/// and returns the end of all.
fn killed_once(mut command: Command, run: &Path, step: u32) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleach");
    let manifest = run.join(format!("checkpoints/step-{step:08}/manifest.json"));
    let mut seen = false;
    wait("a checkpoint", || {
        // Later ones replace it.
        seen |= manifest.exists();
        (seen || child.try_wait().expect("a child").is_some()).then_some(())
    });
    kill("-KILL", &processes_of(child.id())[0].to_string());
    child.wait_with_output().expect("an end")
}

#[test]
fn restarts_of_the_launcher_keep_the_keys_also_without_a_home() {
    let folder = Folder::new("restarts");
    let server = Server::start();
    let own = home(&folder, "own");
    for (name, home) in [("home", Some(own.as_path())), ("none", None)] {
        let (heard, run) = (folder.path(&format!("{name}-heard")), folder.run(name));
        let notify = format!("run.notify=echo $PLEACH_EVENT >> {heard}");
        let store = format!("run.store=s3://bucket/{name}");
        let keys = [SMALL, &["train.steps=150", "run.keep_newest=1", &run, &notify, &store]].concat();
        let words = [&["launch", "--nproc", "1", "--restarts", "1", "--"], &with_keys(&["train"], &keys)[..]].concat();
        let mut command = pleach_of(home, &words);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port));
        let ended = killed_once(command, &folder.0.join(name), 2);
        succeeds(&ended);
        assert!(!said(&ended).contains("is left out"), "{}", said(&ended));
        assert!(said(&ended).contains("; restarting: pleach train --resume "), "{}", said(&ended));
        let calls = fs::read_to_string(&heard).expect("heard");
        let mut calls: Vec<&str> = calls.lines().filter(|event| !["straggler", "anomaly"].contains(event)).collect();
        calls.sort_unstable();
        assert_eq!(calls, ["failed", "finished", "started", "started"], "{}", said(&ended));
        let newest = format!("bucket/{name}/checkpoints/step-00000150/manifest.json");
        assert_eq!(server.names(&newest), [newest.as_str()], "the restarted run has a store");
    }
}

#[test]
fn the_launcher_runs_no_command_of_an_edited_folder() {
    let folder = Folder::new("edited");
    let (home, run, traps) = (home(&folder, "home"), folder.path("run"), Traps::new(&folder));
    train(Some(&home), &folder, "run", &[]);
    let command = format!("mkdir -p {}", traps.path("command"));
    edit(&run, "[run]\n", &format!("[run]\nnotify = \"{command}\"\n"));
    let words = ["launch", "--nproc", "1", "--", "train", "--resume", &run, "--set", "train.steps=3000"];
    let ended = killed_once(pleach_of(Some(&home), &words), Path::new(&run), 4);
    assert_eq!(ended.status.code(), Some(137), "{}", said(&ended));
    traps.assert_untouched(&ended);
    let line = format!("run.notify of {run}/run.toml is left out: {}", REASONS[0]);
    assert!(said(&ended).contains(&line), "{}", said(&ended));
}
