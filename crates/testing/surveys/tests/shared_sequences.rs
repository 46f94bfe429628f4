//! A seeded sample of the layouts whose ranks share long sequences; `cargo run --release -p surveys -- long-sequences`
//! tries all.

use config::ContextKind;
use surveys::drawers::long_sequences;
use surveys::long_sequences::faults;
use surveys::sample;
use surveys::space::Point;

/// Another seed is another sample.
const SEED: u32 = 5;

#[test]
fn ranks_that_share_sequences_learn_what_one_rank_learns() {
    let all = long_sequences();
    assert!(all.len() > 100, "{}", all.len());
    let of = |kind: ContextKind, cp: usize| {
        let is_meant = |case: &&Point| (case.context.kind, case.degrees.cp) == (kind, cp);
        all.iter().filter(is_meant).copied().collect::<Vec<_>>()
    };
    let gathered = [2, 3, 4, 8].map(|cp| (ContextKind::Gather, cp));
    let exchanged = [2, 3, 4].map(|cp| (ContextKind::Heads, cp));
    let passed = [2, 3, 4, 8].map(|cp| (ContextKind::Ring, cp));
    for (index, (kind, cp)) in gathered.into_iter().chain(exchanged).chain(passed).enumerate() {
        let drawn = sample::draw(of(kind, cp), 1, SEED, index as u32);
        let [case] = &drawn[..] else { panic!("{} cases of {kind:?}, cp {cp}", drawn.len()) };
        assert_eq!(faults(case), Ok(vec![]), "{case}");
    }
}
