//! A seeded sample of the layouts whose ranks share sequences; `cargo run --release -p surveys --bin shared_sequences`
//! tries all.

use surveys::sample;
use surveys::shared_sequences::SharedCase;

/// Another seed is another sample.
const SEED: u32 = 5;

#[test]
fn ranks_that_share_sequences_learn_what_one_rank_learns() {
    let all = SharedCase::all();
    assert!(all.len() > 100, "{}", all.len());
    let of_cp =
        |cp: usize| all.iter().filter(move |case| case.parallelism.degrees.cp == cp).cloned().collect::<Vec<_>>();
    for (index, cp) in [2, 3, 4, 8].into_iter().enumerate() {
        let drawn = sample::draw(of_cp(cp), 2, SEED, index as u32);
        assert_eq!(drawn.len(), 2, "cp {cp}");
        for case in drawn {
            assert_eq!(case.faults(), Ok(vec![]), "{case}");
        }
    }
}
