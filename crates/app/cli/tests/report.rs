//! `pleach report`, as a user meets it: pages, tables and event files of runs, and the server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::several::{Folder, TINY};
use crate::harness::{pleach, stderr, stdout};

/// A run of four steps.
fn trained(folder: &Folder, name: &str, more: &[&str]) -> String {
    let run = folder.run(name);
    let settings = TINY.iter().chain(more).copied().chain([run.as_str()]);
    let arguments: Vec<&str> =
        ["train", "--quiet"].into_iter().chain(settings.flat_map(|set| ["--set", set])).collect();
    let output = pleach(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    folder.path(name)
}

fn reported(arguments: &[&str]) -> String {
    let output = pleach(&[&["report"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output) + &stdout(&output)
}

/// The data of a page.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    serde_json::from_str(rest.split_once("</script>").expect("an end").0).expect("JSON")
}

#[test]
fn runs_become_a_page_a_table_and_event_files() {
    let folder = Folder::new("report");
    let one = trained(&folder, "one", &["run.evaluate_every=2"]);
    let two = trained(&folder, "two", &["train.steps=2", "train.learning_rate=0.001"]);
    assert_eq!(reported(&[&one]), format!("written {one}/report.html\n"));
    let page = data(&fs::read_to_string(Path::new(&one).join("report.html")).expect("a page"));
    let run = &page["runs"][0];
    assert_eq!(run["name"], "one");
    assert_eq!(run["columns"]["steps"], serde_json::json!([1, 2, 3, 4]));
    assert_eq!(run["columns"]["tokens"], serde_json::json!([64, 128, 192, 256]));
    assert_eq!(run["held_out"].as_array().expect("measurements").len(), 2);
    // Threads of one process: the last step was measured, on a rank of each stage.
    assert_eq!((&run["timeline"]["source"], &run["timeline"]["step"]), (&"measured".into(), &4.into()));
    assert_eq!(run["timeline"]["stages"].as_array().expect("stages").len(), 2);
    assert!(run["memory"]["arenas_bytes"].as_u64() > Some(0) && run["memory"]["resident_bytes"].as_u64() > Some(0));

    let both = folder.path("both.html");
    reported(&[&one, &two, "--out", &both]);
    assert_eq!(data(&fs::read_to_string(&both).expect("a page"))["runs"].as_array().expect("runs").len(), 2);

    let csv = reported(&[&one, "--csv", "-"]);
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.starts_with("step,loss,held_out_loss,learning_rate,grad_norm,tokens,"), "{csv}");
    let refused = pleach(&["report", &one, &two, "--csv", "-"]);
    assert_eq!(stderr(&refused), "--csv takes one run; got 2; use a file for each\n");

    let events = folder.path("events");
    let printed = reported(&[&one, &two, "--tensorboard", &events]);
    let file = |name: &str| format!("{events}/{name}/events.out.tfevents.0000000000.pleach");
    assert_eq!(printed, format!("written {}\nwritten {}\n", file("one"), file("two")));
    assert!(fs::read(file("one")).expect("events").windows(13).any(|bytes| bytes == b"brain.Event:2"));
}

#[test]
fn a_resumption_is_an_event_and_another_folder_is_refused() {
    let folder = Folder::new("report-events");
    let run = trained(&folder, "run", &[]);
    let resumed = pleach(&["train", "--resume", &run, "--set", "train.steps=6"]);
    // All messages of a run are on one stream, and in its log.
    assert_eq!((resumed.status.code(), stderr(&resumed)), (Some(0), String::new()));
    let message = format!("resuming after step 4 from {run}/checkpoints/step-00000004\n");
    let log = fs::read_to_string(Path::new(&run).join("train.log")).expect("a log");
    assert!(stdout(&resumed).starts_with(&message) && log.contains(&message), "{log}");
    let page = data(&reported(&[&run, "--out", "-"]));
    let event = &page["runs"][0]["events"][0];
    assert_eq!((&event["step"], &event["kind"]), (&4.into(), &"resumed".into()));
    assert_eq!(event["text"], "after step 4, with train.steps from 4 to 6");
    assert_eq!(page["runs"][0]["columns"]["tokens"][5], 384);
    let refused = pleach(&["report", &folder.path("none")]);
    assert_eq!(refused.status.code(), Some(2));
    let expected = format!("{} must be the folder of a run, with its run.toml, which ", folder.path("none"));
    assert!(stderr(&refused).starts_with(&expected), "{}", stderr(&refused));
}

#[test]
fn a_new_run_tells_where_the_earlier_one_is_kept() {
    let folder = Folder::new("report-kept");
    let run = trained(&folder, "run", &["train.steps=2"]);
    let settings = TINY.iter().copied().chain(["train.steps=2"]).map(String::from).chain([folder.run("run")]);
    let settings: Vec<String> = settings.flat_map(|set| ["--set".to_string(), set]).collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let again = pleach(&[&["train"], &settings[..]].concat());
    assert_eq!((again.status.code(), stderr(&again)), (Some(0), String::new()));
    let first = stdout(&again).lines().next().unwrap_or_default().to_string();
    assert!(first.starts_with(&format!("{run} is kept as {run}-")), "{first}");
    assert!(fs::read_to_string(Path::new(&run).join("train.log")).expect("a log").starts_with(&first));
    let [of_programs, quiet] = ["--json", "--quiet"].map(|how| pleach(&[&["train", how], &settings[..]].concat()));
    for output in [of_programs, quiet] {
        assert!(stderr(&output).starts_with(&format!("{run} is kept as {run}-")), "{}", stderr(&output));
    }
}

/// Outputs are not written over files of a run, and stay in their folder; metrics that cannot be read are refused.
#[test]
fn odd_folders_and_outputs_lose_nothing() {
    let folder = Folder::new("report-odd");
    let file = |name: &str, text: &str| {
        let path = Path::new(&folder.path("")).join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    let step = "{\"step\":1,\"loss\":4.5}\n";
    for run in ["a/run", "b/run"] {
        file(&format!("{run}/run.toml"), "[train]\nsteps = 3\n");
        file(&format!("{run}/metrics.jsonl"), step);
        file(&format!("{run}/weights.safetensors"), "weights");
    }
    let [one, two] = ["a/run", "b/run"].map(|run| folder.path(run));
    for (option, name) in [("--out", "run.toml"), ("--csv", "weights.safetensors"), ("--out", "metrics.jsonl")] {
        let path = format!("{one}/{name}");
        let before = fs::read(&path).expect("a file");
        let refused = pleach(&["report", &two, &one, option, &path]);
        let expected = format!("{option} {path} is a place of the run's own files in {one}; name another place\n");
        assert_eq!((refused.status.code(), stderr(&refused)), (Some(2), expected));
        assert!(fs::read(&path).expect("a file") == before);
    }
    let events = folder.path("events");
    reported(&[&format!("{}/../a/run", folder.path("b")), &two, "--tensorboard", &events]);
    let expected = folder.path("").trim_matches('/').to_string();
    for run in ["b/a/run", "b/run"] {
        let file = format!("{events}/{expected}/{run}/events.out.tfevents.0000000000.pleach");
        assert!(Path::new(&file).is_file(), "{file}");
    }
    fs::write(Path::new(&one).join("metrics.jsonl"), b"\xff\xfe\n{\"step\":1,\"loss\":4.5}\n{\"step\":2,\"lo")
        .expect("written");
    let left_out = format!("{one}/metrics.jsonl:1 is not a record of a step; 1 line without one left out\n");
    assert_eq!(reported(&[&one, "--csv", "-"]), format!("{left_out}step,loss\n1,4.5\n"));
    fs::remove_file(Path::new(&one).join("metrics.jsonl")).expect("removed");
    assert!(reported(&[&one, "--out", "-"]).contains("\"steps\":[]"));
    fs::create_dir(Path::new(&one).join("metrics.jsonl")).expect("a folder");
    let refused = pleach(&["report", &one]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).starts_with(&format!("{one}/metrics.jsonl is a folder, ")), "{}", stderr(&refused));
    fs::create_dir(Path::new(&two).join("report.html")).expect("a folder");
    let refused = stderr(&pleach(&["report", &two]));
    assert!(
        refused.ends_with(" is a folder; name a file in it; use --out FILE.html for a page elsewhere\n"),
        "{refused}"
    );
    // A reader who closes the pipe has read enough.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    let mut child = command
        .args(["report", &two, "--out", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

/// A server that ends with its test.
struct Server(Child, String);

impl Server {
    fn start(run: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(["report", run, "--follow"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let address = line.strip_prefix("http://").and_then(|rest| rest.split_once("/ shows the steps"));
        Server(child, address.expect("an address").0.into())
    }

    /// The whole answer to a request with these headers.
    fn answer(&self, request: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).expect("a connection");
        write!(stream, "{request} HTTP/1.1\r\n{headers}\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_shows_new_steps_to_this_machine_only() {
    let folder = Folder::new("report-server");
    let run = trained(&folder, "run", &["train.steps=2"]);
    let server = Server::start(&run);
    let host = format!("Host: {}", server.1);
    let page = server.answer("GET /", &host);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("data-served=\"yes\""), "{page}");
    let first = server.answer("GET /data.json", &host);
    let tag = first.split_once("ETag: ").and_then(|(_, rest)| rest.split_once("\r\n")).expect("a tag").0.to_string();
    let again = server.answer("GET /data.json", &format!("{host}\r\nIf-None-Match: {tag}"));
    assert!(again.starts_with("HTTP/1.1 304 Not Modified\r\n") && again.ends_with("\r\n\r\n"), "{again}");
    let resumed = pleach(&["train", "--quiet", "--resume", &run, "--set", "train.steps=3"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let newer = server.answer("GET /data.json", &format!("{host}\r\nIf-None-Match: {tag}"));
    assert!(newer.starts_with("HTTP/1.1 200 OK\r\n") && newer.contains("\"steps\":[1,2,3]"), "{newer}");
    // A run that begins again may have another run file; in between it is missing.
    let file = Path::new(&run).join("run.toml");
    let text = fs::read_to_string(&file).expect("a run file");
    fs::remove_file(&file).expect("removed");
    assert!(server.answer("GET /data.json", &host).contains("\"steps\":[1,2,3]"));
    fs::write(&file, text.replace("seed = 0", "seed = 12")).expect("written");
    assert!(server.answer("GET /data.json", &host).contains("seed = 12"));
    let metrics = Path::new(&run).join("metrics.jsonl");
    fs::remove_file(&metrics).and_then(|()| fs::create_dir(&metrics)).expect("a folder");
    assert!(server.answer("GET /data.json", &host).starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
    // A connection ahead, on which nothing is sent, keeps nobody waiting.
    let _silent = TcpStream::connect(&server.1).expect("a connection");
    for (request, headers, status) in [
        ("GET /data.json", "Host: example.org", "403 Forbidden"),
        ("GET /data.json", "Accept: */*", "403 Forbidden"),
        ("GET /run.toml", host.as_str(), "404 Not Found"),
        ("POST /", host.as_str(), "405 Method Not Allowed"),
    ] {
        let refused = server.answer(request, headers);
        assert!(refused.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{refused}");
    }
}
