//! `pleach report`: runs as one page.

mod follow;
mod gather;
pub mod timeline;

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

fn default_place(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join(PAGE),
        _ => PAGE.into(),
    }
}
