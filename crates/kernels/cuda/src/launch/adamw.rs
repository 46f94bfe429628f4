//! The optimizer: a thread per four elements.

use device::{AdamWFactors, DeviceError, Dtype, Op};

use super::{Launch, Parameters, Site, Stored, by_type, require, vectors_shape};

const THREADS: u32 = 256;
/// Elements of a thread.
const FOUR: usize = 4;

/// `Op::AdamW`
pub(super) fn adamw(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update } = *op else {
        return Err(super::other_op("adamw", op));
    };
    for tensor in [grad, first_moment, second_moment].into_iter().chain(copy) {
        require(tensor.len() == param.len(), "adamw", || format!("{tensor:?} is not as long as {param:?}"))?;
    }
    require(!coefficient.is_empty(), "adamw", || format!("{coefficient:?} has no coefficient"))?;
    require(update.update > 0, "adamw", || "updates are counted from 1".into())?;
    let AdamWFactors { keep, beta1_kept, beta1_new, beta2_kept, beta2_new, step, root_correction, epsilon } =
        update.factors();
    let factors = [keep, beta1_kept, beta1_new, beta2_kept, beta2_new, step, root_correction, epsilon];
    let parameters = Parameters::new()
        .place(site.dense(param, Dtype::F32)?.as_vector())
        .place(site.dense(grad, Dtype::F32)?.as_vector())
        .place(site.dense(first_moment, Dtype::F32)?.as_vector())
        .place(site.dense(second_moment, Dtype::F32)?.as_vector())
        .place(site.dense(coefficient, Dtype::F32)?)
        .words(&factors.map(f32::to_bits))
        .changing();
    let (entry, parameters) = match copy {
        None => ("adamw", parameters),
        Some(copy) => {
            let stored = Stored::of(copy)?;
            (stored.kernel(by_type!("adamw_copy")), parameters.place(site.dense(copy, copy.dtype)?.as_vector()))
        }
    };
    if param.is_empty() {
        return Ok(vec![]);
    }
    let shape = vectors_shape(site, 1, param.len(), FOUR, THREADS);
    Ok(vec![Launch::new(entry, shape, parameters)])
}
