//! The tiles of the kernels that compute the products of a run in blocks of 16: each process times them on a GPU of
//! each model that it has, before the first step. Tiles change no bit, so processes may choose differently and nothing
//! is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::figures::counted;
use serde::{Deserialize, Serialize};
use train::{ModelChoices, ProductChoice, RunDevice, TileChoice, kernel_products};

use crate::failure::Failure;
use crate::gpus::devices;
use crate::run::product_algorithms::{Decided, all_gather};
use crate::run::session::Session;

/// No product is timed after this time: training is to begin.
const LIMIT: Duration = Duration::from_secs(3);

/// The choice of a process on a GPU model, as it tells the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    gpu: String,
    timed: usize,
    other_than_estimated: usize,
    left: usize,
    seconds: f64,
    /// Why nothing was timed.
    failure: Option<String>,
}

/// Times tiles, where the run says so. All processes return together: before any of them allocates memory of the run,
/// that of measurements is free. A failure leaves the estimated tiles; if it is the GPU's, ranks will meet it.
///
/// # Errors
/// Failures of other processes; GPUs that cannot be found any more.
pub fn decide(session: &Session<'_>) -> Result<Decided, Failure> {
    let Session { verdict, company, .. } = session;
    let Some(which) = devices::timed_tiles(&verdict.config) else { return Ok(Decided::default()) };
    let RunDevice::Gpus(gpus) = devices::run_device(&verdict.config)? else { return Ok(Decided::default()) };
    let products = kernel_products(&verdict.setup, session.text.training()).map_err(|error| error.to_string());
    let used = company.gpus_of(&verdict.config, &verdict.setup, &gpus)?;
    let of_models: BTreeMap<&str, usize> =
        used.into_iter().rev().map(|index| (gpus.facts()[index].name.as_str(), index)).collect();
    let (mut choices, mut told) = (ModelChoices::new(), vec![]);
    for (gpu, index) in of_models {
        let begin = Instant::now();
        let choice = products
            .as_ref()
            .map_err(String::clone)
            .and_then(|products| gpus.choose_tiles(index, products, (which, LIMIT)).map_err(|error| error.to_string()));
        let (choice, failure) = match choice {
            Ok(choice) => (choice, None),
            Err(failure) => (TileChoice::default(), Some(failure)),
        };
        let TileChoice { tiles, timed, other_than_estimated, left } = choice;
        let (gpu, seconds) = (gpu.to_string(), begin.elapsed().as_secs_f64());
        choices.insert(gpu.clone(), ProductChoice { tiles: Arc::new(tiles), ..ProductChoice::default() });
        told.push(Told { gpu, timed, other_than_estimated, left, seconds, failure });
    }
    let of_all = all_gather(company, "tiles of products", &told)?;
    Ok(Decided { choices, notes: notes(of_all.into_iter().flatten()) })
}

/// A line for each GPU model: the choice of its first process, and the time of the slowest one.
fn notes(all: impl Iterator<Item = Told>) -> Vec<String> {
    let mut of_models: Vec<Told> = vec![];
    for told in all {
        match of_models.iter_mut().find(|other| other.gpu == told.gpu) {
            Some(first) => first.seconds = first.seconds.max(told.seconds),
            None => of_models.push(told),
        }
    }
    of_models.iter().map(note).filter(|note| !note.is_empty()).collect()
}

fn note(told: &Told) -> String {
    let Told { gpu, timed, other_than_estimated, left, seconds, failure } = told;
    if let Some(failure) = failure {
        return format!("products by the estimated tiles of pleach's kernels on {gpu}: {failure}\n");
    }
    let [of_timed, of_left] = [timed, left].map(|count| counted(*count as u64, "product"));
    match (timed, left) {
        (0, 0) => String::new(),
        (0, _) => {
            format!("products by the estimated tiles of pleach's kernels on {gpu}: no memory to time {of_left}\n")
        }
        (_, left) => {
            let rest = if *left == 0 { String::new() } else { format!("; {of_left} more by the estimated ones") };
            format!(
                "products by the fastest tiles of {of_timed} on {gpu}, {other_than_estimated} of them not the estimated one, \
                 timed in {seconds:.1} s{rest}\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_model_says_how_many_products_were_timed() {
        let told = |gpu: &str, timed, left, seconds| {
            let gpu = gpu.to_string();
            Told { gpu, timed, other_than_estimated: timed / 2, left, seconds, failure: None }
        };
        let all =
            [told("H200", 12, 0, 0.62), told("H200", 11, 1, 3.06), told("H100", 3, 9, 3.0), told("GH200", 0, 2, 0.1)];
        let expected = [
            "products by the fastest tiles of 12 products on H200, 6 of them not the estimated one, timed in 3.1 s\n",
            "products by the fastest tiles of 3 products on H100, 1 of them not the estimated one, timed in 3.0 s; 9 products \
             more by the estimated ones\n",
            "products by the estimated tiles of pleach's kernels on GH200: no memory to time 2 products\n",
        ];
        assert_eq!(notes(all.into_iter()), expected);
        assert_eq!(notes([told("A100", 0, 0, 0.1)].into_iter()), [""; 0]);
        let failed = Told { failure: Some("no program".into()), ..told("H200", 0, 0, 0.1) };
        let said = notes([failed].into_iter());
        assert_eq!(said, ["products by the estimated tiles of pleach's kernels on H200: no program\n"]);
    }
}
