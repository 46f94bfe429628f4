//! The table of what was promised and what was measured, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use config::{Degrees, ModelSpec, Products};
use prove::{EqualityClass, LEAST_FALL, LEAST_HEAD_DIM, LEAST_HIDDEN};
use surveys::drawers::{equality, equality_exact, equality_in_pairs, families};
use surveys::results::Row;
use surveys::space::{Point, products_suffix};
use testkit::models::{Style, proof_model};

use super::factors::by_value;
use super::summary::Summary;

/// The name under which a family's two microbatch sizes are compared.
pub fn microbatch_name(family: &Point, products: Products) -> String {
    format!("{} against 2{}", family.family(), products_suffix(products))
}

/// The legal cases of a list, and those of them that have a result.
struct Part<'a> {
    legal: Vec<&'a Point>,
    measured: Vec<(&'a Point, &'a Row)>,
}

impl<'a> Part<'a> {
    fn of(cases: &'a [Point], rows: &'a BTreeMap<String, Row>) -> Part<'a> {
        let legal: Vec<&Point> = cases.iter().filter(|case| case.is_legal()).collect();
        let measured = legal.iter().filter_map(|case| Some((*case, rows.get(&case.to_string())?))).collect();
        Part { legal, measured }
    }

    /// A sentence if cases have no result.
    fn missing(&self, kind: &str) -> Option<String> {
        let (legal, measured) = (self.legal.len(), self.measured.len());
        (measured < legal).then(|| format!("{} of {legal} legal cases{kind} have no result", legal - measured))
    }
}

/// The page, and every broken promise with the name of its case.
pub fn table(rows: &BTreeMap<String, Row>) -> (String, Vec<String>) {
    let (cases, in_pairs, exact) = (equality(), equality_in_pairs(), equality_exact());
    let refused: Vec<&Point> = cases.iter().filter(|case| !case.is_legal()).collect();
    let [chained, in_pairs, exact] = [&cases, &in_pairs, &exact].map(|cases| Part::of(cases, rows));
    let broken = rows.iter().filter(|(_, row)| !row.faults.is_empty());
    let mut faults: Vec<String> = broken.map(|(name, row)| format!("{name}: {}", row.faults)).collect();
    let parts = [(&chained, ""), (&in_pairs, " with `products = \"pairs\"`"), (&exact, " with exact sums")];
    faults.extend(parts.into_iter().filter_map(|(part, kind)| part.missing(kind)));
    let all: Vec<(&Point, &Row)> = parts.into_iter().flat_map(|(part, _)| part.measured.iter().copied()).collect();
    let page = [
        introduction(&parts.map(|(part, _)| part), &all, &faults),
        by_class("By class", &chained, Products::Chained, rows),
        by_class("Products in AMX order", &in_pairs, Products::Pairs, rows),
        with_exact_sums(&exact.measured),
        by_value(&all.iter().map(|(case, _)| *case).collect::<Vec<_>>()),
        by_degrees("By degrees, products chained", &chained.measured),
        by_degrees("By degrees, products in AMX order", &in_pairs.measured),
        by_family("By family, products chained", &chained),
        by_family("By family, products in AMX order", &in_pairs),
        refusals(&refused),
    ];
    (page.join("\n"), faults)
}

fn introduction([chained, in_pairs, exact]: &[&Part<'_>; 3], all: &[(&Point, &Row)], faults: &[String]) -> String {
    let verdict = match faults.len() {
        0 => "Every one keeps the promise.".to_string(),
        broken => format!("Broken promises: {broken}."),
    };
    let fall = all.iter().map(|(_, row)| row.fall).fold(f64::INFINITY, f64::min);
    let nearest = all.iter().map(|(_, row)| row.nearest).fold(0.0, f64::max);
    let ModelSpec { hidden, head_dim, .. } = proof_model(Style::Gpt2, 12, true);
    let ran = |part: &Part<'_>| format!("{} of {}", part.measured.len(), part.legal.len());
    format!(
        "# Equality, measured\n\n\
         Every layout of at most sixteen ranks, in sixteen families (GPT-2 and Llama style, 12 and 4 key and value\n\
         heads, tied and untied embeddings, microbatches of 1 and 2 sequences), 20 steps in fp32 each, against one rank.\n\
         {} legal cases ran with products chained, {} with products in AMX order (two families that\n\
         differ in every trait), {} with exact sums (two families). {verdict}\n\
         ZeRO forms, schedules and recomputation take turns: [By value](#by-value) counts the cases of each. Every\n\
         combination of them, sequence parallelism, bf16 and fp16 are in the [support matrix](support-matrix.md).\n\
         The models are {hidden} wide, with heads of {head_dim} dims. [numerics.md](numerics.md#widths) derives the\n\
         bounds, which hold from {LEAST_HIDDEN} and {LEAST_HEAD_DIM} on. This page is written by\n\n\
         ```text\ncargo run --release -p surveys -- equality --write docs/equality.md\n```\n\n\
         The tables have relative Frobenius distances of tensors, and relative differences of losses (reported as `f32`,\n\
         whose last place is about 1e-7). Each distance has its own bound; the nearest is at {:.0} % of it. The loss falls\n\
         by {:.0} % at least in every case (required: {:.0} %).\n\n\
         Points of the same dp, tp, family and order of products differ in pipeline stages, schedule, ZeRO and\n\
         recomputation. *Same bits* counts cases whose losses, norms, first gradient and last weights have the bits of\n\
         one stage with GPipe, without recomputation and without ZeRO (with ZeRO where gradients are summed per\n\
         microbatch or in groups). The one rank has the same order of products.\n",
        ran(chained),
        ran(in_pairs),
        ran(exact),
        100.0 * nearest,
        100.0 * fall,
        100.0 * LEAST_FALL,
    )
}

fn head(title: &str, first: &str) -> String {
    format!(
        "## {title}\n\n\
         | {first} | cases | same bits | bits of one rank | gradient | of | loss | weight | of |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    )
}

fn by_class(title: &str, part: &Part<'_>, products: Products, rows: &BTreeMap<String, Row>) -> String {
    let mut text = head(title, "class");
    for (of, name) in [
        (EqualityClass::SameOrder, "same order: pp, schedule, ZeRO, recomputation"),
        (EqualityClass::OtherOrder, "other order: dp, ZeRO per microbatch or in groups as well"),
        (EqualityClass::OtherSums, "other sums: tp as well"),
    ] {
        let of_class = part.measured.iter().filter(|(case, _)| case.class() == of);
        let summary: Summary = of_class.map(|(_, row)| *row).collect();
        let _ = writeln!(text, "| {name} {summary}");
    }
    let families = families();
    let ones = families.iter().filter(|family| family.microbatch_size == 1);
    let summary: Summary = ones.filter_map(|family| rows.get(&microbatch_name(family, products))).collect();
    let _ = writeln!(text, "| other order: one rank, microbatch 2 against 1 {}", summary.without_reference());
    text
}

fn with_exact_sums(measured: &[(&Point, &Row)]) -> String {
    let mut text = head("With exact sums", "class");
    for (of, name) in [
        (EqualityClass::AnyOrder, "any order: dp, microbatch 2 against 1, ZeRO per microbatch or in groups"),
        (EqualityClass::OtherSums, "other sums: tp as well"),
    ] {
        let summary: Summary = measured.iter().filter(|(case, _)| case.class() == of).map(|(_, row)| *row).collect();
        let _ = writeln!(text, "| {name} {summary}");
    }
    text.push_str(
        "\nEvery layout again, in two of the families with microbatches of 2. *Same bits* counts those with the bits of\n\
         one replica in microbatches of 1 with the same tp, on one stage with GPipe.\n",
    );
    text
}

fn by_degrees(title: &str, measured: &[(&Point, &Row)]) -> String {
    let mut groups: BTreeMap<(usize, usize), Summary> = BTreeMap::new();
    for (case, row) in measured {
        let Degrees { dp, cp: _, tp, pp: _ } = case.degrees;
        groups.entry((dp, tp)).or_default().add(row);
    }
    let mut text = head(title, "dp x tp");
    for ((dp, tp), summary) in groups {
        let _ = writeln!(text, "| {dp} x {tp} {summary}");
    }
    text
}

fn by_family(title: &str, part: &Part<'_>) -> String {
    let mut text = head(title, "family");
    for family in families() {
        let legal = part.legal.iter().filter(|case| case.is_of(&family)).count();
        if legal == 0 {
            continue;
        }
        let of_family = part.measured.iter().filter(|(case, _)| case.is_of(&family));
        let summary: Summary = of_family.map(|(_, row)| *row).collect();
        let _ = writeln!(text, "| {} ({legal} of 110 legal) {summary}", family.family());
    }
    text
}

/// Refused cases by what is said first, without its numbers.
fn refusals(refused: &[&Point]) -> String {
    let mut reasons: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for case in refused {
        for problem in case.refusals() {
            let reason = format!("`{}` {}", problem.key, without_numbers(&problem.rule));
            reasons.entry(reason).or_insert_with(|| (0, problem.to_string())).0 += 1;
        }
    }
    let mut text = format!(
        "## Refused\n\n{} cases are refused before anything starts, by every rule that they break:\n\n\
         | rule | cases | for example |\n|---|---|---|\n",
        refused.len()
    );
    for (reason, (count, example)) in reasons {
        let _ = writeln!(text, "| {reason} | {count} | {example} |");
    }
    text
}

/// `model.num_heads = 12` as `model.num_heads`.
fn without_numbers(rule: &str) -> String {
    let words: Vec<&str> = rule.split(' ').collect();
    let is_number = |word: &str| word.trim_end_matches(',').parse::<usize>().is_ok();
    let mut kept: Vec<String> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let equals = *word == "=" && words.get(index + 1).is_some_and(|next| is_number(next));
        if !equals && !is_number(word) {
            kept.push((*word).to_string());
        } else if word.ends_with(',')
            && let Some(last) = kept.last_mut()
        {
            last.push(',');
        }
    }
    kept.join(" ")
}
