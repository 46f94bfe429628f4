//! The kernels and algorithms that compute the products of a run on GPUs, chosen before the first step: tiles by each
//! process, algorithms by one process for each GPU model. The folder of the run keeps algorithms for a resumption.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::figures::counted;
use config::{KernelContest, Products, TimedAlgorithms, TimedTiles, kernel_contest};
use files::{InputError, InputKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use train::{Choice, ChosenAlgorithms, ChosenTiles, Gpus, ModelChoices, RunDevice, RunProduct, run_products};

use crate::failure::Failure;
use crate::gpus::devices;
use crate::places::names::ALGORITHMS;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::Part;
use crate::training::algorithms_file::{self, AlgorithmsByPlatform, Platform, PlatformAlgorithms};
use crate::training::library_versions;
use crate::training::session::Session;

/// No tile is timed after this time: training is to begin.
const TILES_LIMIT: Duration = Duration::from_secs(3);

/// No algorithm is compared after this time.
const EQUAL_LIMIT: Duration = Duration::from_secs(30);

/// The algorithms and tiles of a run, and what there is to say about them.
#[derive(Debug, Default)]
pub struct Decided {
    pub choices: ModelChoices,
    /// Lines for process 0 to print.
    pub notes: Vec<String>,
}

/// A decision of one process, for a platform.
#[derive(Serialize, Deserialize)]
struct Decision {
    of: PlatformAlgorithms,
    note: String,
}

/// The choice of tiles of a process on a GPU model, as it is sent to process 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TileReport {
    gpu: String,
    timed: usize,
    other_than_first: usize,
    left: usize,
    seconds: f64,
    /// Why nothing was timed.
    failure: Option<String>,
}

/// Decides the tiles of a run, and the algorithms together with the other processes, before any of them opens a rank,
/// and records the libraries. Process 0 has the folder of the run, and writes the files there.
///
/// # Errors
/// A GPU or a library that fails; a file that cannot be written; failures of other processes.
pub fn decide(session: &Session<'_>) -> Result<Decided, Failure> {
    let Session { verdict, process_group, .. } = session;
    let config = &verdict.config;
    let KernelContest { tiles, algorithms } = kernel_contest(config);
    let (mut decided, is_recorded) = (Decided::default(), is_recorded(config.train.precision.products()));
    if tiles.is_none() && algorithms.is_none() && !is_recorded {
        return Ok(decided);
    }
    let RunDevice::Gpus(gpus) = devices::run_device(config)? else { return Ok(decided) };
    let used = process_group.gpus_of(config, &verdict.setup, &gpus)?;
    let own = used.into_iter().rev().map(|index| (gpus.facts()[index].name.clone(), index)).collect();
    let chooser = Chooser { session, gpus: &gpus, own, products: OnceCell::new() };
    if let Some(which) = tiles {
        chooser.tiles(which, &mut decided)?;
    }
    if algorithms.is_none() && !is_recorded {
        return Ok(decided);
    }
    let own = chooser.platforms()?;
    if is_recorded {
        let (platforms, attention) = (own.keys().cloned().collect::<Vec<_>>(), gpus.attention_version());
        let libraries = (&platforms[..], attention.as_ref());
        let line =
            library_versions::record(process_group, &config.run.folder, libraries, config.run.product_algorithms)?;
        decided.notes.extend(line);
    }
    if let Some(which) = algorithms {
        chooser.algorithms(which, own, &mut decided)?;
    }
    Ok(decided)
}

/// Whether the libraries of a run with these products decide its bits.
fn is_recorded(products: Products) -> bool {
    match products {
        Products::Device => true,
        Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => false,
    }
}

/// The GPUs and the products of a run.
struct Chooser<'a> {
    session: &'a Session<'a>,
    gpus: &'a Gpus,
    /// The GPU models of this process's ranks, each with the index of one of its GPUs.
    own: BTreeMap<String, usize>,
    /// Filled when they are needed.
    products: OnceCell<Result<Vec<RunProduct>, String>>,
}

impl Chooser<'_> {
    /// The products, or why the programs do not run.
    fn products(&self) -> Result<&[RunProduct], String> {
        let Session { verdict, text, .. } = self.session;
        let list = || run_products(&verdict.setup, text.training()).map_err(|error| error.to_string());
        self.products.get_or_init(list).as_deref().map_err(String::clone)
    }

    /// Adds tiles to what is decided: those that this process times on each GPU model that it has. Tiles change no bit,
    /// so processes may choose differently and nothing is kept. All processes return together: before any of them
    /// allocates memory of the run, that of measurements is free. A failure leaves the estimated tiles; if it is the
    /// GPU's, ranks will meet it.
    fn tiles(&self, which: TimedTiles, decided: &mut Decided) -> Result<(), Failure> {
        let (products, mut reports) = (self.products(), vec![]);
        for (gpu, index) in &self.own {
            let begin = Instant::now();
            let choose = |products| self.gpus.choose_tiles(*index, products, (which, TILES_LIMIT));
            let choice = products.clone().and_then(|list| choose(list).map_err(|error| error.to_string()));
            let (choice, failure) = match choice {
                Ok(choice) => (choice, None),
                Err(failure) => (Choice::default(), Some(failure)),
            };
            let Choice { tiles, timed, other_than_first, left, .. } = choice;
            let (gpu, seconds) = (gpu.clone(), begin.elapsed().as_secs_f64());
            decided.choices.entry(gpu.clone()).or_default().tiles = Arc::new(tiles);
            reports.push(TileReport { gpu, timed, other_than_first, left, seconds, failure });
        }
        let of_all = all_gather(self.session.process_group, "tiles of products", &reports)?;
        decided.notes.extend(notes_of_tiles(of_all.into_iter().flatten()));
        Ok(())
    }

    /// The platforms of this process's ranks, each with the index of one of its GPUs.
    fn platforms(&self) -> Result<BTreeMap<Platform, usize>, Failure> {
        let [driver, library] = self.gpus.versions().map_err(|error| Failure::Input(error.to_string()))?;
        let platform = |(gpu, index): (&String, &usize)| {
            (Platform { gpu: gpu.clone(), driver: driver.clone(), library: library.clone() }, *index)
        };
        Ok(self.own.iter().map(platform).collect())
    }

    /// Adds the algorithms on the platforms of this process, `own`, to what is decided: those of the file, or chosen
    /// now.
    fn algorithms(
        &self,
        which: TimedAlgorithms,
        own: BTreeMap<Platform, usize>,
        decided: &mut Decided,
    ) -> Result<(), Failure> {
        let Session { verdict, process_group, .. } = self.session;
        let path = &verdict.config.run.folder.join(ALGORITHMS);
        let (kept, unread) = of_first(process_group, "algorithms of the run", || Ok(read(path)))?;
        let kept =
            kept.map_or(Ok(AlgorithmsByPlatform::new()), |text| algorithms_file::read(&text)).map_err(Failure::Work)?;
        let own: BTreeMap<Platform, usize> = own.into_iter().map(|(of, index)| (of_file(which, of), index)).collect();
        let platforms: Vec<Platform> = own.keys().cloned().collect();
        let of_all = all_gather(process_group, "GPUs that multiply", &platforms)?;
        let number = process_group.number();
        let mut decisions = vec![];
        for (platform, index) in &own {
            if of_all.iter().position(|all| all.contains(platform)) == Some(number) {
                let tiles = decided.choices.get(&platform.gpu).map(|choice| Arc::clone(&choice.tiles));
                decisions.push(self.decision(which, (platform, *index), &kept, &tiles.unwrap_or_default())?);
            }
        }
        decided.notes.extend(unread);
        let mut all = kept.clone();
        for Decision { of, note } in
            all_gather(process_group, "algorithms of products", &decisions)?.into_iter().flatten()
        {
            algorithms_file::add(&mut all, of.platform.clone(), of.algorithms().map_err(Failure::Work)?);
            decided.notes.push(note);
        }
        let written = || if all == kept { Ok(()) } else { write(path, &all) };
        process_group.once("the file of algorithms", written)?;
        for platform in own.into_keys() {
            if let Some(algorithms) = all.get(&platform) {
                decided.choices.entry(platform.gpu).or_default().algorithms = Arc::new(algorithms.clone());
            }
        }
        Ok(())
    }

    /// The algorithms of a platform, chosen on the GPU of this index.
    fn decision(
        &self,
        which: TimedAlgorithms,
        (platform, index): (&Platform, usize),
        kept: &AlgorithmsByPlatform,
        tiles: &ChosenTiles,
    ) -> Result<Decision, Failure> {
        let none = ChosenAlgorithms::new();
        let known = kept.get(platform).unwrap_or(&none);
        let limit = match which {
            TimedAlgorithms::Proposed => Duration::MAX,
            TimedAlgorithms::Equal => EQUAL_LIMIT,
        };
        let products = self.products().map_err(Failure::Work)?;
        let begin = Instant::now();
        let choice = self.gpus.choose_algorithms(index, products, (which, limit), (known, tiles));
        let choice = choice.map_err(|error| Failure::Work(error.to_string()))?;
        let note = match which {
            TimedAlgorithms::Proposed => note_of_proposed(platform, &choice, known, kept),
            TimedAlgorithms::Equal => note_of_equal(platform, &choice, begin.elapsed().as_secs_f64()),
        };
        // Choices for another layout of the run stay.
        let mut all = known.clone();
        all.retain(|product, _| products.iter().all(|listed| listed.of_library != *product));
        all.extend(choice.algorithms);
        Ok(Decision { of: PlatformAlgorithms::of(platform, &all), note })
    }
}

/// A platform as the file names it: algorithms that were not compared are those of another library.
fn of_file(which: TimedAlgorithms, platform: Platform) -> Platform {
    match which {
        TimedAlgorithms::Proposed => platform,
        TimedAlgorithms::Equal => {
            Platform { library: format!("{} with the bits of blocks16", platform.library), ..platform }
        }
    }
}

/// The text of the file, if there is one that can be used, and a line about one that cannot.
fn read(path: &Path) -> (Option<String>, Option<String>) {
    let unusable = |error: String| {
        let path = path.display();
        (None, Some(format!("warning: {path} {error}; algorithms of products are chosen again, with other bits\n")))
    };
    match files::read_text_of_file(path, InputKind::ProductAlgorithms) {
        Ok(text) => match algorithms_file::read(&text) {
            Ok(_) => (Some(text), None),
            Err(error) => unusable(format!("cannot be used: {error}")),
        },
        Err(InputError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => (None, None),
        Err(error) => unusable(error.to_string()),
    }
}

fn write(path: &Path, all: &AlgorithmsByPlatform) -> Result<(), Failure> {
    files::replace(path, algorithms_file::text_of(all))
        .map_err(|error| Failure::Write(format!("{} cannot be written: {error}", path.display())))
}

/// A line for each GPU model: the choice of its first process, and the time of the slowest one.
fn notes_of_tiles(all: impl Iterator<Item = TileReport>) -> Vec<String> {
    let mut of_models: Vec<TileReport> = vec![];
    for reports in all {
        match of_models.iter_mut().find(|other| other.gpu == reports.gpu) {
            Some(first) => first.seconds = first.seconds.max(reports.seconds),
            None => of_models.push(reports),
        }
    }
    of_models.iter().map(note_of_tiles).filter(|note| !note.is_empty()).collect()
}

fn note_of_tiles(reports: &TileReport) -> String {
    let TileReport { gpu, timed, other_than_first, left, seconds, failure } = reports;
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
                "products by the fastest tiles of {of_timed} on {gpu}, {other_than_first} of them not the estimated one, \
                 timed in {seconds:.1} s{rest}\n"
            )
        }
    }
}

/// The line about a choice among proposed algorithms.
fn note_of_proposed(
    platform: &Platform,
    choice: &Choice,
    known: &ChosenAlgorithms,
    kept: &AlgorithmsByPlatform,
) -> String {
    let (on, timed) = (platform.described(), counted(choice.timed as u64, "product"));
    let others = choice.other_than_first;
    let chosen = format!("the fastest algorithms of {timed} on {on}, {others} of them not the first one proposed");
    if choice.not_proposed > 0 {
        let gone = counted(choice.not_proposed as u64, "algorithm");
        return format!(
            "products by {chosen}\nwarning: the library does not propose {gone} of {ALGORITHMS}; chosen again, with other bits\n"
        );
    }
    match (choice.timed, known.is_empty(), kept.keys().next()) {
        (0, ..) => format!("products by the algorithms of {ALGORITHMS} for {on}\n"),
        (_, true, Some(other)) => format!(
            "products by {chosen}\nwarning: {ALGORITHMS} has algorithms of {}, and none of {on}; chosen again, with other bits\n",
            other.described()
        ),
        (_, true, None) | (_, false, _) => format!("products by {chosen}\n"),
    }
}

/// The line about a choice among pleach's kernels and equal algorithms.
fn note_of_equal(platform: &Platform, choice: &Choice, seconds: f64) -> String {
    let Choice { timed, equal, other_than_first: by_library, not_proposed, .. } = choice;
    let on = platform.described();
    let mut note = match timed {
        0 => format!("products by pleach's kernels and by the algorithms of {ALGORITHMS} for {on}\n"),
        _ => format!(
            "products compared on {on} in {seconds:.1} s: of {}, {equal} have algorithms with the same bits on random numbers, \
             and {by_library} are computed by them\n",
            counted(*timed as u64, "product")
        ),
    };
    if *not_proposed > 0 {
        let gone = counted(*not_proposed as u64, "algorithm");
        note += &format!(
            "warning: the library does not propose {gone} of {ALGORITHMS}; these products were compared again\n"
        );
    }
    note
}

/// A value of process 0, on all processes.
fn of_first<T: Serialize + DeserializeOwned>(
    process_group: &ProcessGroup,
    topic: &str,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let malformed = |error: serde_json::Error| Failure::Work(format!("{topic}: {error}"));
    match (process_group.once(topic, work)?, process_group) {
        (Part::First(value), ProcessGroup::Alone) => Ok(value),
        (Part::First(value), ProcessGroup::Several(member)) => {
            member.broadcast(topic, serde_json::to_vec(&value).map_err(malformed)?)?;
            Ok(value)
        }
        (Part::Other(member), _) => serde_json::from_slice(&member.broadcast(topic, vec![])?).map_err(malformed),
    }
}

/// The values of all processes by number, on all processes.
pub(super) fn all_gather<T: Serialize + DeserializeOwned>(
    process_group: &ProcessGroup,
    topic: &str,
    own: &T,
) -> Result<Vec<T>, Failure> {
    match process_group {
        ProcessGroup::Several(member) => member.all_gather(topic, own),
        ProcessGroup::Alone => {
            let malformed = |error: serde_json::Error| Failure::Work(format!("{topic}: {error}"));
            let copy = serde_json::to_vec(own).and_then(|own| serde_json::from_slice(&own));
            Ok(vec![copy.map_err(malformed)?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_model_says_how_many_products_were_timed() {
        let reports = |gpu: &str, timed, left, seconds| {
            let gpu = gpu.to_string();
            TileReport { gpu, timed, other_than_first: timed / 2, left, seconds, failure: None }
        };
        let all = [
            reports("H200", 12, 0, 0.62),
            reports("H200", 11, 1, 3.06),
            reports("H100", 3, 9, 3.0),
            reports("GH200", 0, 2, 0.1),
        ];
        let expected = [
            "products by the fastest tiles of 12 products on H200, 6 of them not the estimated one, timed in 3.1 s\n",
            "products by the fastest tiles of 3 products on H100, 1 of them not the estimated one, timed in 3.0 s; 9 products \
             more by the estimated ones\n",
            "products by the estimated tiles of pleach's kernels on GH200: no memory to time 2 products\n",
        ];
        assert_eq!(notes_of_tiles(all.into_iter()), expected);
        assert_eq!(notes_of_tiles([reports("A100", 0, 0, 0.1)].into_iter()), [""; 0]);
        let failed = TileReport { failure: Some("no program".into()), ..reports("H200", 0, 0, 0.1) };
        let said = notes_of_tiles([failed].into_iter());
        assert_eq!(said, ["products by the estimated tiles of pleach's kernels on H200: no program\n"]);
    }
}
