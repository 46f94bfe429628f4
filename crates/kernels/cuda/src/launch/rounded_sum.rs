//! Sums of whole numbers in place of real ones.

use std::ops::Range;

use device::{DeviceError, Dtype, Rounding, Tensor, Write};
use gpu::LaunchShape;

use super::fixed_point::is_sum;
use super::{Launch, Parameters, Site, require};

const THREADS: usize = 256;
/// Elements that one block of threads converts before several can.
const FIRST: usize = 4096;

/// `Op::AddRounded`
pub(super) fn add(
    site: &Site,
    x: Tensor,
    rounding: Rounding,
    into: Tensor,
    write: Write,
    refusals: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    require(x.len() == into.len(), "add_rounded", || format!("{x:?} and {into:?} are not of one length"))?;
    is_sum(refusals)?;
    let parameters = Parameters::new()
        .place(site.dense(x, Dtype::F32)?)
        .f32(1.0 / rounding.unit)
        .f32(rounding.limit)
        .place(site.dense(into, Dtype::I64)?)
        .place(site.dense(refusals, Dtype::I64)?);
    let entry = match write {
        Write::Assign => "add_rounded_assign",
        Write::Accumulate => "add_rounded_accumulate",
    };
    Ok(of_elements(x.len()).map(|shape| Launch::new(entry, shape, parameters)).into_iter().collect())
}

/// `Op::RoundedToSingle`. Single numbers take the place of earlier sums, so each launch converts at most as many
/// elements as have been converted: what it overwrites has been read.
pub(super) fn to_single(site: &Site, sums: Tensor, unit: f32) -> Result<Vec<Launch>, DeviceError> {
    let place = site.dense(sums, Dtype::I64)?;
    let len = sums.len();
    let first = FIRST.min(len);
    let parameters = Parameters::new().place(place).u32(first as u32).f32(unit);
    let mut launches = vec![];
    if len > 0 {
        launches.push(Launch::new("rounded_to_single_first", LaunchShape::linear(1, THREADS as u32), parameters));
    }
    for Range { start, end } in doublings(first, len) {
        let parameters = Parameters::new().place(place).u64(start as u64).u64(end as u64).f32(unit);
        let shape = of_elements(end - start);
        launches.extend(shape.map(|shape| Launch::new("rounded_to_single_next", shape, parameters)));
    }
    Ok(launches)
}

/// `done..len` in ranges that are at most as long as what is before them.
fn doublings(done: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    let range = move |start: usize| (start < len).then(|| start..len.min(2 * start));
    std::iter::successors(range(done), move |last| range(last.end))
}

fn of_elements(count: usize) -> Option<LaunchShape> {
    (count > 0).then(|| LaunchShape::linear(count.div_ceil(THREADS) as u32, THREADS as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_range_is_longer_than_what_is_before_it() {
        let ranges: Vec<_> = doublings(4096, 20_000).collect();
        assert_eq!(ranges, [4096..8192, 8192..16_384, 16_384..20_000]);
        assert_eq!(doublings(0, 0).count() + doublings(7, 7).count(), 0);
    }
}
