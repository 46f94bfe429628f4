//! How real numbers are in safetensors files.

use config::Format;
use device::{Bf16, Element, F16};
use safetensors::tensor::Dtype;

/// Names of the formats in a header.
const NAMES: [(Format, Dtype, &str); 3] =
    [(Format::Fp32, Dtype::F32, "F32"), (Format::Bf16, Dtype::BF16, "BF16"), (Format::Fp16, Dtype::F16, "F16")];

/// The format that a header names; `None` for other numbers.
pub(crate) fn format_of(dtype: Dtype) -> Option<Format> {
    NAMES.into_iter().find_map(|(format, known, _)| (known == dtype).then_some(format))
}

/// The name of a format in a header.
pub(crate) fn name_of(format: Format) -> &'static str {
    NAMES.into_iter().find(|(known, ..)| *known == format).map_or("", |(_, _, name)| name)
}

/// Assigns the numbers in `bytes`, which are as many as `values`; widening is exact.
pub(crate) fn widen(format: Format, bytes: &[u8], values: &mut [f32]) {
    fn each<const N: usize>(bytes: &[u8], values: &mut [f32], read: impl Fn([u8; N]) -> f32) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = read(*bytes);
        }
    }
    match format {
        Format::Fp32 => each(bytes, values, f32::from_le_bytes),
        Format::Bf16 => each(bytes, values, |bytes| Bf16(u16::from_le_bytes(bytes)).widen()),
        Format::Fp16 => each(bytes, values, |bytes| F16(u16::from_le_bytes(bytes)).widen()),
    }
}

/// `values`, each rounded once to the nearest number, little-endian. A value that is too large for the format becomes
/// infinite.
pub(crate) fn narrow(format: Format, values: &[f32]) -> Vec<u8> {
    match format {
        Format::Fp32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Format::Bf16 => values.iter().flat_map(|value| Bf16::narrow(*value).0.to_le_bytes()).collect(),
        Format::Fp16 => values.iter().flat_map(|value| F16::narrow(*value).0.to_le_bytes()).collect(),
    }
}
