//! `pleach explain`: what a run's ranks are and do, good enough to learn from.

mod expert_map;
mod expert_picture;
mod expert_text;
mod mesh_text;
mod program_text;

use config::figures::{counted, grouped};
use mesh::Rank;
use program::{Category, CellKind, CellTimes, StepTimes, Timeline};
use run::description::run_lines::describe;
use run::failure::Failure;
use run::gpus::assignment;
use run::places::output_file::OutputFile;
use train::Setup;

use crate::arguments::ExplainArguments;
use crate::explain::expert_map::ExpertMap;
use crate::rank_hosts::RankHosts;
use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::terminal;

/// Columns of cells in a timeline: a backward pass takes about twice a forward pass.
const CELL_COLUMNS: CellTimes = CellTimes { forward: 3, backward_input: 3, backward_weight: 3, transfer: 0 };
/// Widest timeline that is drawn whole.
const TIMELINE_COLUMNS: usize = 160;

/// Prints the mesh, the stages and the pipeline; with a rank its program, with `--step` every instruction of it. With
/// `--svg` it draws who holds which experts.
///
/// # Errors
/// A run that is not legal, a rank that it does not have, a picture of a model without experts, or a file that cannot
/// be written.
pub fn explain(arguments: &ExplainArguments) -> Result<(), Failure> {
    let named = arguments.run.run_file();
    let inputs = [named.inputs(), arguments.hosts.iter().cloned().collect()].concat();
    let svg = OutputFile::promised_if("--svg", arguments.svg.as_deref(), &inputs)?;
    let config = named.load()?;
    let setup = Setup::new(config.model.clone(), config.parallelism_on_device(), config.train.clone())
        .map_err(|error| Failure::Work(error.to_string()))?;
    let rank = arguments.rank.map(|rank| existing(&setup, rank)).transpose()?;
    let hosts = RankHosts::known(&setup.mesh, config.run.placement, arguments.hosts.as_deref())?;
    let experts = ExpertMap::of(&setup);
    if let Some(file) = svg {
        let drawn = experts.as_ref().map(|map| expert_picture::picture(map, &title(&named.title(), &setup)));
        file.write(drawn.ok_or_else(|| {
            Failure::Input("--svg draws the ranks of experts, which this model does not have; leave it out".into())
        })?)?;
    }
    let ranks_of_hosts = hosts.as_ref().map(RankHosts::ranks);
    let text = match rank {
        None => {
            let hosts = hosts.map_or(String::new(), |hosts| format!("{}\n", hosts.drawn()));
            let (mesh, gpus) =
                (mesh_text::mesh(&setup), assignment::assignment(&config, &setup.mesh, ranks_of_hosts.as_deref()));
            let experts = experts.map_or(String::new(), |map| format!("{}\n", expert_text::experts(&map)));
            format!("{}\n{mesh}\n{experts}{hosts}{gpus}{}\n{}", describe(&config), stages(&setup), pipeline(&setup))
        }
        Some(rank) if arguments.step => program_text::every_instruction(&setup, rank),
        Some(rank) => {
            let host = hosts.map_or(String::new(), |hosts| hosts.place(rank));
            let gpu = assignment::place(&config, &setup.mesh, ranks_of_hosts.as_deref(), rank);
            let experts = experts.map_or(String::new(), |map| expert_text::of_rank(&map, rank));
            let place = mesh_text::place(&setup, rank);
            format!("{place}{experts}{host}{gpu}\n{}", program_text::folded(&setup, rank))
        }
    };
    print(&wrapped(&text, terminal::columns()))
}

/// The name of a run with its degrees.
fn title(name: &str, setup: &Setup) -> String {
    format!("{name}: {}", setup.parallelism.degrees.joined(" x "))
}

fn existing(setup: &Setup, rank: usize) -> Result<Rank, Failure> {
    let ranks = setup.mesh.world_size();
    if rank < ranks {
        return Ok(Rank(rank));
    }
    Err(Failure::Input(format!("--rank {rank}: the run has {}, 0 to {}", counted(ranks as u64, "rank"), ranks - 1)))
}

/// The units of each pipeline rank and the bytes of its arena.
fn stages(setup: &Setup) -> String {
    let mut text = String::from("stages\n");
    for stage in 0..setup.parallelism.degrees.pp {
        let view = &setup.program(stage).view;
        let parameters: usize = view.parameter_units().map(|unit| setup.layouts[&unit].len).sum();
        text += &format!(
            "  pp {stage}  {:<40} {:>12} parameters  {:>12} bytes a rank\n",
            mesh_text::units(view),
            grouped(parameters as u64),
            grouped(setup.plan(stage).arena_bytes() as u64),
        );
    }
    text += "  of the bytes, on pp 0: ";
    let parts =
        setup.plan(0).categories().into_iter().filter(|(category, bytes)| *bytes > 0 && *category != Category::Gaps);
    let parts: Vec<String> = parts.map(|(category, bytes)| format!("{category} {}", grouped(bytes as u64))).collect();
    text + &parts.join(", ") + "\n"
}

/// The pipeline over time, drawn, with its bubble: of cells alike, and of the program with what its passes cost.
fn pipeline(setup: &Setup) -> String {
    let (pp, microbatches) = (setup.parallelism.degrees.pp, setup.num_microbatches());
    let timeline = Timeline::new(&setup.schedule, CELL_COLUMNS);
    let mut text = format!(
        "pipeline of one step: {} through {}; {}; . is waiting\n",
        counted(microbatches as u64, "microbatch"),
        counted(setup.schedule.num_stages() as u64, "stage"),
        legend(setup)
    );
    for line in timeline.to_string().lines() {
        text += &format!("  {}\n", shortened(line).replacen("rank", "pp", 1));
    }
    let idle: usize = (0..pp).map(|rank| timeline.idle(rank)).sum();
    let share = 100.0 * idle as f64 / (pp * timeline.makespan().max(1)) as f64;
    text += &format!(
        "  waiting: {share:.1} % of the pipeline's time; 1F1B: (p - 1) / (m + p - 1) = {}/{}\n",
        pp - 1,
        microbatches + pp - 1
    );
    let bubble = StepTimes::new(setup.programs.programs()[0].graph(), &setup.times).bubble();
    text + &format!(
        "  bubble of the program, with its embedding and head: {:.1} % of the slowest rank's time from first pass to last; {:.1} % until the norm, which waits for all\n",
        100.0 * bubble.rate(),
        100.0 * bubble.rate_with_norm()
    )
}

/// The legend of the timeline, for the letters that the schedule uses.
fn legend(setup: &Setup) -> String {
    let has = |kind: CellKind| setup.schedule.ranks.iter().flatten().any(|cell| cell.kind == kind);
    let mut words = vec!["F2 is forward of microbatch 2"];
    if has(CellKind::B) {
        words.push("B2 its backward (twice as long)");
    }
    if has(CellKind::I) {
        words.push("I2 its backward of inputs, W2 of weights");
    }
    if setup.schedule.num_stages() > setup.parallelism.degrees.pp {
        words.push("small letters are a rank's later stages");
    }
    words.join(", ")
}

/// A line of at most [`TIMELINE_COLUMNS`]; the middle of longer ones is left out.
fn shortened(line: &str) -> String {
    if line.len() <= TIMELINE_COLUMNS {
        return line.to_string();
    }
    let half = TIMELINE_COLUMNS / 2 - 4;
    format!("{} ~~~~ {}", &line[..half], &line[line.len() - half..])
}
