//! Steps of a run on their way to its observer and into its records.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use checkpoint::{CheckpointError, Committed, Finished, SavedIn};
use config::figures::bytes;
use device::DeviceError;
use sync::{into_inner, lock};
use train::{EvaluationReport, RouterReport, SaveReport, StepReport, StopRequest, StragglerWatch, WorkTimes, Worker};

use crate::failure::Failure;
use crate::records::anomaly::anomaly_line;
use crate::records::idle_experts::IdleExperts;
use crate::records::metrics_file::MetricsFile;
use crate::records::rates::{Meter, Rates};
use crate::records::record;
use crate::records::step_line::{Colour, RemainingTime, clock};
use crate::records::unwritten::unwritten_checkpoint;
use crate::signals::interrupt::Interrupt;
use crate::training::event_log::{EventLog, Stream, WARNING};
use crate::training::measured_trace::Recorder;
use crate::training::observer::{EndedStep, Measured, Observer};
use crate::training::uploads::Message;
use crate::watch::Watchers;

/// Tells each step and writes it to the run's metrics; requests a stop when its metrics cannot be written, and after
/// Ctrl-C.
pub struct Progress<'a> {
    steps: u32,
    interrupt: Interrupt,
    recorder: Option<Recorder>,
    watchers: Option<Arc<Watchers>>,
    stragglers: Option<Mutex<StragglerWatch>>,
    outputs: Mutex<Outputs<'a>>,
}

struct Outputs<'a> {
    observer: &'a dyn Observer,
    /// Whether the observer failed: it hears no more.
    is_lost: bool,
    meter: Meter,
    metrics: MetricsFile,
    event_log: Arc<EventLog<'a>>,
    /// Steps from one line that stays to the next.
    log_every: u32,
    failure: Option<Failure>,
    is_interrupt_told: bool,
    /// Tens of seconds that the evaluation in progress had taken after its last pass.
    evaluating_tens: u64,
    evaluation: Option<EvaluationReport>,
    not_saved: Option<String>,
    idle_experts: IdleExperts,
}

/// Results that a run reports at its end.
pub struct EndResults {
    /// Metrics that could not be written.
    pub failure: Option<Failure>,
    /// The last measurement on held-out text.
    pub evaluation: Option<EvaluationReport>,
    /// Why there is no checkpoint of the last state that was to be saved.
    pub not_saved: Option<String>,
    /// When instructions ran, where that was asked for.
    pub recorder: Option<Recorder>,
}

impl<'a> Progress<'a> {
    /// Progress of a run of `steps` steps, whose lines stay every `log_every` steps; 0 leaves that to `observer`.
    pub fn new(
        (steps, log_every): (u32, u32),
        observer: &'a dyn Observer,
        meter: Meter,
        interrupt: Interrupt,
        (metrics, event_log): (MetricsFile, Arc<EventLog<'a>>),
    ) -> Progress<'a> {
        let log_every = if log_every == 0 { observer.usual_distance(steps) } else { log_every };
        let (failure, evaluation, not_saved) = (None, None, None);
        let outputs = Mutex::new(Outputs {
            observer,
            is_lost: false,
            meter,
            metrics,
            event_log,
            log_every,
            failure,
            is_interrupt_told: false,
            evaluating_tens: 0,
            evaluation,
            not_saved,
            idle_experts: IdleExperts::default(),
        });
        Progress { steps, interrupt, recorder: None, watchers: None, stragglers: None, outputs }
    }

    /// The same, which also hears of every instruction.
    pub fn with_recorder(self, recorder: Option<Recorder>) -> Progress<'a> {
        Progress { recorder, ..self }
    }

    /// The same, which also tells those who watch from outside.
    pub fn with_watchers(self, watchers: Arc<Watchers>) -> Progress<'a> {
        Progress { watchers: Some(watchers), ..self }
    }

    /// The same, which also names ranks that are slow.
    pub fn with_stragglers(self, watch: StragglerWatch) -> Progress<'a> {
        Progress { stragglers: Some(Mutex::new(watch)), ..self }
    }

    /// The recorder of instructions, where they are recorded.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Clears what changes on the screen, and returns the last results.
    pub fn finish(self) -> EndResults {
        let mut outputs = into_inner(self.outputs);
        outputs.clear();
        let Outputs { failure, evaluation, not_saved, .. } = outputs;
        EndResults { failure, evaluation, not_saved, recorder: self.recorder }
    }
}

impl Progress<'_> {
    /// A text that the run has generated after `step`: its prompt and what follows it, or why it cannot be read.
    pub fn sampled(&self, step: u32, sampled: Result<[String; 2], String>) {
        let mut outputs = lock(&self.outputs);
        let [prompt, text] = match sampled {
            Ok(sampled) => sampled,
            Err(reason) => return outputs.warn(&format!("the sample after step {step} cannot be decoded: {reason}\n")),
        };
        let written = record::of_sample(step, [&prompt, &text], SystemTime::now())
            .and_then(|record| outputs.metrics.write(&record).map(|()| record));
        match written {
            Err(error) => outputs.fail_at(&error),
            Ok(record) => {
                let (steps, width) = (self.steps, self.steps.to_string().len());
                // Line ends and codes of terminals are escaped.
                let shown: String = format!("{prompt}{text}").escape_debug().collect();
                let line = format!("step {step:>width$}/{steps}  sample  {shown}");
                outputs.measured(&line, false, &record);
            }
        }
    }
}

impl Outputs<'_> {
    /// Lets the observer show something. A run does not end for one that cannot: it continues without.
    fn show(&mut self, show: impl FnOnce(&dyn Observer) -> std::io::Result<()>) {
        if !self.is_lost
            && let Err(error) = show(self.observer)
        {
            self.is_lost = true;
            self.event_log.lose(Stream::Output, &error);
        }
    }

    /// Tells a measurement, whose record is written.
    fn measured(&mut self, line: &str, is_told_again: bool, record: &str) {
        self.event_log.log(&format!("{line}\n"));
        self.show(|observer| observer.measured(&Measured { line, is_told_again, record }));
    }

    fn step(&mut self, report: &StepReport, rates: &Rates, steps: u32) -> StopRequest {
        let written = record::of_step(report, rates, SystemTime::now())
            .and_then(|record| self.metrics.write(&record).map(|()| record));
        let record = match written {
            Ok(record) => record,
            Err(error) => {
                self.fail_at(&error);
                return StopRequest::Stop;
            }
        };
        if let Some(anomaly) = &report.anomaly {
            self.note(&format!("{WARNING}{}", anomaly_line(report.step, anomaly)));
        }
        let is_due = report.step == 1 || report.step == steps || report.step.is_multiple_of(self.log_every);
        let step = EndedStep { report, rates, steps, is_due, record: &record };
        if is_due {
            self.event_log.log(&format!("{}\n", step.line(RemainingTime::Hidden, None, Colour::Off)));
        }
        self.show(|observer| observer.step(&step));
        StopRequest::None
    }

    /// Something to know in addition to the steps.
    fn note(&mut self, text: &str) {
        self.event_log.log(&format!("{text}\n"));
        self.show(|observer| observer.note(text));
    }

    /// The bar goes, so that others may write.
    fn clear(&mut self) {
        self.show(|observer| observer.clear());
    }

    /// A warning, which is for everyone.
    fn warn(&mut self, text: &str) {
        self.clear();
        self.event_log.warn(text);
    }

    fn fail_at(&mut self, error: &std::io::Error) {
        self.failure = Some(self.metrics.failure(error));
    }
}

impl Progress<'_> {
    /// Tells something about checkpoints on their way to a store.
    pub fn uploaded(&self, message: &Message) {
        let mut outputs = lock(&self.outputs);
        match message {
            Message::Note(text) => outputs.note(text),
            Message::Warning(text) => outputs.warn(&format!("{text}\n")),
        }
    }
}

impl train::Observer for Progress<'_> {
    fn step(&self, report: &StepReport) -> StopRequest {
        // Rank 0 alone reports; if it panicked while it did, the run is over and what it wrote is still true.
        let mut outputs = lock(&self.outputs);
        let rates = outputs.meter.step(report);
        if let Some(watchers) = &self.watchers {
            watchers.step(report, &rates);
        }
        let stop_request = outputs.step(report, &rates, self.steps);
        let slow = |watch: &Mutex<StragglerWatch>| lock(watch).slow(report.step, report.wall.as_secs_f64());
        for straggler in self.stragglers.as_ref().map_or(vec![], slow) {
            if let Some(watchers) = &self.watchers {
                watchers.straggler(report.step, &straggler);
            }
            outputs.note(&format!("step {}: {straggler}", report.step));
        }
        stop_request
    }

    fn routers(&self, report: &RouterReport) {
        let mut outputs = lock(&self.outputs);
        outputs.meter.routers(report);
        let Some(text) = outputs.idle_experts.take(report) else { return };
        outputs.warn(&format!("{text}\n"));
        let written = record::of_event("experts", report.step, &text, SystemTime::now())
            .and_then(|record| outputs.metrics.write(&record));
        if let Err(error) = written {
            outputs.fail_at(&error);
        }
    }

    fn rank_step(&self, times: WorkTimes) {
        if let Some(watch) = &self.stragglers {
            lock(watch).take(times);
        }
    }

    fn stop_request(&self) -> StopRequest {
        if !self.interrupt.is_pressed() {
            return StopRequest::None;
        }
        let mut outputs = lock(&self.outputs);
        if !outputs.is_interrupt_told {
            outputs.is_interrupt_told = true;
            outputs.note("stopping after this step; Ctrl-C again ends at once and writes nothing");
        }
        StopRequest::Stop
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.ended(worker))
    }

    fn saved(&self, report: SaveReport) {
        if let Some(watchers) = &self.watchers {
            watchers.saved(&report);
        }
        let mut outputs = lock(&self.outputs);
        let SaveReport { steps, data, finished: Finished { outcome, not_retired }, wall } = report;
        let in_memory = match data {
            SavedIn::Disk => "",
            SavedIn::Memory => " in memory",
        };
        match &outcome {
            // The end of a run is reported at the end.
            Ok(_) if steps == self.steps => {}
            Ok(Committed { data_bytes, .. }) => {
                let (size, seconds) = (bytes(*data_bytes), wall.as_secs_f64());
                outputs.note(&format!("saved{in_memory} after step {steps}: {size} in {seconds:.2} s"));
            }
            Err(error) => {
                outputs.warn(&format!("not saved{in_memory} after step {steps}: {}\n", unwritten_checkpoint(error)));
            }
        }
        if let Some(error) = not_retired {
            outputs.warn(&format!("checkpoints that are not kept are still there: {error}\n"));
        }
        match data {
            SavedIn::Disk => outputs.not_saved = outcome.err().as_ref().map(unwritten_checkpoint),
            // The disk has the last state of a run.
            SavedIn::Memory => {}
        }
    }

    fn loss_not_saved(&self, step: u32, error: &CheckpointError) {
        let reason = unwritten_checkpoint(error);
        lock(&self.outputs).warn(&format!("the checkpoint after step {step} has no held-out loss: {reason}\n"));
    }

    fn evaluating(&self, share: f64, elapsed: Duration) {
        let tens = elapsed.as_secs() / 10;
        let mut outputs = lock(&self.outputs);
        if std::mem::replace(&mut outputs.evaluating_tens, tens) < tens && share < 1.0 {
            outputs.note(&evaluating_line(share, elapsed));
        }
    }

    fn evaluation(&self, report: &EvaluationReport) {
        if let Some(watchers) = &self.watchers {
            watchers.evaluation(report);
        }
        let mut outputs = lock(&self.outputs);
        outputs.evaluation = Some(*report);
        let written = record::of_evaluation(report, SystemTime::now())
            .and_then(|record| outputs.metrics.write(&record).map(|()| record));
        match written {
            Err(error) => outputs.fail_at(&error),
            Ok(record) => {
                let (steps, step) = (self.steps, report.step);
                let line =
                    format!("step {0:>1$}/{steps}  held-out loss {2:.4}", step, steps.to_string().len(), report.loss);
                outputs.measured(&line, step == steps, &record);
            }
        }
    }

    fn validation(&self, name: &str, report: &EvaluationReport) {
        let mut outputs = lock(&self.outputs);
        let written = record::of_validation(name, report, SystemTime::now())
            .and_then(|record| outputs.metrics.write(&record).map(|()| record));
        match written {
            Err(error) => outputs.fail_at(&error),
            Ok(record) => {
                let (steps, step) = (self.steps, report.step);
                let width = steps.to_string().len();
                let line = format!("step {step:>width$}/{steps}  validation loss {:.4}  {name}", report.loss);
                outputs.measured(&line, false, &record);
            }
        }
    }
}

/// How far a measurement has come that takes long.
fn evaluating_line(share: f64, elapsed: Duration) -> String {
    let left = elapsed.mul_f64((1.0 - share) / share);
    format!("measuring held-out text: {:.0} % done, {} left", 100.0 * share, clock(left))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use config::RunConfig;
    use train::Observer as _;

    use super::*;
    use crate::records::rates::Capacity;
    use crate::records::step_line::tests::report;
    use crate::training::observer::Visibility;

    #[test]
    fn a_long_measurement_says_how_far_it_is() {
        let line = evaluating_line(0.25, Duration::from_secs(30));
        assert_eq!(line, "measuring held-out text: 25 % done, 1:30 left");
    }

    /// Writes lines for people, or records for programs.
    struct Shown<W> {
        visibility: Visibility,
        out: Mutex<W>,
    }

    impl<W: Write + Send> Observer for Shown<W> {
        fn visibility(&self) -> Visibility {
            self.visibility
        }

        fn step(&self, step: &EndedStep<'_>) -> std::io::Result<()> {
            match self.visibility {
                Visibility::Shown if step.is_due => self.note(&step.line(RemainingTime::Shown, None, Colour::Off)),
                Visibility::Shown => Ok(()),
                Visibility::Hidden => self.note(step.record),
            }
        }

        fn measured(&self, measured: &Measured<'_>) -> std::io::Result<()> {
            self.note(measured.line)
        }

        fn note(&self, line: &str) -> std::io::Result<()> {
            writeln!(lock(&self.out), "{line}")
        }

        fn warn(&self, _text: &str) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A file without a name: it ends with its use.
    fn log_file(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("pleach-log-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        file
    }

    static QUIET: Shown<Vec<u8>> = Shown { visibility: Visibility::Hidden, out: Mutex::new(vec![]) };

    fn progress(interrupt: Interrupt, name: &str) -> (Progress<'static>, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("pleach-progress-{name}-{}", std::process::id()));
        let meter = Meter::start(&RunConfig::quick_start(), 1000, Capacity { cores: 2, peak_flops: Some(1e11) });
        let event_log = Arc::new(EventLog::new(&QUIET, log_file(name)));
        let metrics = MetricsFile::new(path.clone(), File::create(&path).expect("a file"));
        (Progress::new((10, 0), &QUIET, meter, interrupt, (metrics, event_log)), path)
    }

    #[test]
    fn a_screen_that_cannot_be_written_is_left_out_and_the_log_says_so_once() {
        use std::io::{ErrorKind, Read, Seek};
        struct FailingWriter(ErrorKind);
        impl Write for FailingWriter {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for kind in [ErrorKind::BrokenPipe, ErrorKind::NotConnected, ErrorKind::StorageFull] {
            for visibility in [Visibility::Shown, Visibility::Hidden] {
                let screen = Shown { visibility, out: Mutex::new(FailingWriter(kind)) };
                let meter =
                    Meter::start(&RunConfig::quick_start(), 1000, Capacity { cores: 2, peak_flops: Some(1e11) });
                let (mut log, mut records) = (log_file("gone"), log_file("gone-records"));
                let event_log = Arc::new(EventLog::new(&screen, log.try_clone().expect("a file")));
                let metrics = MetricsFile::new("metrics.jsonl".into(), records.try_clone().expect("a file"));
                let files = (metrics, Arc::clone(&event_log));
                let progress = Progress::new((10, 1), &screen, meter, Interrupt::default(), files);
                let steps = [1, 2].map(|step| progress.step(&StepReport { step, ..report() }));
                assert_eq!(steps, [StopRequest::None; 2]);
                assert!(progress.finish().failure.is_none() && !event_log.has_screen());
                let [log, records] = [&mut log, &mut records].map(|file| {
                    let mut text = String::new();
                    file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("text");
                    text
                });
                let lost =
                    format!("\nwarning: the standard output cannot be written: {}; ", std::io::Error::from(kind));
                assert_eq!((log.matches(&lost).count(), log.lines().count()), (1, 3), "{log}");
                assert_eq!(records.lines().count(), 2, "{records}");
            }
        }
    }

    #[test]
    fn an_interrupt_is_a_wish_to_stop() {
        let interrupt = Interrupt::default();
        let (progress, path) = progress(interrupt.clone(), "interrupt");
        assert_eq!(progress.stop_request(), StopRequest::None);
        interrupt.press();
        assert_eq!(progress.stop_request(), StopRequest::Stop);
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn the_last_measurement_is_kept() {
        let (progress, path) = progress(Interrupt::default(), "measured");
        let measured = EvaluationReport { step: 10, loss: 1.5, tokens: 640, wall: Duration::from_millis(500) };
        progress.evaluation(&measured);
        assert_eq!(progress.finish().evaluation, Some(measured));
        let metrics = std::fs::read_to_string(&path).expect("metrics");
        let expected = "{\"step\":10,\"held_out_loss\":1.5,\"held_out_tokens\":640,\"seconds\":0.5,\"time\":";
        assert!(metrics.starts_with(expected) && metrics.ends_with("}\n"), "{metrics}");
        std::fs::remove_file(&path).expect("removed");
    }

    /// Lines that are due stay: the first, the last and every `run.log_every`-th; the log has the same, and the notes
    /// between them.
    #[test]
    fn lines_stay_on_the_screen_and_in_the_log() {
        use std::io::{Read, Seek};
        let kept = SharedBuffer::default();
        let screen = Shown { visibility: Visibility::Shown, out: Mutex::new(kept.clone()) };
        let meter = Meter::start(&RunConfig::quick_start(), 1000, Capacity { cores: 2, peak_flops: Some(1e11) });
        let mut log = log_file("lines");
        let event_log = Arc::new(EventLog::new(&screen, log.try_clone().expect("a file")));
        let metrics = MetricsFile::new("metrics.jsonl".into(), log_file("none"));
        let progress = Progress::new((10, 4), &screen, meter, Interrupt::default(), (metrics, event_log));
        for step in 1..=10 {
            assert_eq!(progress.step(&StepReport { step, ..report() }), StopRequest::None);
            if step == 4 {
                progress.evaluation(&EvaluationReport { step, loss: 1.5, tokens: 640, wall: Duration::ZERO });
            }
        }
        lock(&progress.outputs).note("a note");
        assert!(progress.finish().failure.is_none());
        let beginnings = |text: &str| text.lines().map(|line| line.chars().take(10).collect()).collect::<Vec<String>>();
        let text = String::from_utf8(lock(&kept.0).clone()).expect("text");
        let expected = ["step  1/10", "step  4/10", "step  4/10", "step  8/10", "step 10/10", "a note"];
        assert_eq!(beginnings(&text), expected);
        log.rewind().expect("the beginning");
        let mut text = String::new();
        log.read_to_string(&mut text).expect("text");
        assert!(text.starts_with("step  1/10  loss 2.3457  lr 1.50e-3  grad norm 0.988  8,192 tokens/s"), "{text}");
        assert!(text.contains("\nstep  4/10  held-out loss 1.5000\n") && text.ends_with("\na note\n"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
