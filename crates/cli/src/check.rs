//! `pleach check`: the verdict on a run, and what it is.

use spec::{RunConfig, unique_parameters};

use crate::arguments::CheckArguments;
use crate::failure::Failure;
use crate::figures::grouped;
use crate::input;

/// Prints what the run is.
///
/// # Errors
/// All that is wrong with it.
pub fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let config = input::load(&arguments.run)?;
    print!("{}", describe(&config));
    Ok(())
}

/// A run in a few lines.
pub fn describe(config: &RunConfig) -> String {
    let (model, parallelism, train) = (&config.model, &config.parallelism, &config.train);
    let tokens = train.global_batch * train.sequence_length;
    let paths: Vec<String> = config.data.sources.iter().map(|source| source.path.display().to_string()).collect();
    let corpus = if paths.is_empty() { "embedded".to_string() } else { paths.join(", ") };
    format!(
        "model   {} parameters: {} layers, hidden {}, {} heads\n\
         ranks   {} = dp {} x tp {} x pp {}\n\
         step    {} tokens: {} sequences of {}, {} microbatches of {} per replica\n\
         run     {} steps on {corpus} text, results in {}\n",
        grouped(unique_parameters(model)),
        model.num_layers,
        model.hidden,
        model.num_heads,
        config.run.ranks,
        parallelism.dp,
        parallelism.tp,
        parallelism.pp,
        grouped(tokens as u64),
        train.global_batch,
        train.sequence_length,
        parallelism.num_microbatches(train.global_batch),
        parallelism.microbatch_size,
        grouped(u64::from(train.steps)),
        config.run.folder.display(),
    )
}
