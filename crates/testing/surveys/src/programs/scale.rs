//! Seconds and bytes of the parts of a large run that need no arena, for each number of ranks. Each part is a process
//! of its own, so that the memory is its own. `docs/clusters.md` has the figures.

use std::process::Command;

use clap::{Args, Subcommand, ValueEnum};
use surveys::scale::{JoiningProcesses, LargeRun, Sharded, meeting, parsed, programs, records};

/// Measure the parts of a run of thousands of ranks that need no arena
#[derive(Args)]
pub struct Arguments {
    /// Numbers of ranks: multiples of 128
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "256,1024,4096,16384")]
    ranks: Vec<usize>,
    /// Measure one part
    #[arg(long)]
    part: Option<Part>,
    /// Be one of the processes
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// Compile, link and verify the programs of all ranks, ZeRO-1
    Programs,
    /// The same with ZeRO-3 in groups of 16 replicas
    ShardedPrograms,
    /// Meet a process for each rank
    Meeting,
    /// Commit the records of a checkpoint of all ranks, ZeRO-1
    Records,
    /// The same with ZeRO-3 in groups of 16 replicas
    ShardedRecords,
}

#[derive(Subcommand)]
enum Mode {
    /// A process that measures one part
    #[command(hide = true)]
    One { part: Part, ranks: usize },
    /// A process that stands for many
    #[command(hide = true)]
    JoiningProcesses { port: u16, first: usize, count: usize, processes: usize },
}

/// Measures them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    match arguments.mode {
        None => run_all(arguments),
        Some(Mode::One { part, ranks }) => one(part, ranks),
        Some(Mode::JoiningProcesses { port, first, count, processes }) => {
            JoiningProcesses { port, first, count, processes }.take_part()
        }
    }
}

impl Part {
    const ALL: [Part; 5] = [Part::Programs, Part::ShardedPrograms, Part::Meeting, Part::Records, Part::ShardedRecords];

    fn name(self) -> &'static str {
        match self {
            Part::Programs => "programs",
            Part::ShardedPrograms => "sharded-programs",
            Part::Meeting => "meeting",
            Part::Records => "records",
            Part::ShardedRecords => "sharded-records",
        }
    }
}

fn run_all(arguments: &Arguments) -> Result<(), String> {
    for part in Part::ALL.into_iter().filter(|part| arguments.part.is_none_or(|only| only.name() == part.name())) {
        let mut rows: Vec<Vec<String>> = vec![];
        for ranks in &arguments.ranks {
            let figures = measured(part, *ranks)?;
            if rows.is_empty() {
                let names = figures.iter().map(|(name, _)| name.replace('_', " "));
                rows.push(std::iter::once("ranks".to_string()).chain(names).collect());
            }
            let values = figures.iter().map(|(name, value)| shown(name, *value));
            rows.push(std::iter::once(ranks.to_string()).chain(values).collect());
        }
        println!("{}\n", part.name());
        for (number, row) in rows.iter().enumerate() {
            println!("| {} |", row.join(" | "));
            if number == 0 {
                println!("|{}", "---|".repeat(row.len()));
            }
        }
        println!();
    }
    Ok(())
}

/// The figures of a process of its own.
fn measured(part: Part, ranks: usize) -> Result<Vec<(String, f64)>, String> {
    let output = this_program().and_then(|mut command| command.args(["one", part.name(), &ranks.to_string()]).output());
    let output = output.map_err(|error| error.to_string())?;
    let (text, failure) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let figures = output.status.success().then(|| parsed(&text)).flatten();
    figures.ok_or_else(|| format!("{} of {ranks} ranks: {}{failure}", part.name(), text))
}

fn shown(name: &str, value: f64) -> String {
    match (name.ends_with("_bytes"), name.ends_with("_seconds")) {
        (true, _) if value >= 1e9 => format!("{:.2} GB", value / 1e9),
        (true, _) if value >= 1e6 => format!("{:.1} MB", value / 1e6),
        (true, _) if value >= 1e3 => format!("{:.1} kB", value / 1e3),
        (true, _) => format!("{value} B"),
        (false, true) => format!("{value:.2} s"),
        (false, false) => format!("{value}"),
    }
}

fn this_program() -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("scale");
    Ok(command)
}

fn one(part: Part, ranks: usize) -> Result<(), String> {
    let of = |sharded| LargeRun { ranks, sharded };
    let figures = match part {
        Part::Programs => programs(of(Sharded::Optimizer)),
        Part::ShardedPrograms => programs(of(Sharded::AllInGroups)),
        Part::Meeting => meeting(ranks, &|joining| {
            let mut command = this_program()?;
            let JoiningProcesses { port, first, count, processes } = *joining;
            command.args([
                "joining-processes",
                &port.to_string(),
                &first.to_string(),
                &count.to_string(),
                &processes.to_string(),
            ]);
            Ok(command)
        }),
        Part::Records => in_folder(|folder| records(of(Sharded::Optimizer), folder)),
        Part::ShardedRecords => in_folder(|folder| records(of(Sharded::AllInGroups), folder)),
    }?;
    println!("{}", figures.line());
    Ok(())
}

/// Does `work` in a folder that is removed afterwards.
fn in_folder<T>(work: impl FnOnce(&std::path::Path) -> Result<T, String>) -> Result<T, String> {
    let folder = std::env::temp_dir().join(format!("pleach-scale-{}", std::process::id()));
    let done = work(&folder);
    // A file that cannot be removed is in the folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    done
}
