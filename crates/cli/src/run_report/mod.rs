//! `pleach report`: runs as one page.

mod follow;
mod gather;
pub mod timeline;

use std::io::Write;
use std::path::{Path, PathBuf};

use report::Delivery;

use crate::arguments::report::ReportArguments;
use crate::failure::Failure;
use crate::run_report::follow::Server;
use crate::run_report::gather::Gathered;
use crate::screen::output::{print, tell};
use crate::screen::output_file::OutputFile;

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
    let inputs: Vec<PathBuf> = runs.files();
    let file = OutputFile::promised("--out", &out, &inputs)?;
    file.write(report::page(&runs.read(), Delivery::File))?;
    if out != Path::new("-") {
        tell(&format!("written {}\n", out.display()));
    }
    Ok(())
}

/// Writes the steps of one run.
fn write_csv(runs: &Gathered, file: &Path) -> Result<(), Failure> {
    let output = OutputFile::promised("--csv", file, &runs.files())?;
    let read = runs.read();
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
    for run in runs.read() {
        let own = folder.join(run.name.trim_start_matches('/'));
        let file = own.join(report::EVENT_FILE);
        let failed = |error: std::io::Error| Failure::Input(format!("{} cannot be written: {error}", file.display()));
        std::fs::create_dir_all(&own).map_err(failed)?;
        let mut draft = files::Draft::create(&file).map_err(failed)?;
        draft.write_all(&report::event_file(&run.metrics)).and_then(|()| draft.keep()).map_err(failed)?;
        tell(&format!("written {}\n", file.display()));
    }
    Ok(())
}

fn default_place(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join(PAGE),
        _ => PAGE.into(),
    }
}
