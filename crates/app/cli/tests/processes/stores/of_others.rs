//! Runs of other people in a store: what they name is not done, and they continue in a folder of the user's choice.

use std::fs;

use super::server::Server;
use super::{run_of, words};
use crate::harness::several::{Folder, succeeds};
use crate::processes::folders_of_others::{edit_manifest, home, pleach_of, said};

#[test]
fn an_address_of_a_stranger_runs_nothing_and_writes_nowhere_else() {
    let (server, folder) = (Server::start(), Folder::new("of-others"));
    let (theirs, own) = (home(&folder, "theirs"), home(&folder, "own"));
    let (run, elsewhere, place) = (folder.path("run"), folder.path("elsewhere/.ssh"), home(&folder, "place"));
    let heard = folder.path("heard");
    let of = |home: &std::path::Path, arguments: &[&str]| {
        let mut command = pleach_of(Some(home), arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port)).current_dir(&place);
        command.output().expect("pleach")
    };
    let begun = run_of(&folder, "run", 2, &["run.store=s3://bucket/theirs"]);
    succeeds(&of(&theirs, &words(&begun)));
    // Their own machine that lost its folder has it back where it was.
    fs::remove_dir_all(&run).expect("the folder of the run");
    let back = of(&theirs, &["train", "--resume", "s3://bucket/theirs", "--set", "train.steps=3"]);
    succeeds(&back);
    assert!(fs::exists(format!("{run}/run.toml")).expect("a folder") && !said(&back).contains("left out"));

    let key = "bucket/theirs/checkpoints/step-00000003/manifest.json";
    let sound = server.get(key).expect("a manifest");
    let bytes = edit_manifest(&sound, "[run]\n", &format!("[run]\nnotify = \"touch {heard}\"\n"));
    let bytes = edit_manifest(&bytes, &format!("folder = \"{run}\""), &format!("folder = \"{elsewhere}\""));
    server.put(key, &bytes);
    let resumed = of(&own, &["train", "--resume", "s3://bucket/theirs", "--set", "train.steps=4"]);
    succeeds(&resumed);
    let text = said(&resumed);
    assert!(text.contains("run.folder of s3://bucket/theirs is left out: its code cannot be compared: "), "{text}");
    assert!(
        text.contains(
            "; to have it, use --set run.folder=...\nthe run of s3://bucket/theirs continues in runs/latest\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("run.notify of the run file of runs/latest/checkpoints/step-00000003 is left out: "),
        "{text}"
    );
    let kept = fs::read_to_string(place.join("runs/latest/run.toml")).expect("the folder of the run");
    assert!(kept.contains("store = \"s3://bucket/theirs\"") && !kept.contains("notify = "), "{kept}");

    // The same by way of a folder: its store is not asked, and receives nothing.
    let fetched = folder.path("fetched");
    server.put(key, &bytes);
    server.remove("bucket/theirs/checkpoints/step-00000004/manifest.json");
    succeeds(&of(&own, &["fetch", "s3://bucket/theirs", "--out", &fetched]));
    let before = server.names("bucket/");
    let resumed = of(&own, &["train", "--resume", &fetched, "--set", "train.steps=5"]);
    succeeds(&resumed);
    let text = said(&resumed);
    for key in ["run.notify", "run.store"] {
        assert!(
            text.contains(&format!("{key} of ")) && text.contains(&format!("; to have it, use --set {key}=...\n")),
            "{text}"
        );
    }
    assert_eq!(server.names("bucket/"), before);
    assert!(!fs::exists(&heard).expect("readable") && !fs::exists(&elsewhere).expect("readable"), "{text}");
    // A folder that is fetched by those who wrote the run keeps its store.
    let (begun, again) = (run_of(&folder, "kept", 1, &["run.store=s3://bucket/kept"]), folder.path("again"));
    succeeds(&of(&theirs, &words(&begun)));
    succeeds(&of(&theirs, &["fetch", "s3://bucket/kept", "--out", &again]));
    let resumed = of(&theirs, &["train", "--resume", &again, "--set", "train.steps=2"]);
    succeeds(&resumed);
    assert!(!said(&resumed).contains("left out"), "{}", said(&resumed));
    let newest = "bucket/kept/checkpoints/step-00000002/manifest.json";
    assert_eq!(server.names(newest), [newest], "{}", said(&resumed));
}
