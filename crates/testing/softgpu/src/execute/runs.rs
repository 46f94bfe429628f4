//! The accesses of a warp's lanes, joined where they are next to each other.

use super::registers::{LANES, Lanes, Wide, lanes_in};

/// Neighbouring lanes that access neighbouring bytes, or all of them the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first address.
    pub address: u64,
    /// Bytes that each lane accesses.
    pub each: u8,
    /// The first lane.
    pub first: u8,
    /// The number of lanes.
    pub lanes: u8,
    /// Whether all lanes access the same bytes.
    pub is_one_place: bool,
}

impl Run {
    /// The access of one lane.
    #[inline(always)]
    pub fn of_lane(address: u64, bytes: usize, lane: usize) -> Run {
        Run { address, each: bytes as u8, first: lane as u8, lanes: 1, is_one_place: false }
    }

    /// Bytes of all lanes.
    pub fn bytes(&self) -> usize {
        let lanes = if self.is_one_place { 1 } else { usize::from(self.lanes) };
        lanes * usize::from(self.each)
    }

    /// Each lane with its address.
    pub fn places(self) -> impl Iterator<Item = (usize, u64)> {
        let step = if self.is_one_place { 0 } else { u64::from(self.each) };
        (0..u64::from(self.lanes))
            .map(move |index| (usize::from(self.first) + index as usize, self.address + index * step))
    }

    fn takes(&mut self, lane: usize, address: u64) -> bool {
        if lane != usize::from(self.first + self.lanes) {
            return false;
        }
        let is_next = address == self.address + u64::from(self.lanes) * u64::from(self.each);
        let is_same = address == self.address;
        let takes =
            if self.lanes == 1 { is_next || is_same } else { is_same == self.is_one_place && (is_next || is_same) };
        if takes {
            self.is_one_place = is_same;
            self.lanes += 1;
        }
        takes
    }
}

/// The runs of an instruction.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    runs: [Run; LANES],
    count: usize,
}

impl Runs {
    /// Becomes the accesses of `each` bytes by `lanes`; `false` where an address is not a multiple of `each`.
    #[inline(always)]
    pub fn set(&mut self, addresses: &Wide, lanes: Lanes, each: usize) -> bool {
        let runs = self;
        let first = lanes.trailing_zeros() as usize % LANES;
        let address = addresses[first];
        runs.count = 1;
        runs.runs[0] = Run::of_lane(address, each, first);
        if lanes == Lanes::MAX {
            let mut is_row = true;
            let mut is_one_place = true;
            for (lane, other) in addresses.iter().enumerate() {
                is_row &= *other == address.wrapping_add((lane * each) as u64);
                is_one_place &= *other == address;
            }
            if is_row || is_one_place {
                runs.runs[0] = Run { lanes: LANES as u8, is_one_place, ..runs.runs[0] };
                return address.is_multiple_of(each as u64);
            }
        }
        let mut low_bits = address;
        for lane in lanes_in(lanes & (lanes - 1)) {
            let address = addresses[lane];
            low_bits |= address;
            if !runs.runs[runs.count - 1].takes(lane, address) {
                runs.runs[runs.count] = Run::of_lane(address, each, lane);
                runs.count += 1;
            }
        }
        low_bits.is_multiple_of(each as u64)
    }

    /// The runs with addresses that count from `start` on; `None` where one is below.
    #[inline(always)]
    pub fn after_address(&self, start: u64) -> Option<Runs> {
        let mut moved = self.clone();
        for run in &mut moved.runs[..self.count] {
            run.address = run.address.checked_sub(start)?;
        }
        Some(moved)
    }

    /// The runs in ascending order of lanes.
    #[inline(always)]
    pub fn each(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(addresses: impl Fn(u64) -> u64, lanes: Lanes) -> Option<Vec<(u64, u8, u8, bool)>> {
        let addresses = std::array::from_fn(|lane| addresses(lane as u64));
        let mut runs = Runs::default();
        if !runs.set(&addresses, lanes, 4) {
            return None;
        }
        for run in runs.each() {
            assert!(run.places().all(|(lane, address)| addresses[lane] == address));
        }
        Some(runs.each().iter().map(|run| (run.address, run.first, run.lanes, run.is_one_place)).collect())
    }

    #[test]
    fn lanes_are_joined_where_they_are_next_to_each_other() {
        let all = Lanes::MAX;
        assert_eq!(described(|lane| 64 + 4 * lane, all), Some(vec![(64, 0, 32, false)]));
        assert_eq!(described(|_| 64, all), Some(vec![(64, 0, 32, true)]));
        let halves = described(|lane| lane % 16 * 4, all);
        assert_eq!(halves, Some(vec![(0, 0, 16, false), (0, 16, 16, false)]));
        let broadcasts = described(|lane| lane / 16 * 64, all);
        assert_eq!(broadcasts, Some(vec![(0, 0, 16, true), (64, 16, 16, true)]));
        let apart = described(|lane| lane * 128, 0b1011);
        assert_eq!(apart, Some(vec![(0, 0, 1, false), (128, 1, 1, false), (384, 3, 1, false)]));
        // A lane that does not run ends a run.
        assert_eq!(described(|lane| 4 * lane, 0b1011), Some(vec![(0, 0, 2, false), (12, 3, 1, false)]));
        // After a row the place of its first lane begins another run.
        let back = described(|lane| [0, 4, 0, 0][lane as usize % 4], 0b1111);
        assert_eq!(back, Some(vec![(0, 0, 2, false), (0, 2, 2, true)]));
        assert_eq!(described(|lane| 4 * lane + 2 * (lane / 31), all), None);
        assert_eq!(described(|lane| 4 * lane + 1, all), None);
    }
}
