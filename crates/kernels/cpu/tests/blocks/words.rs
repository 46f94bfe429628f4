//! The rule on single blocks: against frozen words from exact fractions (`tools/reference/blocks.py`), and against
//! its definition in `f64`.

use cpu::gemm::{BlockRule, Term};
use device::{Bf16, Element, F16};

use crate::blocks::case::{Random, Values};
use crate::blocks::definition::Definition;

const WORDS: &str = include_str!("words.txt");

fn factors(text: &str) -> Vec<u16> {
    let hexadecimal =
        |digits: &[u8]| u16::from_str_radix(std::str::from_utf8(digits).expect("text"), 16).expect("a word");
    text.as_bytes().chunks(4).map(hexadecimal).collect()
}

/// The sum after all blocks of `a` and `b`.
fn by_rule<E: Element>(rule: BlockRule, sum: f32, a: &[E], b: &[E]) -> f32
where
    Term: From<E>,
{
    let factors: Vec<[Term; 2]> = a.iter().zip(b).map(|(a, b)| [(*a).into(), (*b).into()]).collect();
    factors.chunks(rule.steps).fold(sum, |sum, block| rule.add(sum, block))
}

fn by_definition<E: Element>(definition: Definition, sum: f32, a: &[E], b: &[E]) -> f32 {
    definition.continued(sum, a.len(), |step| (a[step].widen(), b[step].widen()))
}

#[test]
fn sums_have_the_frozen_words() {
    for line in WORDS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [format, sum, a, b, sixteen, eight] = fields[..] else { panic!("{line}") };
        let word = |text: &str| u32::from_str_radix(text, 16).expect("a word");
        let (sum, a, b) = (f32::from_bits(word(sum)), factors(a), factors(b));
        let orders =
            [(BlockRule::BLOCKS16, Definition::BLOCKS16, sixteen), (BlockRule::BLOCKS8, Definition::BLOCKS8, eight)];
        for (rule, definition, expected) in orders {
            let both = match format {
                "bf16" => {
                    let [a, b] = [&a, &b].map(|words| words.iter().copied().map(Bf16).collect::<Vec<_>>());
                    [by_rule(rule, sum, &a, &b), by_definition(definition, sum, &a, &b)]
                }
                "fp16" => {
                    let [a, b] = [&a, &b].map(|words| words.iter().copied().map(F16).collect::<Vec<_>>());
                    [by_rule(rule, sum, &a, &b), by_definition(definition.of_fp16(), sum, &a, &b)]
                }
                other => panic!("{other} must be bf16 or fp16"),
            };
            for actual in both {
                assert_eq!(format!("{:08x}", actual.to_bits()), expected, "blocks of {}: {line}", rule.steps);
            }
        }
    }
}

/// Exponents of every spread, sums that cancel, subnormal numbers, zeros, infinities and NaNs; blocks of every length.
#[test]
fn the_rule_is_that_of_its_definition() {
    fn compare<E: Element>(random: &mut Random, definition: impl Fn(Definition) -> Definition)
    where
        Term: From<E>,
    {
        for round in 0..60_000 {
            let values = Values::ALL[round % Values::ALL.len()];
            let len = random.below(17);
            let [mut a, b] = [0; 2].map(|_| (0..len).map(|_| values.draw::<E>(random)).collect::<Vec<E>>());
            // Half of the products are met by others of the opposite sign, or nearly so.
            if round % 3 == 0 {
                for step in 1..len {
                    a[step] = if step % 2 == 1 { E::narrow(-a[step - 1].widen()) } else { a[step] };
                }
            }
            let sum = values.sum(random);
            for (rule, of_rule) in
                [(BlockRule::BLOCKS16, Definition::BLOCKS16), (BlockRule::BLOCKS8, Definition::BLOCKS8)]
            {
                let (actual, expected) = (by_rule(rule, sum, &a, &b), by_definition(definition(of_rule), sum, &a, &b));
                assert!(
                    actual.to_bits() == expected.to_bits(),
                    "{values:?}, blocks of {}: {actual:e}, not {expected:e}, from {sum:e} with {a:?} and {b:?}",
                    rule.steps
                );
            }
        }
    }
    compare::<Bf16>(&mut Random(11), |definition| definition);
    compare::<F16>(&mut Random(12), Definition::of_fp16);
}

#[test]
#[should_panic(expected = "17 products in a block of 16")]
fn a_block_has_no_more_products_than_its_steps() {
    BlockRule::BLOCKS16.add(0.0, &[[Term::from(Bf16(0)); 2]; 17]);
}
