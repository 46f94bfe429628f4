//! `pleach train`: a run, and the screen that shows it.

mod screen;

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::run::open::Run;
use crate::train_command::screen::Screen;

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    Run::open(arguments.spec())?.train(&Screen::new(arguments))
}
