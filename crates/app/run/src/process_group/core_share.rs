//! The cores of a host, shared between the processes that run there.

use serde::{Deserialize, Serialize};

/// The need of one process, as all others learn it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreNeed {
    pub host: String,
    /// The cores that it may use, in ascending order. Launchers give processes the same cores or cores of their own.
    pub allowed: Vec<usize>,
    /// Its threads that compute.
    pub threads: usize,
}

/// A core for each thread that computes of process `own`, in order: neighbouring ranks get neighbouring cores. Empty,
/// so that the system places the threads, unless the processes that may use these cores have exactly one thread for
/// each: spare cores may belong to another program, and with too few cores threads take turns.
pub fn core_share(own: usize, needs: &[CoreNeed]) -> Vec<usize> {
    let Some(CoreNeed { host, allowed, threads }) = needs.get(own) else { return vec![] };
    let meets = |need: &CoreNeed| need.host == *host && need.allowed.iter().any(|core| allowed.contains(core));
    let sharers = || needs.iter().enumerate().filter(|(_, need)| meets(need));
    let is_one_each = sharers().map(|(_, need)| need.threads).sum::<usize>() == allowed.len();
    if !is_one_each || sharers().any(|(_, need)| need.allowed != *allowed) {
        return vec![];
    }
    let before = sharers().take_while(|(process, _)| *process < own).map(|(_, need)| need.threads).sum();
    allowed.iter().copied().skip(before).take(*threads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(needs: &[(&str, &[usize], usize)]) -> Vec<Vec<usize>> {
        let need = |(host, allowed, threads): &(&str, &[usize], usize)| CoreNeed {
            host: (*host).into(),
            allowed: allowed.to_vec(),
            threads: *threads,
        };
        let needs: Vec<CoreNeed> = needs.iter().map(need).collect();
        (0..needs.len()).map(|own| core_share(own, &needs)).collect()
    }

    #[test]
    fn processes_with_the_same_cores_share_them() {
        let all = &[0, 1, 4, 5][..];
        assert_eq!(shares(&[("a", all, 2), ("b", all, 4), ("a", all, 2)]), [vec![0, 1], vec![0, 1, 4, 5], vec![4, 5]]);
        assert_eq!(shares(&[("a", all, 1), ("a", all, 3)]), [vec![0], vec![1, 4, 5]]);
    }

    #[test]
    fn a_process_keeps_the_cores_that_its_launcher_gave_it() {
        assert_eq!(shares(&[("a", &[0, 1], 2), ("a", &[2, 3], 2)]), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn the_system_places_threads_where_cores_are_spare_few_or_given_twice() {
        let none: [Vec<usize>; 2] = [vec![], vec![]];
        assert_eq!(shares(&[("a", &[0, 1, 2], 1), ("a", &[0, 1, 2], 1)]), none);
        assert_eq!(shares(&[("a", &[0, 1], 2), ("a", &[0, 1], 2)]), none);
        assert_eq!(shares(&[("a", &[0, 1], 1), ("a", &[1], 1)]), none);
        assert_eq!(shares(&[("a", &[], 1), ("b", &[], 1)]), none);
    }
}
