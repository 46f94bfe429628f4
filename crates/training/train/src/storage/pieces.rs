//! Which part of which global tensor a range of a unit's flat buffer is.

use std::ops::Range;

use config::{ModelCoord, ParamSpec, Segment, UnitLayout};
use mesh::{Region, boxes};

/// A box of a global parameter and the place of its values in the local flat buffer, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<'a> {
    /// The parameter.
    pub param: &'a ParamSpec,
    /// The box, in the parameter's own dims.
    pub region: Region,
    /// Its elements in the flat buffer.
    pub elements: Range<usize>,
}

impl Piece<'_> {
    /// First global `(row, col)`, rows and columns; vectors are one row.
    pub fn matrix(&self) -> ((usize, usize), usize, usize) {
        self.region.in_matrix(&self.param.shape)
    }
}

/// Which copies of a parameter that several ranks of a stage and a replica hold are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The copy of the first of these ranks, so that over all of them each element of each parameter is listed once:
    /// for storing.
    First,
    /// All, so that every element of the buffer is listed: for filling.
    Every,
}

/// The pieces that cover `range` of the flat buffer of `layout`, without padding.
pub fn pieces(layout: &UnitLayout, range: Range<usize>, place: ModelCoord, copies: Copies) -> Vec<Piece<'_>> {
    let axes = layout.axes();
    let is_listed = |segment: &&Segment| match copies {
        Copies::First => place.is_first_copy(&segment.param, axes),
        Copies::Every => true,
    };
    layout.segments.iter().filter(is_listed).flat_map(|segment| segment_pieces(segment, &range, place)).collect()
}

fn segment_pieces<'a>(segment: &'a Segment, range: &Range<usize>, place: ModelCoord) -> Vec<Piece<'a>> {
    let whole = segment.range();
    let first = range.start.max(whole.start);
    let last = range.end.min(whole.end);
    if first >= last {
        return vec![];
    }
    let param = &segment.param;
    let (part, parameter) = (place.part(param), Region::whole(&param.shape));
    let mut elements_start = first;
    let mut list = vec![];
    for mut region in boxes(first - whole.start..last - whole.start, &segment.dims) {
        let start = elements_start;
        elements_start += region.len();
        region.start.iter_mut().zip(&part.start).for_each(|(index, first)| *index += first);
        // Rows that only pad the vocabulary are cut off.
        if let Some(region) = region.intersect(&parameter) {
            list.push(Piece { param, elements: start..start + region.len(), region });
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{AppliedTo, Degrees, Init, Sharding, Unit};
    use mesh::{Axis, AxisSizes, Rank};

    fn param(name: &str, shape: &[usize], sharding: Sharding) -> ParamSpec {
        ParamSpec {
            name: name.into(),
            shape: shape.to_vec(),
            sharding,
            unit: Unit::Head,
            applied_to: AppliedTo::Residual,
            init: Init::Zeros,
            decay: false,
        }
    }

    fn place(tp: usize, position: usize) -> ModelCoord {
        let mesh = mesh::Mesh::new(Degrees { tp, ..Degrees::ONE }.sizes(1)).expect("a mesh");
        ModelCoord::new(mesh.coord(Rank(position)))
    }

    #[test]
    fn every_element_is_listed_once_over_tensor_and_data_ranks() {
        let params = vec![
            param("column", &[6, 4], Sharding::COLUMNS),
            param("row", &[4, 6], Sharding::ROWS),
            param("vocabulary", &[7, 3], Sharding::VOCABULARY),
            param("bias", &[6], Sharding::COLUMNS),
            param("norm", &[5], Sharding::Replicated),
            param("stack", &[6, 2, 3], Sharding::Split { dim: 0, axes: Axis::Tp.into() }),
            param("stack of rows", &[2, 3, 6], Sharding::Split { dim: 2, axes: Axis::Tp.into() }),
        ];
        let whole = std::iter::once(0..200).collect();
        for (tp, ranges) in [(1, whole), (2, vec![0..13, 13..14, 14..200]), (3, vec![0..9, 9..200])] {
            let layout = UnitLayout::new(params.clone(), AxisSizes::only(Axis::Tp, tp), 1);
            let mut seen: Vec<Vec<u32>> = params.iter().map(|p| vec![0; p.len()]).collect();
            for position in 0..tp {
                for range in &ranges {
                    for piece in pieces(&layout, range.clone(), place(tp, position), Copies::First) {
                        let index = params.iter().position(|p| p.name == piece.param.name).expect("known");
                        assert_eq!(piece.elements.len(), piece.region.len());
                        let whole = Region::whole(&piece.param.shape);
                        for run in mesh::copy_runs(&piece.region, &whole) {
                            seen[index][run.target..run.target + run.len].iter_mut().for_each(|n| *n += 1);
                        }
                    }
                }
            }
            assert!(seen.iter().flatten().all(|&count| count == 1), "tp {tp}: {seen:?}");
        }
    }

    #[test]
    fn every_copy_covers_the_buffer_but_for_padding() {
        let params =
            vec![param("vocabulary", &[7, 3], Sharding::VOCABULARY), param("norm", &[5], Sharding::Replicated)];
        let layout = UnitLayout::new(params, AxisSizes::only(Axis::Tp, 2), 1);
        let elements = |position| -> Vec<Range<usize>> {
            let list = pieces(&layout, 0..layout.len, place(2, position), Copies::Every);
            list.into_iter().map(|piece| piece.elements).collect()
        };
        // Position 1 holds three rows of the vocabulary and one that only pads it.
        assert_eq!(elements(0), [0..12, 12..17]);
        assert_eq!(elements(1), [0..9, 12..17]);
    }
}
