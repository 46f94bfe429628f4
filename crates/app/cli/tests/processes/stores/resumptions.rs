//! Saves and resumptions over a line with faults: processes are killed, folders are lost, and the weights have the bits
//! of a run that nothing disturbed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use super::moto::Moto;
use super::proxy::{Proxy, mixed};
use super::server::Server;
use super::{Store, run_of, said, weights_of, words};
use crate::harness::several::{Folder, processes_of, succeeds};
use crate::processes::launch::kill;

/// Saves and resumptions that are counted.
#[derive(Clone, Copy)]
struct Wanted {
    saves: u32,
    resumptions: u32,
}

/// A sample, or as many of both as `PLEACH_CASES` says.
fn wanted(sample: Wanted) -> Wanted {
    Wanted { saves: needs::cases!(sample.saves), resumptions: needs::cases!(sample.resumptions) }
}

#[test]
fn nothing_is_lost_over_a_line_with_faults() {
    let server = Server::start();
    counted(server.port, wanted(Wanted { saves: 8, resumptions: 2 }), "line");
    let left = server.names("bucket/line/");
    assert!(left.iter().any(|name| name.ends_with("/manifest.json")), "{left:?}");
}

#[needs::moto]
#[test]
fn a_real_server_has_the_same() {
    let moto = Moto::start();
    moto.make_bucket("bucket");
    counted(moto.port, wanted(Wanted { saves: 2, resumptions: 1 }), "moto");
}

#[test]
fn a_launched_run_of_an_address_is_restarted_from_its_newest_checkpoint() {
    let (server, folder) = (Server::start(), Folder::new("launched"));
    let store = Store { port: server.port };
    let key = "run.store=s3://bucket/launched";
    store.succeeds(&words(&run_of(&folder, "run", 2, &[key])));
    let run = folder.0.join("run");
    std::fs::remove_dir_all(&run).expect("the folder of the run");
    // The empty machine resumes from the address, trains, and loses its process.
    let resume = ["launch", "--nproc", "1", "--restarts", "1", "--", "train", "--resume", "s3://bucket/launched"];
    let mut command = store.command(&[&resume[..], &["--set", "train.steps=200"]].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("pleach");
    crate::processes::wait::wait("a checkpoint of the resumed run", || {
        let names = server.names("bucket/launched/checkpoints/");
        let earlier = ["-00000001/", "-00000002/"];
        let is_later =
            |name: &String| name.ends_with("/manifest.json") && !earlier.iter().any(|earlier| name.contains(earlier));
        (names.iter().any(is_later) || child.try_wait().expect("a child").is_some()).then_some(())
    });
    kill("-KILL", &processes_of(child.id())[0].to_string());
    let said: Vec<String> =
        BufReader::new(child.stderr.take().expect("messages")).lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{said:?}");
    let told = "; restarting: pleach train --resume s3://bucket/launched --set train.steps=200; 0 restarts left";
    assert!(said.iter().any(|line| line.ends_with(told)), "{said:?}");
    let downloads = said.iter().filter(|line| line.starts_with("downloading the checkpoint after step ")).count();
    assert_eq!(downloads, 1, "the folder has a checkpoint as new: {said:?}");
    let log = std::fs::read_to_string(run.join("train.log")).expect("a log");
    let resumed =
        |line: &str| -> Option<u32> { line.strip_prefix("resuming after step ")?.split(' ').next()?.parse().ok() };
    let resumed: Vec<u32> = log.lines().filter_map(resumed).collect();
    assert!(matches!(resumed[..], [2, later] if later > 2), "{resumed:?}");
}

/// Runs are saved by way of a proxy to the server at `port`, killed and resumed on empty machines, until as many saves
/// and resumptions were counted as are `wanted`.
fn counted(port: u16, wanted: Wanted, name: &str) {
    const STEPS: u32 = 6;
    let folder = Folder::new(name);
    let sound = Store { port };
    let undisturbed = run_of(&folder, "undisturbed", STEPS, &[]);
    succeeds(&sound.output(&words(&undisturbed)));
    let expected = weights_of(&folder.0.join("undisturbed"));
    let (mut saves, mut resumptions, mut faults) = (0, 0, 0);
    let mut trial = 0;
    while saves < wanted.saves || resumptions < wanted.resumptions {
        let proxy = Proxy::start(port, trial);
        let store = Store { port: proxy.port };
        let address = format!("s3://bucket/{name}/run-{trial}");
        let key = format!("run.store={address}");
        let run = folder.0.join("run");
        let begun = run_of(&folder, "run", STEPS, &[&key]);
        // A run that is killed some time after its first checkpoint came to the store.
        let mut child =
            store.command(&words(&begun)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pleach");
        let committed = format!("{name}/run-{trial}/checkpoints/");
        crate::processes::wait::wait("a checkpoint in the store", || {
            (has_manifest(port, &committed) || child.try_wait().expect("a child").is_some()).then_some(())
        });
        std::thread::sleep(Duration::from_millis(mixed(trial) % 150));
        child.kill().expect("the child is ours");
        child.wait().expect("an end");
        // The machine is lost; another one resumes from the address.
        std::fs::remove_dir_all(&run).expect("the folder of the run");
        let output = store.output(&["train", "--resume", &address]);
        let text = said(&output);
        succeeds(&output);
        assert!(text.contains("downloading the checkpoint after step"), "{text}");
        assert!(weights_of(&run) == expected, "trial {trial}: other bits after a resumption: {text}");
        resumptions += 1;
        let log = std::fs::read_to_string(run.join("train.log")).expect("a log");
        saves += log.lines().filter(|line| line.starts_with("uploaded after step")).count() as u32;
        // All that is in the store at the end is whole.
        let fetched = folder.path("fetched");
        sound.succeeds(&["fetch", &address, "--out", &fetched]);
        let newest = format!("{fetched}/checkpoints/step-{STEPS:08}");
        sound.succeeds(&["inspect", "--verify", &newest]);
        std::fs::remove_dir_all(&fetched).expect("a folder");
        std::fs::remove_dir_all(&run).expect("a folder");
        faults += proxy.faults();
        trial += 1;
    }
    println!("{saves} uploads and {resumptions} resumptions, {faults} faults of the line: the same bits");
    assert!(faults > 0, "the line has no faults");
}

/// Whether a checkpoint is committed below `prefix`.
fn has_manifest(port: u16, prefix: &str) -> bool {
    let listed = super::moto::get(port, &format!("/bucket?list-type=2&prefix={prefix}"));
    listed.contains("/manifest.json<")
}
