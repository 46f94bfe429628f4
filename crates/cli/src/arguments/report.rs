//! Arguments of `report`. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Folders of runs; curves of several are drawn over each other
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Write the page into this file; by default report.html in the folder of the run, or, of several runs, in this folder
    #[arg(long, value_name = "FILE.html", conflicts_with = "follow")]
    pub out: Option<PathBuf>,
    /// Write the steps of the run into this file as CSV, instead of the page
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["out", "follow", "tensorboard"])]
    pub csv: Option<PathBuf>,
    /// Write an event file of TensorBoard for each run into a folder of its name in this folder, instead of the page
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["out", "follow"])]
    pub tensorboard: Option<PathBuf>,
    /// Serve the page to browsers of this machine until Ctrl-C; it shows the steps of runs that continue
    #[arg(long)]
    pub follow: bool,
    /// Port of the server; 0 takes a free one
    #[arg(long, value_name = "PORT", requires = "follow", default_value_t = 0)]
    pub port: u16,
}
