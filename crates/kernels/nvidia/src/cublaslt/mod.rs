//! cuBLASLt: products of matrices by NVIDIA's own kernels.

mod calls;
mod functions;
mod library;
mod product;

pub use library::{Handle, Library, ProductError};

pub(crate) fn header() -> crate::header::Header {
    crate::header::Header {
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
    pub fn describe(&self, product: &gpu::MatrixProduct, limits: gpu::ProductLimits) -> Result<(), ProductError> {
        product::Preferred::of(&self.functions, product, limits)?;
        let bias = gpu::DevicePointer(product.alignments[3].into());
        product::Described::of(&self.functions, product, bias).map(|_| ())
    }
}
