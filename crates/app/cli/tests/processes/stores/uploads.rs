//! Checkpoints of a store: which are believed, which are kept, and what a run says when its store is away.

use super::proxy::{Line, Proxy};
use super::server::Server;
use super::{Store, run_of, said, weights_of, words};
use crate::harness::several::Folder;

/// The names below a run in the store.
fn names(server: &Server, run: &str) -> Vec<String> {
    let prefix = format!("bucket/{run}/");
    server.names(&prefix).into_iter().map(|name| name[prefix.len()..].to_string()).collect()
}

fn steps(server: &Server, run: &str) -> Vec<u32> {
    let manifest = |name: String| name.strip_suffix("/manifest.json")?.strip_prefix("checkpoints/step-")?.parse().ok();
    names(server, run).into_iter().filter_map(manifest).collect()
}

#[test]
fn checkpoints_are_kept_in_the_store_as_on_the_disk() {
    let (server, folder) = (Server::start(), Folder::new("kept"));
    let store = Store { port: server.port };
    let begun = run_of(&folder, "run", 6, &["run.store=s3://bucket/kept", "run.keep_every=3", "run.keep_newest=1"]);
    store.succeeds(&words(&begun));
    assert_eq!(steps(&server, "kept"), [3, 6]);
    let files: Vec<String> = names(&server, "kept").into_iter().filter(|name| !name.contains('/')).collect();
    assert_eq!(files, ["metrics.jsonl", "run.toml", "tokenizer.txt"]);
    // Commands that read a folder name the command that downloads it.
    for command in ["eval", "export", "report", "inspect"] {
        let from: &[&str] = match command {
            "inspect" | "report" => &[command, "s3://bucket/kept"],
            "export" => &[command, "s3://bucket/kept", "--out", "nowhere"],
            _ => &[command, "--from", "s3://bucket/kept"],
        };
        let output = store.output(from);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains("`pleach fetch s3://bucket/kept --out FOLDER` downloads the run"), "{command}: {text}");
    }
    let fetched = folder.path("fetched");
    store.succeeds(&["fetch", "s3://bucket/kept", "--out", &fetched]);
    let checkpoint = format!("{fetched}/checkpoints/step-00000006");
    let of_checkpoint = store.output(&["eval", "--from", &checkpoint]);
    assert_eq!(of_checkpoint.status.code(), Some(0), "{}", said(&of_checkpoint));
    // The folder of the run is read by its newest checkpoint, for there are no other weights.
    let of_folder = store.output(&["eval", "--from", &fetched]);
    let text = said(&of_folder);
    assert_eq!((of_folder.status.code(), &of_folder.stdout), (Some(0), &of_checkpoint.stdout), "{text}");
    let told = format!("{fetched} has no weights.safetensors; its newest checkpoint is read: {checkpoint}\n");
    assert!(text.contains(&told), "{text}");
    store.succeeds(&["export", &fetched, "--out", &folder.path("exported")]);
    let again = store.succeeds(&["fetch", "s3://bucket/kept", "--out", &fetched]);
    assert_eq!(
        again,
        format!(
            "{fetched} has the checkpoint after step 6; s3://bucket/kept has no later one, and nothing is downloaded\n"
        )
    );
    // Nobody begins another run there by accident.
    let refused = store.output(&words(&run_of(&folder, "other", 6, &["run.store=s3://bucket/kept"])));
    assert_eq!(refused.status.code(), Some(2));
    let text = said(&refused);
    assert!(
        text.contains("run.store = \"s3://bucket/kept\" has checkpoints of a run, the newest after step 6"),
        "{text}"
    );
    let mut replacing = run_of(&folder, "other", 2, &["run.store=s3://bucket/kept"]);
    replacing.push("--overwrite".into());
    store.succeeds(&words(&replacing));
    assert_eq!(steps(&server, "kept"), [1, 2]);
}

#[test]
fn a_folder_of_another_run_is_refused_and_no_resumption_is_lost() {
    let (server, folder) = (Server::start(), Folder::new("another"));
    let store = Store { port: server.port };
    store.succeeds(&words(&run_of(&folder, "run", 2, &["run.store=s3://bucket/another"])));
    store.succeeds(&words(&run_of(&folder, "local", 1, &[])));
    let local = folder.path("local");
    let key = format!("run.folder={local}");
    for arguments in [
        ["fetch", "s3://bucket/another", "--out", &local].as_slice(),
        &["train", "--resume", "s3://bucket/another", "--set", &key],
    ] {
        let output = store.output(arguments);
        let text = said(&output);
        let told = format!("{local} holds another run than s3://bucket/another: one with no run.store; ");
        assert!(output.status.code() == Some(2) && text.contains(&told), "{arguments:?}: {text}");
    }
    assert!(!folder.0.join("local/checkpoints/step-00000002").exists());
    // The list of the folder has a line that the store lacks.
    let fetched = folder.path("fetched");
    store.succeeds(&["fetch", "s3://bucket/another", "--out", &fetched]);
    let list = folder.0.join("fetched/resumes.jsonl");
    std::fs::write(&list, "{\"after_step\":1}\n").expect("written");
    server.put("bucket/another/resumes.jsonl", b"{\"after_step\":2}\n");
    std::fs::remove_dir_all(folder.0.join("fetched/checkpoints/step-00000002")).expect("a checkpoint");
    store.succeeds(&["fetch", "s3://bucket/another", "--out", &fetched]);
    let both = "{\"after_step\":1}\n{\"after_step\":2}\n";
    assert_eq!(std::fs::read_to_string(&list).expect("a list"), both);
    // A folder without its list has that of the store again.
    std::fs::remove_file(&list).expect("a list");
    store.succeeds(&["fetch", "s3://bucket/another", "--out", &fetched]);
    assert_eq!(std::fs::read_to_string(&list).expect("a list"), "{\"after_step\":2}\n");
}

#[test]
fn only_a_whole_checkpoint_is_believed() {
    let (server, folder) = (Server::start(), Folder::new("believed"));
    let store = Store { port: server.port };
    let keys = ["run.store=s3://bucket/believed", "run.keep_newest=9"];
    store.succeeds(&words(&run_of(&folder, "run", 6, &keys)));
    let run = folder.0.join("run");
    let expected = weights_of(&run);
    let name = |step: u32, file: &str| format!("bucket/believed/checkpoints/step-{step:08}/{file}");
    // The last one was not committed, one before has a file that was cut off, and one other bytes.
    server.remove(&name(6, "manifest.json"));
    let data = "rank-00000.safetensors";
    let mut bytes = server.get(&name(5, data)).expect("a file");
    server.put(&name(5, data), &bytes[..bytes.len() - 1]);
    bytes = server.get(&name(4, data)).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    server.put(&name(4, data), &bytes);
    std::fs::remove_dir_all(&run).expect("the folder");
    let text = store.succeeds(&["train", "--resume", "s3://bucket/believed"]);
    for told in [
        "step-00000006 has no manifest.json: ",
        "after step 5",
        "after step 4",
        "after step 3",
        "where",
        "an earlier one is used",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains("downloading the checkpoint after step 6"), "{text}");
    assert!(weights_of(&run) == expected, "the same bits");
    assert_eq!(steps(&server, "believed"), [1, 2, 3, 4, 5, 6], "what was damaged was written again");
    // The files of the folder are the newest: nothing is downloaded.
    let text = store.succeeds(&["train", "--resume", run.to_str().expect("a path")]);
    assert!(!text.contains("downloading"), "{text}");
    // The folder has older checkpoints than its store.
    for step in 3..=6 {
        let _ = std::fs::remove_dir_all(run.join(format!("checkpoints/step-{step:08}")));
    }
    let text = store.succeeds(&["train", "--resume", run.to_str().expect("a path")]);
    assert!(text.contains("downloading the checkpoint after step 6"), "{text}");
    // Its newest checkpoint is damaged, and the store has it whole.
    let newest = run.join("checkpoints/step-00000006");
    std::fs::write(newest.join(data), b"cut off").expect("a file");
    let text = store.succeeds(&["train", "--resume", run.to_str().expect("a path")]);
    assert!(text.contains("downloading the checkpoint after step 6"), "{text}");
    assert!(run.join("checkpoints/damaged-step-00000006").is_dir());
}

#[test]
fn long_files_come_in_parts() {
    let (server, folder) = (Server::start(), Folder::new("parts"));
    let proxy = Proxy::start(server.port, 5);
    let store = Store { port: proxy.port };
    // Some 10 MB for each of two ranks.
    let keys = ["model.hidden=320", "run.store=s3://bucket/parts", "run.keep_newest=1"];
    store.succeeds(&words(&run_of(&folder, "run", 2, &keys)));
    assert!(server.uploads() >= 4, "{} uploads in parts", server.uploads());
    assert_eq!(steps(&server, "parts"), [2]);
    let expected = weights_of(&folder.0.join("run"));
    std::fs::remove_dir_all(folder.0.join("run")).expect("the folder");
    store.succeeds(&["train", "--resume", "s3://bucket/parts"]);
    assert!(weights_of(&folder.0.join("run")) == expected, "the same bits");
}

#[test]
fn a_run_goes_on_without_its_store() {
    let (server, folder) = (Server::start(), Folder::new("away"));
    let proxy = Proxy::start(server.port, 1);
    proxy.set(Line::Sound);
    let store = Store { port: proxy.port };
    let keys = ["run.store=s3://bucket/away", "run.store_seconds=2", "run.keep_newest=1"];
    let begun = run_of(&folder, "run", 100, &keys);
    let mut child = store.command(&words(&begun));
    let child = child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().expect("pleach");
    crate::processes::wait::wait("a checkpoint", || (!steps(&server, "away").is_empty()).then_some(()));
    proxy.set(Line::Down);
    let output = child.wait_with_output().expect("an end");
    let text = said(&output);
    // The run did all of its steps; its exit code says that the store lacks the last checkpoint.
    assert_eq!(output.status.code(), Some(1), "{text}");
    for told in ["not all checkpoints are in s3://bucket/away", "uploads them"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let run = folder.0.join("run");
    weights_of(&run);
    assert_ne!(steps(&server, "away").last(), Some(&100));
    // A store without an answer is not guessed about.
    let path = run.to_str().expect("a path").to_string();
    let refused = store.output(&["train", "--resume", &path, "--set", "run.store_seconds=1"]);
    let text = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("--set run.store= to continue without the store"), "{text}");
    proxy.set(Line::Sound);
    store.succeeds(&["train", "--resume", &path]);
    assert_eq!(steps(&server, "away"), [100]);
}

#[test]
fn secrets_in_addresses_are_refused_and_not_repeated() {
    let (server, folder) = (Server::start(), Folder::new("secret"));
    let store = Store { port: server.port };
    for address in ["s3://user:of-the-test@bucket/a", "bucket/a"] {
        let key = format!("run.store={address}");
        let output = store.output(&words(&run_of(&folder, "run", 2, &[&key])));
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("run.store"), "{text}");
    }
    let output = store.output(&["train", "--resume", "s3://user:of-the-test@bucket/a"]);
    assert!(said(&output).contains("must not have a user or a password"));
}

#[test]
fn a_store_without_an_answer_is_told_before_the_deadline() {
    let folder = Folder::new("silent");
    // No server has this port.
    let store = Store { port: crate::harness::free_port() };
    let output = store.output(&words(&run_of(&folder, "run", 2, &["run.store=s3://bucket/a", "run.store_seconds=8"])));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = text.lines().find(|line| line.starts_with("s3://bucket/a/checkpoints has no answer yet")).expect(&text);
    assert!(line.contains("Connection refused") && !line.contains("retries"), "{line}");
    assert!(line.contains("; attempt ") && line.ends_with(" s left, which run.store_seconds changes"), "{line}");
    assert!(text.contains("tried for "), "{text}");
}

#[test]
fn answers_that_do_not_pass_are_refused_at_once() {
    let (server, folder) = (Server::start(), Folder::new("refused"));
    let store = Store { port: server.port };
    let no_bucket = "bucket none does not exist; check its name, AWS_ENDPOINT_URL and AWS_REGION, or make the bucket";
    let denied = "access is denied: 403 Forbidden: InvalidAccessKeyId; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    for (bucket, told) in [("none", no_bucket), ("forbidden", denied)] {
        let address = format!("s3://{bucket}/a");
        let key = format!("run.store={address}");
        let fetched = folder.path("fetched");
        let begun = run_of(&folder, "run", 2, &[&key]);
        let commands: [&[&str]; 5] = [
            &words(&begun),
            &["fetch", &address, "--out", &fetched],
            &["train", "--resume", &address],
            &["train", "--data", &address],
            &["train", "--data", &format!("{address}/*.txt")],
        ];
        for command in commands {
            let output = store.output(command);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
            // The answer to a request for the head of an object has no body.
            let is_head = bucket == "forbidden" && command.ends_with(&["--data", &address]);
            let told = if is_head { "access is denied: 403" } else { told };
            assert!(text.contains(told) && !text.contains("no answer yet"), "{command:?}: {text}");
        }
    }
    // A run that may list and not write does its steps.
    let output = store.output(&words(&run_of(&folder, "unwritten", 2, &["run.store=s3://bucket/denied/a"])));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("not all checkpoints are in s3://bucket/denied/a: not uploaded after step"), "{text}");
    assert!(text.contains("access is denied: 403"), "{text}");
}

#[test]
fn a_key_without_its_secret_names_the_variable() {
    let store = Store { port: 1 };
    for (given, missing) in
        [("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")]
    {
        let output =
            store.command(&["fetch", "s3://bucket/a", "--out", "x"]).env_remove(missing).output().expect("pleach");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("{given} is set and {missing} is not; set both")), "{text}");
    }
}

#[test]
fn missing_credentials_are_named_with_their_places() {
    let (folder, store) = (Folder::new("nobody"), Store { port: 1 });
    let begun = run_of(&folder, "run", 2, &["run.store=s3://bucket/a"]);
    let mut command = store.command(&words(&begun));
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    // There are no profiles, and no metadata service has this port.
    command.env("HOME", folder.path("home")).env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
    let output = command.output().expect("pleach");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let told =
        "s3://bucket/a/checkpoints: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE";
    assert!(text.contains(told), "{text}");
}

#[test]
fn fetch_names_the_form_of_an_address() {
    let store = Store { port: 1 };
    for wrong in ["/tmp/x", "https://host/run", "bucket/run"] {
        let output = store.output(&["fetch", wrong, "--out", "nowhere"]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let told = "the address must be s3://BUCKET/PREFIX, the address of a run in a store; use one such as s3://bucket/runs/a";
        assert!(text.contains(told), "{wrong}: {text}");
    }
}
