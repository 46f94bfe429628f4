//! Runs in Python: the wheel, and readers of metrics.
//!
//! They need an interpreter with numpy, pandas, TensorBoard, pip and xxhash: that of `PLEACH_PYTHON`, or `python3`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::several::{Folder, TINY};
use crate::harness::{pleach, stderr, stdout};

/// The interpreter.
fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("PLEACH_PYTHON").unwrap_or("python3".into()));
    command.env("PYTHONDONTWRITEBYTECODE", "1").args(arguments);
    command
}

/// The output of a command that succeeds.
fn printed(command: &mut Command) -> String {
    let output: Output = command.output().expect("Python 3.11");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// A run of four steps whose metrics have a measurement; its folder.
fn trained(folder: &Folder) -> String {
    let run = folder.run("run");
    let settings = TINY.iter().copied().chain(["run.evaluate_every=2", run.as_str()]);
    let arguments: Vec<&str> =
        ["train", "--quiet"].into_iter().chain(settings.flat_map(|set| ["--set", set])).collect();
    let output = pleach(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    folder.path("run")
}

#[needs::python_packages]
#[test]
fn other_programs_read_metrics() {
    let folder = Folder::new("readers");
    let run = trained(&folder);
    // A step that is not a number is read as one.
    let metrics = Path::new(&run).join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).expect("metrics");
    let last = text.lines().rfind(|line| line.starts_with("{\"step\":4,\"loss\"")).expect("a step").to_string();
    let (loss, rest) = last.split_once(",\"learning_rate\"").expect("a key");
    let rest = rest.trim_end_matches('}');
    let anomaly = "\"anomaly\":\"loss spike\",\"usual\":4.5,\"score\":12.0,\"skipped\":true";
    let broken = format!("{{\"step\":5,\"loss\":\"NaN\",\"learning_rate\"{rest},{anomaly}}}\n");
    assert!(loss.starts_with("{\"step\":4,\"loss\":"));
    fs::write(&metrics, text + &broken).expect("written");
    let (csv, events) = (folder.path("run.csv"), folder.path("events"));
    for arguments in [["report", &run, "--csv", &csv], ["report", &run, "--tensorboard", &events]] {
        assert_eq!(pleach(&arguments).status.code(), Some(0));
    }
    let code = "import sys, pandas\n\
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
        table, lines = pandas.read_csv(sys.argv[1]), pandas.read_json(sys.argv[2], lines=True)\n\
        events = EventAccumulator(sys.argv[3]); events.Reload()\n\
        training, held_out = (events.Scalars('loss/' + tag) for tag in ('training', 'held_out'))\n\
        assert [event.step for event in training] == table.step.tolist() == [1, 2, 3, 4, 5]\n\
        steps = lines[lines.learning_rate.notna()].astype({'loss': float})\n\
        for losses in (table.loss.tolist(), steps.loss.tolist()):\n\
        \x20   assert all(abs(event.value - loss) < 1e-6 for event, loss in zip(training[:4], losses))\n\
        \x20   assert losses[4] != losses[4] and training[4].value != training[4].value\n\
        assert [event.step for event in held_out] == [2, 4]\n\
        assert abs(training[0].wall_time - steps.time.iloc[0]) < 1e-3\n\
        assert table.skipped.tolist()[-1] == 1 and table.score.tolist()[-1] == 12 and 'anomaly' not in table\n\
        sys.path.insert(0, sys.argv[4])\n\
        import pleach_lm\n\
        assert pleach_lm.Run(sys.argv[5]).steps['anomaly'].tolist() == [''] * 4 + ['loss spike']\n\
        print(len(table.columns))\n";
    let columns = printed(
        python(&["-c", code, &csv, metrics.to_str().expect("text"), &format!("{events}/run")])
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/../../../python"), run.as_str()]),
    );
    assert!(columns.trim().parse::<usize>().expect("a number") >= 14, "{columns}");
}

/// A wheel of the tested program, installed from its file into an empty folder.
#[needs::python_packages]
#[test]
fn a_wheel_brings_the_program_and_reads_its_runs() {
    let (folder, repository) = (Folder::new("wheel"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    let run = trained(&folder);
    let tool = repository.join("tools/wheel.py").display().to_string();
    let wheel = printed(&mut python(&[&tool, env!("CARGO_BIN_EXE_pleach"), &folder.path("dist")]));
    let wheel = PathBuf::from(wheel.trim());
    let name = wheel.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with("pleach_lm-") && name.contains("-py3-none-manylinux_2_"), "{name}");
    let installed = folder.path("installed");
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target"];
    printed(python(&install).arg(&installed).arg(&wheel));
    let code = "import sys, numpy, pleach_lm\n\
        assert pleach_lm.__file__.startswith(sys.argv[2]) and pleach_lm.program().startswith(sys.argv[2])\n\
        run = pleach_lm.Run(sys.argv[1])\n\
        assert run.config['model']['hidden'] == 16 and run.steps['step'].tolist() == [1, 2, 3, 4]\n\
        assert run.held_out['step'].tolist() == [2, 4] and run.events == []\n\
        weights, checkpoint = run.weights(), run.checkpoints[-1]\n\
        assert checkpoint.steps == 4 and len(run.checkpoints) == 2\n\
        names = [name for name in checkpoint if name in weights]\n\
        assert names and all(numpy.array_equal(weights[name], checkpoint[name]) for name in names), names\n\
        print(pleach_lm.pleach('--version', capture_output=True, text=True).stdout.strip())\n\
        try:\n\
        \x20   pleach_lm.pleach('check', '--set', 'train.steps=0', capture_output=True)\n\
        except pleach_lm.command.subprocess.CalledProcessError as error:\n\
        \x20   print(error.returncode)\n";
    let lines = printed(python(&["-c", code, &run, &installed]).env("PYTHONPATH", &installed));
    assert_eq!(lines, format!("pleach {}\n2\n", env!("CARGO_PKG_VERSION")));
    // A flipped byte is found.
    let damage = "import sys, pathlib, pleach_lm\n\
        checkpoint = pleach_lm.Run(sys.argv[1]).checkpoints[-1]\n\
        file = next(checkpoint.path.glob('*.safetensors'))\n\
        data = bytearray(file.read_bytes()); data[-1] ^= 1; file.write_bytes(data)\n\
        try:\n\
        \x20   [checkpoint[name] for name in checkpoint]\n\
        except pleach_lm.DamagedError as error:\n\
        \x20   print(str(error).endswith('differs from its hash: the checkpoint is damaged'))\n";
    let found = printed(python(&["-c", damage, &run]).env("PYTHONPATH", &installed));
    assert_eq!(found, "True\n");
}
