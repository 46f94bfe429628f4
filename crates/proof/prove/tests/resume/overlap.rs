//! Saving continues while the next step computes, and no update changes values that are still to be read.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use checkpoint::{Checkpoint, Committer, Disk, NewFile, Retention, Storage, Store, committed};
use config::{Format, Parallelism, Tied, ZeroStage};
use device::DeviceError;
use mesh::Region;
use program::{Instr, PassKind};
use testkit::layout::engine;
use testkit::models::{plain_layout, proof_text};
use train::{Observer, Ports, SaveReport, Saving, StepReport, StopRequest, Worker, run};

use crate::resume::rig::{Folder, layout};

/// Opens when a rank computes in the step after the first checkpoint. Until then nothing is written.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Where nothing overlaps, nobody opens.
    fn wait(&self) -> io::Result<()> {
        let deadline = Duration::from_secs(120);
        let waited = self.opened.wait_timeout_while(self.is_open.lock().unwrap(), deadline, |is_open| !*is_open);
        if waited.unwrap().1.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// A disk that writes no data before the gate opens.
#[derive(Debug)]
struct Waiting(Arc<Gate>);

impl Storage for Waiting {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Disk.create_folder(path)
    }

    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(WaitingFile(Disk.create(path, len_bytes)?, Arc::clone(&self.0))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Disk.sync_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        Disk.remove_folder(path)
    }
}

#[derive(Debug)]
struct WaitingFile(Box<dyn NewFile>, Arc<Gate>);

impl NewFile for WaitingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.wait()?;
        self.0.append(bytes)
    }

    fn sync(self: Box<Self>) -> io::Result<()> {
        self.0.sync()
    }
}

/// Opens the gate, and keeps the results of checkpoints.
struct Opener {
    gate: Arc<Gate>,
    failures: Mutex<Vec<String>>,
}

impl Observer for Opener {
    fn step(&self, _: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn saved(&self, report: SaveReport) {
        self.failures.lock().unwrap().extend(report.finished.outcome.err().map(|error| error.to_string()));
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let instr: Instr = worker.position.program.instrs[worker.position.at];
        if worker.position.step == 1 && instr.pass().is_some_and(|pass| pass.kind == PassKind::BackwardWeight) {
            self.gate.open();
        }
        Ok(())
    }
}

/// Every checkpoint of a run whose disk waits for the step after it, with its tensors in order.
fn saved(gate: Gate, parallelism: &Parallelism) -> Vec<(u32, Vec<f32>)> {
    let folder = Folder::new();
    let retention = Retention { newest: 9, every: 0, best: 0 };
    let gate = Arc::new(gate);
    let store = Store::open(&folder.0, Arc::new(Waiting(Arc::clone(&gate))), retention).unwrap();
    let setup = layout(Tied::Yes, Format::Fp32, parallelism.clone()).setup().unwrap();
    let opener = Opener { gate, failures: Mutex::default() };
    let committer = Committer::new(&store, 1);
    let saving = Some(Saving::with(&committer).every(1));
    run(&setup, &*engine(&setup, 1), Ports { saving, ..Ports::new(&proof_text(), &opener) }).unwrap();
    assert_eq!(*opener.failures.lock().unwrap(), [""; 0]);
    let tensors = |checkpoint: &Checkpoint| {
        let mut all = Vec::new();
        for (name, tensor) in &checkpoint.manifest().tensors {
            let mut values = vec![0.0; tensor.shape.iter().product()];
            checkpoint.get(name, &Region::whole(&tensor.shape), &mut values).unwrap();
            all.extend(values);
        }
        all
    };
    let found = committed(&folder.0).unwrap();
    found.iter().map(|found| (found.steps, tensors(&Checkpoint::open(&found.path).unwrap()))).collect()
}

#[test]
fn a_step_computes_while_the_one_before_is_saved_and_waits_to_update() {
    for parallelism in [plain_layout(1, 1, 1, 1), Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 1) }] {
        let at_once = Gate { is_open: Mutex::new(true), opened: Condvar::new() };
        let (overlapped, plain) = (saved(Gate::default(), &parallelism), saved(at_once, &parallelism));
        assert_eq!(plain.iter().map(|(steps, _)| *steps).collect::<Vec<_>>(), [4, 3, 2, 1]);
        assert!(overlapped == plain, "a checkpoint has values of another step");
        assert!(plain.windows(2).all(|two| two[0].1 != two[1].1), "steps change the state");
    }
}
