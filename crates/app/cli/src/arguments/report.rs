//! Arguments of `report`. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Run folders; curves of several runs share their axes
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Write the page to this file; the default is report.html in the run folder, or, for several runs, in the current
    /// folder
    #[arg(long, value_name = "FILE.html", conflicts_with = "follow")]
    pub out: Option<PathBuf>,
    /// Write the steps as CSV to this file instead of a page
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["out", "follow", "tensorboard"])]
    pub csv: Option<PathBuf>,
    /// Write TensorBoard event files to this folder, one folder per run, instead of a page
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["out", "follow"])]
    pub tensorboard: Option<PathBuf>,
    /// Serve the page to browsers of this machine until Ctrl-C, and update it while the runs continue
    #[arg(long)]
    pub follow: bool,
    /// Port of the server; 0 for a free port
    #[arg(long, value_name = "PORT", requires = "follow", default_value_t = 0)]
    pub port: u16,
}
