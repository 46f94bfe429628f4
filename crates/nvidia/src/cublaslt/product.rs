//! A product of matrices, described to the library.

use super::functions::{
    BF16, BY_ROW, DataType, Description, F32, Functions, MatrixLayout, ORDER, Preference, REDUCTIONS, SUMS_IN_F32,
    TRANSPOSE_A, TRANSPOSE_B, TRANSPOSED, WORKSPACE,
};
use super::library::ProductError;

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    Bf16,
    /// fp32.
    F32,
}

impl Element {
    fn raw(self) -> DataType {
        match self {
            Element::Bf16 => BF16,
            Element::F32 => F32,
        }
    }
}

/// How a factor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// As it is multiplied.
    Plain,
    Transposed,
}

/// `d[m,n] = a[m,k] b[k,n]`, all by rows and without gaps, sums in fp32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// The type of both factors.
    pub factors: Element,
    /// The type of the result.
    pub result: Element,
    /// How a is stored: `[m,k]`, or `[k,m]`.
    pub a: Stored,
    /// How b is stored: `[k,n]`, or `[n,k]`.
    pub b: Stored,
}

/// A product in the library's terms, destroyed at its end.
pub(super) struct Described<'a> {
    functions: &'a Functions,
    pub(super) description: Description,
    matrices: Vec<MatrixLayout>,
}

impl<'a> Described<'a> {
    pub(super) fn of(functions: &'a Functions, product: &Product) -> Result<Described<'a>, ProductError> {
        let Product { m, n, k, factors, result, a, b } = *product;
        let description = functions.description(SUMS_IN_F32, F32)?;
        let mut described = Described { functions, description, matrices: vec![] };
        for (attribute, stored) in [(TRANSPOSE_A, a), (TRANSPOSE_B, b)] {
            match stored {
                Stored::Plain => {}
                Stored::Transposed => functions.describe(description, attribute, TRANSPOSED)?,
            }
        }
        let shape = |stored, rows, columns| match stored {
            Stored::Plain => (rows, columns),
            Stored::Transposed => (columns, rows),
        };
        described.add(factors, shape(a, m, k))?;
        described.add(factors, shape(b, k, n))?;
        described.add(result, (m, n))?;
        Ok(described)
    }

    fn add(&mut self, element: Element, (rows, columns): (u64, u64)) -> Result<(), ProductError> {
        let stride = i64::try_from(columns).unwrap_or(i64::MAX);
        let layout = self.functions.layout(element.raw(), (rows, columns, stride))?;
        self.matrices.push(layout);
        self.functions.lay_out(layout, ORDER, BY_ROW)
    }

    /// Those of a, b and d.
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

/// Limits of a search, destroyed at their end.
pub(super) struct Limits<'a> {
    functions: &'a Functions,
    pub(super) preference: Preference,
}

impl<'a> Limits<'a> {
    /// No more memory than `workspace_bytes`, and no sum in pieces: their order would differ from that of a chain.
    pub(super) fn of(functions: &'a Functions, workspace_bytes: usize) -> Result<Limits<'a>, ProductError> {
        let limits = Limits { functions, preference: functions.preference()? };
        functions.prefer(limits.preference, WORKSPACE, &(workspace_bytes as u64).to_ne_bytes())?;
        // The mask of no reduction scheme.
        functions.prefer(limits.preference, REDUCTIONS, &0u32.to_ne_bytes())?;
        Ok(limits)
    }
}

impl Drop for Limits<'_> {
    fn drop(&mut self) {
        self.functions.destroy_preference(self.preference);
    }
}
