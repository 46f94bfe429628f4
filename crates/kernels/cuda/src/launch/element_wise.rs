//! Sums, fills and copies of elements: kernels/element_wise.cu.

use device::{DeviceError, Dtype, Tensor};

use super::{ByType, Launch, Parameters, Place, Site, Stored, by_type, require, vectors_shape};

const THREADS: u32 = 256;
/// Elements of a thread that has several.
const FOUR: usize = 4;
const EIGHT: usize = 8;

/// `Op::Accumulate`
pub(super) fn accumulate(site: &Site, x: Tensor, into: Tensor) -> Result<Vec<Launch>, DeviceError> {
    let op = "accumulate";
    if into.dtype == Dtype::I64 {
        let places = [site.dense(x, Dtype::I64)?.as_vector(), site.dense(into, Dtype::I64)?.as_vector()];
        require(x.len() == into.len(), op, || format!("{x:?} has not as many terms as {into:?} has sums"))?;
        return Ok(launch_of_pair(site, "accumulate_i64", 1, places));
    }
    let places = [site.matrix(x, Dtype::F32)?, site.matrix(into, Dtype::F32)?];
    require_shape(op, x, into)?;
    Ok(launch_of_pair(site, "accumulate_f32", FOUR, flattened([x, into], places)))
}

/// `Op::ScaledSum`
pub(super) fn scaled_sum(
    site: &Site,
    (x, factor): (Tensor, f32),
    (into, keep): (Tensor, f32),
) -> Result<Vec<Launch>, DeviceError> {
    let places = [site.matrix(x, Dtype::F32)?, site.matrix(into, Dtype::F32)?];
    require_shape("scaled_sum", x, into)?;
    let [x, into] = flattened([x, into], places);
    if into.is_empty() {
        return Ok(vec![]);
    }
    let parameters = Parameters::new().place(x).place(into).f32(factor).changing().f32(keep).changing();
    Ok(vec![Launch::new("scaled_sum", vectors_shape(site, into.rows, into.cols, FOUR, THREADS), parameters)])
}

/// `Op::Fill`
pub(super) fn fill(site: &Site, out: Tensor, value: f32) -> Result<Vec<Launch>, DeviceError> {
    let (entry, place, count, parameters) = match out.dtype {
        Dtype::I64 => {
            let place = site.dense(out, Dtype::I64)?.as_vector();
            ("fill_i64", place, 1, Parameters::new().place(place).i64(value as i64))
        }
        Dtype::F32 | Dtype::Bf16 | Dtype::F16 => {
            let [place] = flattened([out], [site.matrix(out, out.dtype)?]);
            let stored = Stored::of(out)?;
            let parameters = Parameters::new().place(place).f32(value);
            (stored.kernel(by_type!("fill")), place, stored.in_access(), parameters)
        }
        Dtype::I32 => return Err(out.not_real()),
    };
    if place.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(entry, vectors_shape(site, place.rows, place.cols, count, THREADS), parameters)])
}

/// `Op::Copy`
pub(super) fn copy(site: &Site, from: Tensor, to: Tensor) -> Result<Vec<Launch>, DeviceError> {
    /// By the type that is read.
    const KERNELS: [ByType; 3] = [by_type!("copy_f32"), by_type!("copy_bf16"), by_type!("copy_f16")];
    if from.dtype == Dtype::I64 {
        let places = [site.dense(from, Dtype::I64)?.as_vector(), site.dense(to, Dtype::I64)?.as_vector()];
        require(from.len() == to.len(), "copy", || format!("{from:?} has not as many elements as {to:?}"))?;
        return Ok(launch_of_pair(site, "copy_i64", 1, places));
    }
    let entry = match (from.dtype, to.dtype) {
        // As wide as numbers of single precision, whose copy keeps all bits.
        (Dtype::I32, Dtype::I32) => KERNELS[0][0],
        _ => Stored::of(to)?.kernel(KERNELS[Stored::of(from)?.number as usize]),
    };
    let places = [site.matrix(from, from.dtype)?, site.matrix(to, to.dtype)?];
    require_shape("copy", from, to)?;
    Ok(launch_of_pair(site, entry, EIGHT, flattened([from, to], places)))
}

fn require_shape(op: &'static str, x: Tensor, out: Tensor) -> Result<(), DeviceError> {
    require((x.rows, x.cols) == (out.rows, out.cols), op, || format!("{x:?} is not of the shape of {out:?}"))
}

/// Matrices without gaps as vectors: one long row fills blocks better than many short ones.
fn flattened<const N: usize>(tensors: [Tensor; N], places: [Place; N]) -> [Place; N] {
    if tensors.iter().all(Tensor::is_dense) { places.map(|place| place.as_vector()) } else { places }
}

fn launch_of_pair(site: &Site, entry: &'static str, count: usize, [from, to]: [Place; 2]) -> Vec<Launch> {
    if to.is_empty() {
        return vec![];
    }
    let shape = vectors_shape(site, to.rows, to.cols, count, THREADS);
    vec![Launch::new(entry, shape, Parameters::new().place(from).place(to))]
}
