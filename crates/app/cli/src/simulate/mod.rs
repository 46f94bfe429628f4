//! `pleach simulate`: a step on a cluster that is not there.

mod actual_step;
pub mod against;
pub mod offers;
pub mod rank_times;

use std::collections::BTreeSet;

use cluster::Cluster;
use config::figures::{bytes, counted, grouped, seconds, three_digits};
use config::{Parallelism, RunConfig, unique_parameters};
use plan::known_errors::known_errors;
use plan::search::MEMORY_MARGIN;
use plan::{Prediction, PreparedStep};
use run::description::run_lines::sizes;
use run::failure::Failure;
use run::messages::stderr::tell;
use run::places::output_file::OutputFile;
use run::records::communication::communication;
use serde::Serialize;
use sim::{Caption, Loss, MemoryOverTime, MemoryPart, RankMemory, Trace, legend, lines, share};

use crate::arguments::cluster::SimulateArguments;
use crate::arguments::format::Format;
use crate::arguments::traced_ranks::TracedRanks;
use crate::cluster::gpus;
use crate::cluster::profile::{expert_load, of_run};
use crate::plan::text::gaps;
use crate::screen::narrow::{table, wrapped};
use crate::screen::output::print;
use crate::screen::terminal;
use crate::simulate::actual_step::Actual;
use crate::simulate::against::Comparison;
use crate::simulate::offers::not_offered;

/// Rows of the drawing in a terminal.
const ROWS: usize = 12;
/// Columns of the drawing where there is no terminal.
const COLUMNS: usize = 100;
/// Columns around the letters of a drawing: the name of a stage, and a line on either side.
const MARGIN: usize = 9;

/// The operations that MFU counts.
const CONVENTION: &str = "matrix products and causal attention, forward and backward; recomputation not counted";

/// How many of `ranks` pipeline ranks a drawing has; nothing where it has all of them.
fn drawn_ranks(ranks: usize) -> String {
    if ranks > ROWS { format!(", {ROWS} of {ranks} pipeline ranks") } else { String::new() }
}

/// Predicts a step, prints where its time and memory go, and draws it where that was asked for.
///
/// # Errors
/// A run or a profile that cannot be used, or a file that cannot be written.
pub fn simulate(arguments: &SimulateArguments) -> Result<(), Failure> {
    let against = arguments.against.iter().cloned().collect();
    let named = arguments.run.run_file();
    let inputs = [named.inputs(), arguments.cluster.inputs(), against].concat();
    let svg = OutputFile::promised_if("--svg", arguments.svg.as_deref(), &inputs)?;
    let trace_file = OutputFile::promised_if("--trace", arguments.trace.as_deref(), &inputs)?;
    svg.as_ref().map_or(Ok(()), |svg| svg.check_apart("--trace", trace_file.as_ref()))?;
    let config = named.load()?;
    let (cluster, software) = of_run(&named, &arguments.cluster, &config)?;
    let device = gpus::predicted(&config, &cluster, config.run.ranks)?;
    let RunConfig { model, parallelism, train, run, .. } = &config;
    let refused = |error: train::SetupError| Failure::Work(error.to_string());
    let expert_load = expert_load(&arguments.cluster, &config)?;
    let step = PreparedStep::of_load(model, parallelism, train, software.as_ref(), expert_load);
    let step = step.map_err(refused)?.placed(run.placement);
    let prediction = step.on(&cluster).map_err(refused)?;
    let trace = Trace::of_stages(&step.graph, &prediction.times);
    if let Some(file) = trace_file {
        write_trace(&file, (parallelism, &cluster), arguments.ranks.as_ref(), &step, &prediction)?;
    }
    let against = arguments.against.as_ref().map(|path| Comparison::read(&trace, path)).transpose()?;
    let memory = step.memory();
    let actual = Actual::of(arguments, prediction.step_ns())?;
    let answer = StepReport {
        config: &config,
        cluster: &cluster,
        device,
        step: &step,
        prediction: &prediction,
        memory: &memory,
        expert_load: arguments.cluster.expert_load,
        actual,
    };
    if let Some(file) = svg {
        file.write(sim::svg(&trace, &answer.caption(&named.title())))?;
    }
    match arguments.format() {
        Format::Text => {
            let beside = against.map_or(String::new(), |comparison| format!("\n{}", comparison.text()));
            print(&(answer.text(&trace) + &beside))
        }
        Format::Json => {
            let json = serde_json::to_string(&Json { against, ..answer.json() })
                .map_err(|error| Failure::Work(error.to_string()))?;
            print(&format!("{json}\n"))
        }
    }
}

/// Writes the trace of the ranks that are meant, and says which these are where they are not all.
fn write_trace(
    file: &OutputFile,
    (parallelism, cluster): (&Parallelism, &Cluster),
    ranks: Option<&TracedRanks>,
    step: &PreparedStep,
    prediction: &Prediction,
) -> Result<(), Failure> {
    let mesh = parallelism.mesh().map_err(|error| Failure::Work(error.to_string()))?;
    let usual = rank_times::usual(&mesh);
    let traced = rank_times::simulated(&mesh, ranks.unwrap_or(&usual), &prediction.times)?;
    if traced.len() < mesh.world_size() && ranks.is_none() {
        tell(&format!(
            "{}: {} of {} ranks, one of each stage; --ranks chooses others\n",
            file.path().display(),
            traced.len(),
            grouped(mesh.world_size() as u64)
        ));
    }
    let movements = step.movements(step.algorithms(cluster)).map_err(|error| Failure::Work(error.to_string()))?;
    let memory = step.memory_over_time(&prediction.times);
    let memory: Vec<&MemoryOverTime> = traced.iter().map(|rank| &memory[rank.pp]).collect();
    let trace = &Trace::new(&step.graph, &traced);
    file.write(sim::ChromeTrace { trace, graph: &step.graph, movements: &movements, memory: &memory })
}

/// `dp 8 x tp 4 x pp 12`.
fn layout(config: &RunConfig) -> String {
    config.parallelism.degrees.to_string()
}

struct StepReport<'a> {
    config: &'a RunConfig,
    cluster: &'a Cluster,
    /// The meaning of the run's device for the prediction.
    device: String,
    step: &'a PreparedStep,
    prediction: &'a Prediction,
    /// Of a rank of each stage.
    memory: &'a [RankMemory],
    /// The question, for its answer.
    expert_load: Option<f64>,
    /// The published time of the step, of a published run.
    actual: Option<Actual>,
}

#[derive(Serialize)]
struct Json {
    step_s: f64,
    tokens_per_s: f64,
    mfu: f64,
    mfu_convention: &'static str,
    bubble: f64,
    bubble_until_norm: f64,
    at_peak_s: f64,
    losses_s: std::collections::BTreeMap<String, f64>,
    bottleneck: String,
    known_errors: String,
    not_offered: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expert_load: Option<f64>,
    memory_bytes: Vec<std::collections::BTreeMap<String, usize>>,
    /// Bytes of a rank of each stage in memory of its host, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_memory_bytes: Option<Vec<usize>>,
    accelerator_memory_bytes: f64,
    fits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<Actual>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Comparison>,
}

impl StepReport<'_> {
    /// The texts around the drawing, and the memory below it.
    fn caption(&self, name: &str) -> Caption {
        let StepReport { config, cluster, step, prediction, .. } = self;
        let (model, step_ns, spent) = (&config.model, prediction.step_ns(), &prediction.spent);
        let losses = spent.largest().into_iter().filter(|(_, ns)| *ns > 0).map(|(loss, ns)| (loss.to_string(), ns));
        let memory = step.memory_over_time(&prediction.times);
        Caption {
            title: format!("{name}: {}", layout(config)),
            subtitle: format!(
                "step {}, {} tokens/s, MFU {:.1} %, bubble {:.1} %",
                seconds(step_ns),
                grouped((step.tokens() as f64 / (step_ns as f64 * 1e-9)) as u64),
                100.0 * step.mfu(cluster, step_ns),
                100.0 * prediction.times.bubble().rate(),
            ),
            details: format!(
                "{} parameters in {} on {}",
                grouped(unique_parameters(model)),
                counted(model.num_layers as u64, "layer"),
                cluster.about
            ),
            spent: std::iter::once(("the model at the peak rate".to_string(), spent.at_peak_ns))
                .chain(losses)
                .collect(),
            memory: memory.into_iter().enumerate().map(|(pp, memory)| (format!("pp {pp}"), memory)).collect(),
            memory_limit_bytes: self.there_bytes() as u64,
        }
    }

    fn bottleneck(&self) -> String {
        let largest: Vec<String> = (self.prediction.spent.largest().iter().take(2))
            .map(|(loss, ns)| format!("{} for {loss}", seconds(*ns)))
            .collect();
        format!("of {}, the largest losses are {}", seconds(self.prediction.step_ns()), largest.join(" and "))
    }

    fn text(&self, trace: &Trace) -> String {
        let StepReport { config, cluster, step, prediction, .. } = self;
        let (step_ns, bubble) = (prediction.step_ns(), prediction.times.bubble());
        let mut text = format!(
            "{}cluster {}: {} of {} on {}\n\
             {}\n\
             step    {}, {} tokens a second\n\
             error   {}\n\
             {}{}{}\
             mfu     {:.1} % of {} TFLOP/s: {CONVENTION}\n\
             bubble  {:.1} % of the slowest rank's time from first pass to last; {:.1} % until the norm, which waits for all\n\
             {}\n",
            sizes(config),
            cluster.about,
            grouped(config.run.ranks as u64),
            cluster.accelerator.name,
            counted(config.run.ranks.div_ceil(cluster.node.accelerators) as u64, "node"),
            self.device,
            seconds(step_ns),
            grouped((step.tokens() as f64 / (step_ns as f64 * 1e-9)) as u64),
            self.known_errors(),
            self.offers_line(),
            self.load_line(),
            self.actual.as_ref().map_or(String::new(), |actual| format!("actual  {actual}\n")),
            100.0 * step.mfu(cluster, step_ns),
            three_digits(step.peak_flops_per_ns(cluster) * 1e-3),
            100.0 * bubble.rate(),
            100.0 * bubble.rate_with_norm(),
            communication(trace, config.parallelism.degrees),
        );
        let columns = terminal::columns();
        text += &self.time_table(columns);
        text += &format!("\n{}.\n\n", capitalised(&self.bottleneck()));
        text += &self.memory_table(columns);
        let drawing = lines(trace, columns.map_or(COLUMNS, |columns| columns.saturating_sub(MARGIN).max(1)), ROWS);
        let drawn = drawn_ranks(trace.ranks.len());
        wrapped(&text, columns) + &wrapped(&format!("\none step{drawn}; {}\n", legend(&drawing)), columns) + &drawing
    }

    /// How far predictions were from measured runs on such accelerators.
    fn known_errors(&self) -> String {
        known_errors(self.cluster, self.step.software())
    }

    fn not_offered(&self) -> Vec<String> {
        not_offered(&self.config.parallelism, self.step.software())
    }

    /// That the trainer lacks parts of the layout; nothing where it has all of them.
    fn offers_line(&self) -> String {
        let lacking = self.not_offered().join(", ");
        match self.step.software() {
            Some(software) if !lacking.is_empty() => {
                format!("offers  {} does not offer {lacking}; the step is that of a trainer that does\n", software.name)
            }
            Some(_) | None => String::new(),
        }
    }

    /// The load of experts that was asked for.
    fn load_line(&self) -> String {
        let line = |load| format!("experts the rank that all wait for has {load} times the rows of balanced routing\n");
        self.expert_load.map_or(String::new(), line)
    }

    fn time_table(&self, columns: Option<usize>) -> String {
        let spent = &self.prediction.spent;
        let all = self.prediction.step_ns();
        let row = |name: String, ns: u64| vec![name, seconds(ns), share(ns, all)];
        let mut rows = vec![row("the model at the peak rate".into(), spent.at_peak_ns)];
        rows.extend(spent.largest().into_iter().filter(|(_, ns)| *ns > 0).map(|(loss, ns)| row(loss.to_string(), ns)));
        format!("time of the rank that computes longest\n{}", table(&rows, columns))
    }

    fn memory_table(&self, columns: Option<usize>) -> String {
        let parts: BTreeSet<MemoryPart> = self.memory.iter().flat_map(|rank| rank.parts.keys().copied()).collect();
        let mut header = vec!["stage".to_string()];
        header.extend(parts.iter().map(MemoryPart::to_string));
        header.push("all".into());
        let rows = self.memory.iter().enumerate().map(|(stage, rank)| {
            let of = |part| rank.parts.get(part).copied().unwrap_or(0);
            let cells = parts.iter().map(of).chain([rank.occupied_bytes()]).map(|size| bytes(size as u64));
            std::iter::once(stage.to_string()).chain(cells).collect()
        });
        let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
        let there = bytes(self.there_bytes() as u64);
        let mut text =
            format!("bytes of one rank at the peak of a training step, of {there}\n{}", table(&rows, columns));
        let on_host = self.memory.iter().map(|rank| rank.host_bytes).max().filter(|most| *most > 0);
        text += &on_host.map_or(String::new(), |most| {
            let content = self.config.train.offload.content();
            format!("\nOf a rank, {} of {content} at most are in memory of its host.\n", bytes(most as u64))
        });
        let most = self.memory.iter().map(RankMemory::occupied_bytes).max().unwrap_or(0) as f64;
        let margin_bytes = MEMORY_MARGIN * self.there_bytes();
        let (margin, left) = (bytes(margin_bytes as u64), bytes((self.there_bytes() - most).max(0.0) as u64));
        text += &match (self.fits(), most <= self.there_bytes() - margin_bytes) {
            (true, true) => String::new(),
            (true, false) => {
                let gaps = gaps(self.step.software());
                format!("\nThat leaves {left}, less than the {margin} that `pleach plan` keeps free{gaps}.\n")
            }
            (false, _) => format!("\nThat does not fit {there}; `pleach plan` finds layouts that do.\n"),
        };
        text
    }

    /// Memory of one accelerator.
    fn there_bytes(&self) -> f64 {
        self.cluster.accelerator.memory_bytes()
    }

    /// Whether the largest rank has room.
    fn fits(&self) -> bool {
        self.memory.iter().all(|rank| rank.occupied_bytes() as f64 <= self.there_bytes())
    }

    fn json(&self) -> Json {
        let StepReport { cluster, step, prediction, .. } = self;
        let step_ns = prediction.step_ns();
        let named = |rank: &RankMemory| rank.parts.iter().map(|(part, bytes)| (part.to_string(), *bytes)).collect();
        Json {
            step_s: step_ns as f64 * 1e-9,
            tokens_per_s: step.tokens() as f64 / (step_ns as f64 * 1e-9),
            mfu: step.mfu(cluster, step_ns),
            mfu_convention: CONVENTION,
            bubble: prediction.times.bubble().rate(),
            bubble_until_norm: prediction.times.bubble().rate_with_norm(),
            at_peak_s: prediction.spent.at_peak_ns as f64 * 1e-9,
            losses_s: Loss::ALL
                .iter()
                .map(|loss| (loss.to_string(), prediction.spent.on(*loss) as f64 * 1e-9))
                .collect(),
            bottleneck: self.bottleneck(),
            known_errors: self.known_errors(),
            not_offered: self.not_offered(),
            expert_load: self.expert_load,
            memory_bytes: self.memory.iter().map(named).collect(),
            host_memory_bytes: Some(self.memory.iter().map(|rank| rank.host_bytes).collect())
                .filter(|each: &Vec<usize>| each.iter().any(|bytes| *bytes > 0)),
            accelerator_memory_bytes: self.there_bytes(),
            fits: self.fits(),
            actual: self.actual.clone(),
            against: None,
        }
    }
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
