//! cuBLASLt: products of matrices by NVIDIA's own kernels.

mod calls;
mod functions;
mod library;
mod product;

pub use library::{Algorithm, Handle, Library, ProductError};
pub use product::{Element, Product, Stored};

pub(crate) fn header() -> crate::headers::Header {
    crate::headers::Header {
        includes: &["cublasLt.h"],
        functions: functions::Functions::declarations(),
        constants: functions::constants(),
        layouts: functions::layouts(),
    }
}

impl Library {
    /// Describes a product to the library and frees the description: all that needs no GPU.
    ///
    /// # Errors
    /// A product that the library does not accept.
    pub fn describe(&self, product: &Product) -> Result<(), ProductError> {
        product::Limits::of(&self.functions, 0)?;
        product::Described::of(&self.functions, product).map(|_| ())
    }
}
