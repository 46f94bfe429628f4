//! A product of matrices, described to the library.
//!
//! The library's matrices are by columns. A matrix by rows is its transpose by columns without a copy, so the library
//! is asked for `d' = b' a'`: its first factor is b and its second one a, and a bias of a row of d is one of a column.

use gpu::{BiasForm, DevicePointer, FactorForm, MatrixElement, MatrixProduct, ProductLimits, SumForm};

use super::functions::{
    ALIGNMENTS, BF16, BIAS, DataType, Description, END, END_WITH_BIAS, F16, F32, Functions, MatrixLayout, NO_REDUCTION,
    Preference, REDUCTION_OF_SUMS, REDUCTIONS, SUMS_IN_F32, TRANSPOSE_A, TRANSPOSE_B, TRANSPOSED, WORKSPACE,
};
use super::library::ProductError;

fn raw(element: MatrixElement) -> DataType {
    match element {
        MatrixElement::F32 => F32,
        MatrixElement::Bf16 => BF16,
        MatrixElement::F16 => F16,
    }
}

/// A product in the library's terms, destroyed at its end.
pub(super) struct Described<'a> {
    functions: &'a Functions,
    pub(super) description: Description,
    matrices: Vec<MatrixLayout>,
}

impl<'a> Described<'a> {
    /// With the address of the bias, of which a search takes the alignment.
    pub(super) fn of(
        functions: &'a Functions,
        product: &MatrixProduct,
        bias: DevicePointer,
    ) -> Result<Described<'a>, ProductError> {
        let description = functions.description(SUMS_IN_F32, F32)?;
        let mut described = Described { functions, description, matrices: vec![] };
        for (attribute, form) in [(TRANSPOSE_A, product.b), (TRANSPOSE_B, product.a)] {
            match form {
                FactorForm::Plain => {}
                FactorForm::Transposed => functions.describe(description, attribute, &TRANSPOSED.to_ne_bytes())?,
            }
        }
        match product.bias {
            BiasForm::Absent => {}
            BiasForm::Present => {
                functions.describe(description, END, &END_WITH_BIAS.to_ne_bytes())?;
                functions.describe(description, BIAS, &bias.0.to_ne_bytes())?;
            }
        }
        let [a, b, d] = product.shapes();
        let [a_stride, b_stride, d_stride] = product.strides;
        described.add(product.factors, b, b_stride)?;
        described.add(product.factors, a, a_stride)?;
        described.add(product.result, d, d_stride)?;
        Ok(described)
    }

    /// Adds a matrix by rows, which is its transpose by columns.
    fn add(&mut self, element: MatrixElement, [rows, cols]: [u64; 2], stride: u64) -> Result<(), ProductError> {
        let stride = i64::try_from(stride).unwrap_or(i64::MAX);
        self.matrices.push(self.functions.layout(raw(element), (cols, rows, stride))?);
        Ok(())
    }

    /// The layouts of the first factor, which is b, the second one, which is a, and d.
    pub(super) fn layouts(&self) -> [MatrixLayout; 3] {
        [self.matrices[0], self.matrices[1], self.matrices[2]]
    }
}

impl Drop for Described<'_> {
    fn drop(&mut self) {
        for layout in &self.matrices {
            self.functions.destroy_layout(*layout);
        }
        self.functions.destroy_description(self.description);
    }
}

/// Whether sums may be cut into pieces that are added as `reduction` says.
pub(super) fn allows(sums: SumForm, reduction: u32) -> bool {
    match sums {
        SumForm::Unbroken => reduction == NO_REDUCTION,
        SumForm::Split => [NO_REDUCTION, REDUCTION_OF_SUMS].contains(&reduction),
    }
}

/// Limits of a search, destroyed at their end.
pub(super) struct Preferred<'a> {
    functions: &'a Functions,
    pub(super) preference: Preference,
}

impl<'a> Preferred<'a> {
    pub(super) fn of(
        functions: &'a Functions,
        product: &MatrixProduct,
        limits: ProductLimits,
    ) -> Result<Preferred<'a>, ProductError> {
        let preferred = Preferred { functions, preference: functions.preference()? };
        functions.prefer(preferred.preference, WORKSPACE, &(limits.workspace_bytes as u64).to_ne_bytes())?;
        // A mask: pieces may be added in place, in the type of sums, or in that of the result.
        let reductions = match limits.sums {
            SumForm::Unbroken => NO_REDUCTION,
            SumForm::Split => REDUCTION_OF_SUMS,
        };
        functions.prefer(preferred.preference, REDUCTIONS, &reductions.to_ne_bytes())?;
        let [a, b, d, bias] = product.alignments;
        let with_bias = match product.bias {
            BiasForm::Absent => d,
            BiasForm::Present => d.min(bias),
        };
        for (attribute, alignment) in ALIGNMENTS.into_iter().zip([b, a, d, with_bias]) {
            functions.prefer(preferred.preference, attribute, &alignment.to_ne_bytes())?;
        }
        Ok(preferred)
    }
}

impl Drop for Preferred<'_> {
    fn drop(&mut self) {
        self.functions.destroy_preference(self.preference);
    }
}
