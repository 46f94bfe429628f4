//! `pleach train`: a run, and the screen that shows it.

mod screen;

use run::Run;
use run::failure::Failure;

use crate::arguments::TrainArguments;
use crate::train::screen::Screen;

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    Run::open(arguments.spec())?.train(&Screen::new(arguments))
}
