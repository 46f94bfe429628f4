//! Faults in the kernels of collectives are found: every bound and every index off by one.

use gpu_rank::COLLECTIVES;

use crate::collectives::kernels::{compiled, compiler, difference, reductions, soft_gpu};
use crate::collectives::mutants::mutants;

#[needs::cuda]
#[test]
fn every_fault_in_kernels_of_collectives_is_found() {
    let compiler = compiler();
    let original = compiled(&compiler, &COLLECTIVES.whole()).expect("code").code;
    let all = mutants(&COLLECTIVES.whole());
    assert!(all.len() >= 9, "{} mutants", all.len());
    let is_missed = |text: &str| {
        // Without code it is found.
        let Some(code) = compiled(&compiler, text) else { return false };
        code.code != original
            && reductions().into_iter().all(|reduced| {
                let got = reduced.on(&*soft_gpu(0), &code);
                got.is_ok_and(|got| difference(reduced, &reduced.expected(), &got).is_none())
            })
    };
    let missed: Vec<&str> =
        all.iter().filter(|mutant| is_missed(&mutant.text)).map(|mutant| mutant.name.as_str()).collect();
    assert_eq!(missed, [""; 0], "of {} mutants", all.len());
}
