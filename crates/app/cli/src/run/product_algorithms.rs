//! The library of GPUs that computes the products of a run, and its algorithms. One process decides for each GPU model,
//! before the first step; all others take its choice. The folder of the run keeps it for a resumption.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::figures::counted;
use config::{ProductAlgorithms, Products, RunConfig};
use files::{InputError, InputKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use train::{
    Choice, ChosenAlgorithms, ChosenTiles, EqualChoice, Gpus, ModelChoices, RunDevice, StreamProduct, blocks_products,
    library_products,
};

use crate::failure::Failure;
use crate::gpus::devices;
use crate::places::names::ALGORITHMS;
use crate::process_group::company::Company;
use crate::process_group::several::Part;
use crate::run::algorithms_file::{self, Kept, OfPlatform, Platform};
use crate::run::library_versions;
use crate::run::product_tiles;
use crate::run::session::Session;

/// The algorithms or tiles of a run, and what there is to say about them.
#[derive(Debug, Default)]
pub struct Decided {
    pub choices: ModelChoices,
    /// Lines for process 0 to print.
    pub notes: Vec<String>,
}

/// A decision of one process, for a platform.
#[derive(Serialize, serde::Deserialize)]
struct Decision {
    of: OfPlatform,
    note: String,
}

/// How algorithms of the library are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By their times.
    Timed,
    /// By their times, where they have the bits of products in blocks.
    Equal,
}

impl Way {
    /// That of a run whose algorithms are chosen.
    fn of(config: &RunConfig) -> Option<Way> {
        match config.run.product_algorithms {
            ProductAlgorithms::First => None,
            ProductAlgorithms::Timed => devices::has_gpus(config).then_some(Way::Timed),
            ProductAlgorithms::Equal => devices::has_gpus(config).then_some(Way::Equal),
        }
    }

    /// These, as the file names them.
    fn platforms(self, own: BTreeMap<Platform, usize>) -> BTreeMap<Platform, usize> {
        match self {
            Way::Timed => own,
            // Algorithms that were not compared are those of another library.
            Way::Equal => {
                let compared = |Platform { gpu, driver, library }| Platform {
                    gpu,
                    driver,
                    library: format!("{library} with the bits of blocks16"),
                };
                own.into_iter().map(|(of, index)| (compared(of), index)).collect()
            }
        }
    }
}

/// Decides the tiles of a run, and the algorithms together with the other processes, before any of them opens a rank,
/// and records the libraries. Process 0 has the folder of the run, and writes the files there.
///
/// # Errors
/// A GPU or a library that fails; a file that cannot be written; failures of other processes.
pub fn decide(session: &Session<'_>) -> Result<Decided, Failure> {
    let Session { verdict, company, .. } = session;
    let config = &verdict.config;
    let decided = product_tiles::decide(session)?;
    let (way, is_recorded) = (Way::of(config), is_recorded(config.train.precision.products()));
    if way.is_none() && !is_recorded {
        return Ok(decided);
    }
    let RunDevice::Gpus(gpus) = devices::run_device(config)? else { return Ok(decided) };
    let own = own_platforms(session, &gpus)?;
    let Decided { choices, mut notes } = decided;
    if is_recorded {
        let (platforms, attention) = (own.keys().cloned().collect::<Vec<_>>(), gpus.attention_version());
        let libraries = (&platforms[..], attention.as_ref());
        notes.extend(library_versions::record(company, &config.run.folder, libraries, config.run.product_algorithms)?);
    }
    match way {
        None => Ok(Decided { choices, notes }),
        Some(way) => chosen(session, &gpus, (way, way.platforms(own)), Decided { choices, notes }),
    }
}

/// Whether the libraries of a run with these products decide its bits.
fn is_recorded(products: Products) -> bool {
    match products {
        Products::Device => true,
        Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => false,
    }
}

/// Adds the algorithms on the platforms of this process, `own`, to what is decided: those of the file, or chosen now.
fn chosen(
    session: &Session<'_>,
    gpus: &Gpus,
    (way, own): (Way, BTreeMap<Platform, usize>),
    Decided { mut choices, mut notes }: Decided,
) -> Result<Decided, Failure> {
    let Session { verdict, company, .. } = session;
    let path = &verdict.config.run.folder.join(ALGORITHMS);
    let (kept, unread) = of_first(company, "algorithms of the run", || Ok(read(path)))?;
    let kept = kept.map_or(Ok(Kept::new()), |text| algorithms_file::read(&text)).map_err(Failure::Work)?;
    let platforms: Vec<Platform> = own.keys().cloned().collect();
    let of_all = all_gather(company, "GPUs that multiply", &platforms)?;
    let number = company.number();
    let decides = |platform: &&Platform| of_all.iter().position(|all| all.contains(platform)) == Some(number);
    let mut decisions = vec![];
    for platform in platforms.iter().filter(decides) {
        let known = kept.get(platform).cloned().unwrap_or_default();
        let (products, chosen, note) = match way {
            Way::Timed => timed(session, (gpus, own[platform]), platform, &known, &kept)?,
            Way::Equal => {
                let tiles = choices.get(&platform.gpu).map(|choice| Arc::clone(&choice.tiles)).unwrap_or_default();
                equal(session, (gpus, own[platform]), platform, (&known, &tiles))?
            }
        };
        // Choices for another layout of the run stay.
        let others = known.all().filter(|(product, _)| !products.contains(product));
        let all = others.chain(chosen.all()).map(|(product, words)| (*product, words)).collect();
        decisions.push(Decision { of: OfPlatform::of(platform, &all), note });
    }
    notes.extend(unread);
    let mut all = kept.clone();
    for Decision { of, note } in all_gather(company, "algorithms of products", &decisions)?.into_iter().flatten() {
        algorithms_file::add(&mut all, of.platform.clone(), of.algorithms().map_err(Failure::Work)?);
        notes.push(note);
    }
    let written = || if all == kept { Ok(()) } else { write(path, &all) };
    company.once("the file of algorithms", written)?;
    for platform in platforms {
        if let Some(algorithms) = all.get(&platform) {
            choices.entry(platform.gpu).or_default().algorithms = Arc::new(algorithms.clone());
        }
    }
    Ok(Decided { choices, notes })
}

/// The products of the run, their algorithms by times, and a line.
fn timed(
    session: &Session<'_>,
    (gpus, index): (&Gpus, usize),
    platform: &Platform,
    known: &ChosenAlgorithms,
    kept: &Kept,
) -> Result<(Vec<StreamProduct>, ChosenAlgorithms, String), Failure> {
    let products = library_products(&session.verdict.setup, session.text.training());
    let products = products.map_err(|error| Failure::Work(error.to_string()))?;
    let choice = gpus.choose_algorithms(index, &products, known);
    let choice = choice.map_err(|error| Failure::Work(error.to_string()))?;
    let note = note(platform, &choice, known, kept);
    Ok((products, choice.algorithms, note))
}

/// No product is compared after this time.
const LIMIT: Duration = Duration::from_secs(30);

/// The products of the run, the equal algorithms that are the fastest, and a line.
fn equal(
    session: &Session<'_>,
    (gpus, index): (&Gpus, usize),
    platform: &Platform,
    (known, tiles): (&ChosenAlgorithms, &ChosenTiles),
) -> Result<(Vec<StreamProduct>, ChosenAlgorithms, String), Failure> {
    let products = blocks_products(&session.verdict.setup, session.text.training());
    let products = products.map_err(|error| Failure::Work(error.to_string()))?;
    let begin = Instant::now();
    let choice = gpus.choose_equal_algorithms(index, &products, (known, tiles), LIMIT);
    let choice = choice.map_err(|error| Failure::Work(error.to_string()))?;
    let note = note_of_equal(platform, &choice, begin.elapsed().as_secs_f64());
    Ok((products.iter().map(|product| product.of_library).collect(), choice.algorithms, note))
}

/// The platforms of the GPUs that ranks of this process have, each with the index of one of these GPUs.
fn own_platforms(session: &Session<'_>, gpus: &Gpus) -> Result<BTreeMap<Platform, usize>, Failure> {
    let Session { verdict, company, .. } = session;
    let [driver, library] = gpus.versions().map_err(|error| Failure::Input(error.to_string()))?;
    let used = company.gpus_of(&verdict.config, &verdict.setup, gpus)?;
    let platform = |index: usize| {
        let gpu = gpus.facts()[index].name.clone();
        (Platform { gpu, driver: driver.clone(), library: library.clone() }, index)
    };
    Ok(used.into_iter().rev().map(platform).collect())
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

fn write(path: &Path, all: &Kept) -> Result<(), Failure> {
    files::replace(path, algorithms_file::text_of(all))
        .map_err(|error| Failure::Write(format!("{} cannot be written: {error}", path.display())))
}

/// The line about a choice.
fn note(platform: &Platform, choice: &Choice, known: &ChosenAlgorithms, kept: &Kept) -> String {
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
fn note_of_equal(platform: &Platform, choice: &EqualChoice, seconds: f64) -> String {
    let EqualChoice { algorithms: _, compared, equal, by_library, not_proposed } = choice;
    let on = platform.described();
    let mut note = match compared {
        0 => format!("products by pleach's kernels and by the algorithms of {ALGORITHMS} for {on}\n"),
        _ => format!(
            "products compared on {on} in {seconds:.1} s: of {}, {equal} have algorithms with the same bits on random numbers, \
             and {by_library} are computed by them\n",
            counted(*compared as u64, "product")
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
    company: &Company,
    topic: &str,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let malformed = |error: serde_json::Error| Failure::Work(format!("{topic}: {error}"));
    match (company.once(topic, work)?, company) {
        (Part::First(value), Company::Alone) => Ok(value),
        (Part::First(value), Company::Several(several)) => {
            several.broadcast(topic, serde_json::to_vec(&value).map_err(malformed)?)?;
            Ok(value)
        }
        (Part::Other(several), _) => serde_json::from_slice(&several.broadcast(topic, vec![])?).map_err(malformed),
    }
}

/// The values of all processes by number, on all processes.
pub(super) fn all_gather<T: Serialize + DeserializeOwned>(
    company: &Company,
    topic: &str,
    own: &T,
) -> Result<Vec<T>, Failure> {
    match company {
        Company::Several(several) => several.all_gather(topic, own),
        Company::Alone => {
            let malformed = |error: serde_json::Error| Failure::Work(format!("{topic}: {error}"));
            let copy = serde_json::to_vec(own).and_then(|own| serde_json::from_slice(&own));
            Ok(vec![copy.map_err(malformed)?])
        }
    }
}
