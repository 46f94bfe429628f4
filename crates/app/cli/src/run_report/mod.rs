//! `pleach report`: runs as one page.

mod follow;
mod gather;

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use report::{Delivery, Run};
use run::failure::Failure;
use run::messages::stderr::tell;
use run::places::output_file::OutputFile;
use run::places::own_places;

use crate::arguments::report::ReportArguments;
use crate::run_report::follow::Server;
use crate::run_report::gather::Gathered;
use crate::screen::output::print;

/// The page's name where nobody gives one.
const PAGE: &str = "report.html";

/// Writes the page of some runs, or serves it.
///
/// # Errors
/// A folder that is not the folder of a run, a file that cannot be written, or a port that cannot be opened.
pub fn write_or_serve(arguments: &ReportArguments) -> Result<(), Failure> {
    let runs = Gathered::open(&arguments.runs)?;
    if let Some(file) = &arguments.csv {
        return write_csv(&runs, file);
    }
    if let Some(folder) = &arguments.tensorboard {
        return write_event_files(&runs, folder);
    }
    if arguments.follow {
        let server = Server::open(arguments.port)?;
        print(&format!("{} shows the steps as they end; Ctrl-C ends the server\n", server.address()))?;
        return server.serve(&runs);
    }
    let out = arguments.out.clone().unwrap_or_else(|| default_place(&arguments.runs));
    check_own(arguments, &out)?;
    let promised = OutputFile::promised("--out", &out, &runs.own_files());
    let file = promised.map_err(|refused| match &arguments.out {
        Some(_) => refused,
        // Nobody has named this file: the folder of another user may be read, and not written.
        None => Failure::Input(format!("{refused}; use --out FILE.html for a page elsewhere")),
    })?;
    file.write(report::page(&read(&runs)?, Delivery::File))?;
    if out != Path::new("-") {
        tell(&format!("written {}\n", out.display()));
    }
    Ok(())
}

/// The runs as they are now, with a sentence on the standard error for metrics that have other lines than records.
fn read(runs: &Gathered) -> Result<Vec<Run>, Failure> {
    let read = runs.read()?;
    runs.notes(&read).iter().for_each(|note| tell(note));
    Ok(read)
}

/// Writes the steps of one run.
fn write_csv(runs: &Gathered, file: &Path) -> Result<(), Failure> {
    let output = OutputFile::promised("--csv", file, &runs.own_files())?;
    let read = read(runs)?;
    let [run] = read.as_slice() else {
        return Err(Failure::Input(format!("--csv takes one run; got {}; use a file for each", read.len())));
    };
    output.write(report::csv(&run.metrics))?;
    if file != Path::new("-") {
        tell(&format!("written {}\n", file.display()));
    }
    Ok(())
}

/// Writes an event file for each run.
fn write_event_files(runs: &Gathered, folder: &Path) -> Result<(), Failure> {
    let read = read(runs)?;
    let names = folder_names(&read.iter().map(|run| run.name.as_str()).collect::<Vec<_>>());
    for (run, name) in read.iter().zip(names) {
        let own = folder.join(name);
        let file = own.join(report::EVENT_FILE);
        own_places::check_free("--tensorboard", &file)?;
        let failed = |error: std::io::Error| Failure::Input(format!("{} cannot be written: {error}", file.display()));
        std::fs::create_dir_all(&own).map_err(failed)?;
        files::check_replaceable(&file).map_err(|error| failed(error.into()))?;
        let mut draft = files::Draft::create(&file).map_err(failed)?;
        draft.write_all(&report::event_file(&run.metrics)).and_then(|()| draft.keep()).map_err(failed)?;
        tell(&format!("written {}\n", file.display()));
    }
    Ok(())
}

/// A folder for each run inside of another folder: the names of the run's path below it, with a number where another
/// run has them.
fn folder_names(names: &[&str]) -> Vec<PathBuf> {
    let mut taken: Vec<PathBuf> = vec![];
    for name in names {
        let own = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        };
        let parts: PathBuf = Path::new(name).components().filter_map(own).collect();
        let numbered = (2u32..).map(|number| {
            let mut name = parts.clone().into_os_string();
            name.push(format!("-{number}"));
            PathBuf::from(name)
        });
        let free = std::iter::once(parts.clone()).chain(numbered).find(|path| !taken.contains(path));
        taken.push(free.unwrap_or(parts));
    }
    taken
}

/// Refuses a link in the folder of a run that nobody has named: whoever made the folder has chosen its target.
fn check_own(arguments: &ReportArguments, out: &Path) -> Result<(), Failure> {
    let is_in_run = arguments.out.is_none() && arguments.runs.iter().any(|run| out.starts_with(run));
    match is_in_run && out.is_symlink() {
        true => {
            let out = out.display();
            Err(Failure::Input(format!("{out} is a link; remove it, or use --out FILE.html for a page elsewhere")))
        }
        false => Ok(()),
    }
}

fn default_place(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join(PAGE),
        _ => PAGE.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_runs_stay_inside_and_apart() {
        let names = folder_names(&["a", "../b/run", "/b/run", "../../..", "a"]);
        assert_eq!(names, ["a", "b/run", "b/run-2", "", "a-2"].map(PathBuf::from));
    }
}
