//! Products of matrices as a library takes them.

use device::{DeviceError, Dtype, Op, Orientation, Tensor, Write};
use gpu::{BiasForm, DevicePointer, FactorForm, MatrixElement, MatrixPlaces, MatrixProduct, ResultForm, alignment};

use super::Site;
use super::mat_mul::Product;

/// The types of both factors and of the result; `None` where factors have two types or single precision, or the result
/// has another narrow type: libraries do not have such products.
fn elements(a: Tensor, b: Tensor, out: Tensor) -> Option<[MatrixElement; 2]> {
    match [a.dtype, b.dtype, out.dtype] {
        [Dtype::Bf16, Dtype::Bf16, Dtype::Bf16] => Some([MatrixElement::Bf16; 2]),
        [Dtype::Bf16, Dtype::Bf16, Dtype::F32] => Some([MatrixElement::Bf16, MatrixElement::F32]),
        [Dtype::F16, Dtype::F16, Dtype::F16] => Some([MatrixElement::F16; 2]),
        [Dtype::F16, Dtype::F16, Dtype::F32] => Some([MatrixElement::F16, MatrixElement::F32]),
        [Dtype::Bf16 | Dtype::F16 | Dtype::F32 | Dtype::I32 | Dtype::I64, ..] => None,
    }
}

/// A product with its places; `None` for other operations, and for products that have nothing to add or that libraries
/// do not have: those are computed by pleach's kernels.
///
/// # Errors
/// The errors of [`super::launches`].
pub(crate) fn library_product(op: &Op, site: &Site) -> Result<Option<(MatrixProduct, MatrixPlaces)>, DeviceError> {
    let Op::MatMul { orientation, a, b, bias, out, write } = *op else { return Ok(None) };
    let Some([factors, result]) = elements(a, b, out) else { return Ok(None) };
    let (a_place, b_place) = (site.matrix(a, a.dtype)?, site.matrix(b, b.dtype)?);
    let (bias_place, out_place) = (site.optional_dense(bias, out.dtype)?, site.matrix(out, out.dtype)?);
    let sizes = Product { orientation, a, b, bias, out, write }.sizes()?;
    if sizes.contains(&0) {
        return Ok(None);
    }
    let [a_form, b_form] = match orientation {
        Orientation::Nt => [FactorForm::Plain, FactorForm::Transposed],
        Orientation::Nn => [FactorForm::Plain, FactorForm::Plain],
        Orientation::Tn => [FactorForm::Transposed, FactorForm::Plain],
    };
    // A single row may have any stride.
    let stride = |tensor: Tensor| tensor.row_stride.max(tensor.cols) as u64;
    let [a_address, b_address, out_address] = [a_place, b_place, out_place].map(|place| place.address());
    let bias_address = bias.map_or(DevicePointer(0), |_| bias_place.address());
    let product = MatrixProduct {
        sizes: sizes.map(|size| size as u64),
        factors,
        result,
        a: a_form,
        b: b_form,
        strides: [stride(a), stride(b), stride(out)],
        alignments: [a_address, b_address, out_address, bias_address].map(alignment),
        write: match write {
            Write::Assign => ResultForm::Assigned,
            Write::Accumulate => ResultForm::Accumulated,
        },
        bias: if bias.is_some() { BiasForm::Present } else { BiasForm::Absent },
    };
    let places = MatrixPlaces { a: a_address, b: b_address, d: out_address, bias: bias_address };
    Ok(Some((product, places)))
}
