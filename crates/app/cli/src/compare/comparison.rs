//! `pleach check A B`: which promise two layouts of one run make each other.

use std::fmt;
use std::path::Path;

use config::{GradientSums, Offload, RunConfig, TrainSpec};
use prove::{EqualityClass, RankOrder};
use run::failure::Failure;
use run::process_group::shared_limit::shared_limit;
use run::run_file::RunFile;
use run::verdict::{self, Planned};
use train::describe_engine;

/// Two legal runs, compared key by key.
#[derive(Debug)]
pub struct Comparison {
    /// Names of the two run files.
    pub names: [String; 2],
    /// The promise; `None` where the two do not compute the same.
    pub class: Option<EqualityClass>,
    /// Keys with different values.
    pub differences: Vec<Difference>,
}

/// One key with its two values; a value is empty where its run has no such key.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// `section.key`.
    pub key: String,
    /// As they would be written in a run file.
    pub values: [String; 2],
}

/// Reads `first` and the run file `other`, both with the overrides, and compares them.
///
/// # Errors
/// A file that cannot be read, or all that is wrong with the first that is not legal.
pub fn comparison(first: &RunFile, other: &Path) -> Result<Comparison, Failure> {
    let planned = |run: &RunFile| -> Result<RunConfig, Failure> {
        let (config, locations) = run.located()?;
        let limit = shared_limit(&config);
        let verdict = verdict::judge(config, &locations, limit, Planned::EveryBatch).map_err(Failure::Run)?;
        Ok(verdict.config)
    };
    let name = first.file.as_ref().map_or("the quick start".into(), |file| file.display().to_string());
    let second = RunFile { file: Some(other.into()), ..first.clone() };
    let (first, second) = (planned(first)?, planned(&second)?);
    Ok(compare([name, other.display().to_string()], &first, &second))
}

/// Compares two legal runs.
pub fn compare(names: [String; 2], first: &RunConfig, second: &RunConfig) -> Comparison {
    let differences = differences(first, second);
    let [first_train, second_train] = [first, second].map(|config| TrainSpec {
        batch_ramp: None,
        sums: GradientSums::Single,
        offload: Offload::None,
        ..config.train.clone()
    });
    let same_run = (&first.model, &first_train, &first.data) == (&second.model, &second_train, &second.data);
    let engines = [first, second].map(|config| describe_engine(config.run.device, config.run.threads_per_rank));
    let of_ramps = EqualityClass::of_ramps(first.train.batch_ramp, second.train.batch_ramp);
    let class = of_ramps
        .filter(|_| same_run)
        .map(|of_ramps| of_ramps.max(EqualityClass::of(&first.parallelism, &second.parallelism)))
        .map(|class| class.in_sums([first.train.sums, second.train.sums]))
        .map(|class| {
            class.in_orders([first, second].map(|config| RankOrder::of(config.run.collectives, config.train.sums)))
        })
        .map(|class| {
            let layouts = [&first.parallelism, &second.parallelism];
            class.in_products(first.train.precision.products(), layouts, [&engines[0], &engines[1]])
        })
        .map(|class| class.in_algorithms([first, second].map(|config| config.run.product_algorithms)))
        .map(|class| class.in_attention([first.run.attention_library, second.run.attention_library]))
        .map(|class| class.on_engines([&engines[0], &engines[1]]));
    Comparison { names, class, differences }
}

/// Keys that differ, but for where and on how many ranks a run runs.
fn differences(first: &RunConfig, second: &RunConfig) -> Vec<Difference> {
    let [first, second] = [first, second].map(values);
    let mut keys: Vec<&String> = first.iter().map(|(key, _)| key).collect();
    keys.extend(second.iter().map(|(key, _)| key).filter(|key| !first.iter().any(|(own, _)| own == *key)));
    let value = |run: &[(String, String)], key: &str| {
        run.iter().find(|(own, _)| own == key).map_or(String::new(), |(_, value)| value.clone())
    };
    let differences =
        keys.into_iter().map(|key| Difference { key: key.clone(), values: [value(&first, key), value(&second, key)] });
    differences.filter(|difference| difference.values[0] != difference.values[1]).collect()
}

/// The keys of `[run]` that may change a bit.
const BITS: [&str; 3] = ["run.collectives", "run.product_algorithms", "run.attention_library"];

/// `section.key` and value of every line of the resolved run; of `[run]` only what may change a bit.
fn values(config: &RunConfig) -> Vec<(String, String)> {
    let text = config.to_toml();
    let mut section = "";
    let mut values = vec![];
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once(" = ") {
            values.push((format!("{section}.{key}"), value.to_string()));
        }
    }
    values.retain(|(key, _)| !key.starts_with("run.") || BITS.contains(&key.as_str()));
    values
}

/// The promise of a class, in every precision.
pub fn promise(class: EqualityClass) -> &'static str {
    match class {
        EqualityClass::SameOrder => {
            "every sum has the same terms in the same order: losses, norms and weights have the same bits"
        }
        EqualityClass::AnyOrder => {
            "sums over sequences are grouped differently, but they are exact: losses, norms and weights have the same bits"
        }
        EqualityClass::OtherOrder => {
            "sums over sequences are grouped differently: losses and weights agree within the bound of docs/numerics.md"
        }
        EqualityClass::LibraryOrder => {
            "the library of MPI adds in an order of its own: losses and weights agree within the bound of docs/numerics.md"
        }
        EqualityClass::OtherSums => {
            "sums over hidden dims or tokens are split differently, or are those of a GPU's library: losses and weights \
             agree within the bound of docs/numerics.md"
        }
        EqualityClass::OtherDevice => {
            "the devices are of different kinds, which add in different orders: neither the same bits nor a bound are promised"
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.names;
        match self.class {
            Some(class) => writeln!(f, "{first} and {second}: {class}\n{}", promise(class))?,
            None => writeln!(
                f,
                "{first} and {second}: different runs\nthey compute different functions, so there is no bound"
            )?,
        }
        let width = self.differences.iter().map(|difference| difference.key.len()).max().unwrap_or(0);
        for Difference { key, values } in &self.differences {
            let [first, second] = values.each_ref().map(|value| if value.is_empty() { "(not set)" } else { value });
            writeln!(f, "  {key:width$}  {first} | {second}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(first: &[&str], second: &[&str]) -> String {
        let [first, second] = [first, second].map(|overrides| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            RunConfig::load("", "", &overrides).expect("legal")
        });
        compare(["a.toml".into(), "b.toml".into()], &first, &second).to_string()
    }

    #[test]
    fn each_class_is_named_with_what_differs() {
        assert_eq!(
            compared(&[], &["parallelism.pp=1", "parallelism.zero=0", "run.folder=elsewhere"]),
            "a.toml and b.toml: same order\n\
             every sum has the same terms in the same order: losses, norms and weights have the same bits\n  \
             parallelism.pp    2 | 1\n  \
             parallelism.zero  1 | 0\n"
        );
        assert_eq!(
            compared(&[], &["train.offload=all"]),
            "a.toml and b.toml: same order\n\
             every sum has the same terms in the same order: losses, norms and weights have the same bits\n  \
             train.offload  (not set) | \"all\"\n"
        );
        assert!(compared(&[], &["parallelism.dp=4"]).starts_with("a.toml and b.toml: other order\n"));
        let exact = "train.sums=exact";
        assert!(compared(&[exact], &[exact, "parallelism.dp=4"]).starts_with("a.toml and b.toml: any order\n"));
        assert!(compared(&[], &[exact]).starts_with("a.toml and b.toml: other order\n"));
        assert!(compared(&["parallelism.tp=1"], &["parallelism.dp=4"]).starts_with("a.toml and b.toml: other sums\n"));
        let native = ["run.transport=mpi", "run.collectives=native"];
        assert_eq!(
            compared(&[], &native),
            "a.toml and b.toml: library order\n\
             the library of MPI adds in an order of its own: losses and weights agree within the bound of docs/numerics.md\n  \
             run.collectives  \"own\" | \"native\"\n"
        );
        assert!(compared(&native, &native).starts_with("a.toml and b.toml: library order\n"));
        let exact_native = [native[0], native[1], exact];
        assert!(compared(&[exact], &exact_native).starts_with("a.toml and b.toml: same order\n"));
        let grown = |more| format!("train.batch_ramp={{ start = 8, increment = 8, sequences = 50{more} }}");
        assert_eq!(
            compared(&[&grown("")], &[&grown(", grows = \"microbatch_size\"")]).lines().next(),
            Some("a.toml and b.toml: other order")
        );
        assert_eq!(
            compared(&[], &["data.path=text", "train.steps=5"]),
            "a.toml and b.toml: different runs\n\
             they compute different functions, so there is no bound\n  \
             train.steps         240 | 5\n  \
             train.warmup_steps  60 | 1\n  \
             data.path           (not set) | \"text\"\n"
        );
        for [first, second] in
            [["chained", "pairs"], ["chained", "blocks16"], ["pairs", "blocks16"], ["blocks16", "blocks8"]]
        {
            let of = |products: &str| format!("train.products={products}");
            assert_eq!(
                compared(&["train.precision=bf16", &of(first)], &["train.precision=bf16", &of(second)]),
                format!(
                    "a.toml and b.toml: different runs\n\
                     they compute different functions, so there is no bound\n  \
                     train.products  \"{first}\" | \"{second}\"\n"
                )
            );
        }
        let of_device = ["run.device=cuda", "train.precision=bf16", "train.products=device"];
        let with = |more: &'static str| [of_device[0], of_device[1], of_device[2], more];
        for (more, class) in [
            ("train.precision=bf16", "same order"),
            ("parallelism.pp=1", "other sums"),
            ("train.sums=exact", "other sums"),
        ] {
            let line = format!("a.toml and b.toml: {class}");
            assert_eq!(compared(&of_device, &with(more)).lines().next(), Some(line.as_str()), "{more}");
        }
        let in_blocks = ["train.precision=fp16", "train.products=blocks16"];
        let with = |more: &'static str| [in_blocks[0], in_blocks[1], more];
        for (more, class) in [
            ("parallelism.pp=1", "same order"),
            ("parallelism.zero=0", "same order"),
            ("parallelism.dp=4", "other order"),
            ("parallelism.tp=1", "other sums"),
            ("parallelism.sequence_parallel=true", "other sums"),
        ] {
            let line = format!("a.toml and b.toml: {class}");
            assert_eq!(compared(&in_blocks, &with(more)).lines().next(), Some(line.as_str()), "{more}");
        }
    }
}
