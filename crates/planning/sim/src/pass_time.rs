//! The time of a pass: kernels, the collectives of its tensor-parallel group, and the host that issues both.

use cluster::Cluster;

use crate::costs::PassCost;
use crate::kernel::Kernel;
use crate::price::{busy_ns, kernel_ns};

/// Pieces in which a collective overlaps with a product that is cut as well; nothing overlaps with the first.
/// Transformer Engine's default (module/base.py, initialize_ub: num_splits).
const CHUNKS: u64 = 4;

/// Nanoseconds of a pass by what makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTime {
    /// Kernels and what is between them, with the time that overlapping collectives add.
    kernels_ns: u64,
    /// Of these, matrix products.
    products_ns: u64,
    /// Collectives that nothing hides.
    pub collectives_ns: u64,
    /// The time of the host to issue everything. It runs ahead of the accelerator, so whichever is slower counts.
    issue_ns: u64,
    at_peak_ns: u64,
}

impl PassTime {
    /// Kernels and collectives one after the other.
    pub fn in_line(
        cluster: &Cluster,
        kernels: &[Kernel],
        collectives_ns: u64,
        issue_ns: u64,
        at_peak_ns: u64,
    ) -> PassTime {
        let products = kernels.iter().filter(|kernel| matches!(kernel, Kernel::Product(_)));
        PassTime {
            kernels_ns: busy_ns(cluster, kernels).round() as u64,
            products_ns: products.map(|kernel| kernel_ns(cluster, kernel)).sum::<f64>() as u64,
            collectives_ns,
            issue_ns,
            at_peak_ns,
        }
    }

    /// The pass with some collectives in line and others that overlap with its kernels, as far as these are not
    /// longer than the kernels, each of which is slower by the share `contention` meanwhile.
    pub fn overlapping(self, in_line_ns: u64, hidden_ns: u64, contention: f64) -> PassTime {
        self.hidden(in_line_ns, hidden_ns, self.kernels_ns, contention)
    }

    /// The pass with its collectives in chunks that overlap with the products that read or make them.
    pub fn in_chunks(self, contention: f64) -> PassTime {
        let first_ns = self.collectives_ns.div_ceil(CHUNKS);
        self.hidden(first_ns, self.collectives_ns - first_ns, self.products_ns, contention)
    }

    fn hidden(self, in_line_ns: u64, hidden_ns: u64, hiding_ns: u64, contention: f64) -> PassTime {
        let slowed_ns = (contention * hidden_ns.min(hiding_ns) as f64).round() as u64;
        let collectives_ns = in_line_ns + hidden_ns.saturating_sub(hiding_ns);
        PassTime { kernels_ns: self.kernels_ns + slowed_ns, collectives_ns, ..self }
    }

    /// The pass after a copy that takes `first_ns`.
    pub fn after_copy(self, first_ns: u64) -> PassTime {
        PassTime { kernels_ns: self.kernels_ns + first_ns, ..self }
    }

    /// The pass as a cost: its whole time, its collectives, and its time at the peak.
    pub fn cost(self) -> PassCost {
        let PassTime { kernels_ns, collectives_ns, issue_ns, at_peak_ns, .. } = self;
        PassCost { whole_ns: issue_ns.max(kernels_ns + collectives_ns), collectives_ns, at_peak_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: PassTime =
        PassTime { kernels_ns: 1000, products_ns: 600, collectives_ns: 400, issue_ns: 0, at_peak_ns: 500 };

    fn whole(pass: PassTime) -> u64 {
        pass.cost().whole_ns
    }

    #[test]
    fn overlapping_collectives_slow_kernels_and_longer_ones_are_exposed() {
        assert_eq!(whole(PASS), 1400);
        assert_eq!(whole(PASS.overlapping(100, 300, 0.1)), 1000 + 30 + 100);
        assert_eq!(whole(PASS.overlapping(0, 1500, 0.1)), 1000 + 100 + 500);
        assert_eq!(whole(PASS.in_chunks(0.1)), 1000 + 30 + 100, "a quarter overlaps with nothing");
        let long = PassTime { collectives_ns: 1600, ..PASS };
        assert_eq!(whole(long.in_chunks(0.1)), 1000 + 60 + 400 + 600, "products alone hide chunks");
    }

    /// The host's idle time is not a kernel: it hides nothing, and a faster link leaves a pass no longer.
    #[test]
    fn a_pass_that_the_host_bounds_is_no_longer_with_faster_collectives() {
        for summed_ns in (0..=1500).rev().step_by(100) {
            let at = |collectives_ns| PassTime { collectives_ns, issue_ns: 1800, ..PASS };
            let slow = at(summed_ns + 100).overlapping(summed_ns + 100, 0, 0.1);
            let fast = at(summed_ns).overlapping(summed_ns, 0, 0.1);
            assert!(whole(fast) <= whole(slow), "{summed_ns}");
            // The gradient of inputs, whose sum overlaps with the product of the weights.
            assert!(whole(at(summed_ns).overlapping(0, 0, 0.1)) == 1800, "{summed_ns}");
        }
    }
}
