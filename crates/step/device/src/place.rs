//! Whether a tensor is what an operation takes, and is in the arena: the checks that every device with memory makes.

use crate::{DeviceError, Dtype, Tensor};

impl Tensor {
    /// Refuses a tensor that ends after an arena of `arena_bytes`.
    ///
    /// # Errors
    /// [`DeviceError::OutsideArena`].
    pub fn inside(self, arena_bytes: usize) -> Result<(), DeviceError> {
        let end_bytes = self.bytes().end;
        if end_bytes > arena_bytes {
            return Err(DeviceError::OutsideArena { tensor: format!("{self:?}"), end_bytes, arena_bytes });
        }
        Ok(())
    }

    /// Refuses elements of another type than `dtype`.
    ///
    /// # Errors
    /// [`DeviceError::Shape`].
    pub fn holds(self, dtype: Dtype) -> Result<(), DeviceError> {
        if self.dtype != dtype {
            return Err(DeviceError::Shape { op: "matrix", what: format!("{self:?} is not {dtype:?}") });
        }
        Ok(())
    }

    /// Refuses elements of another type than `dtype`, and gaps between rows.
    ///
    /// # Errors
    /// [`DeviceError::Shape`].
    pub fn is_dense_of(self, dtype: Dtype) -> Result<(), DeviceError> {
        if !self.is_dense() || self.dtype != dtype {
            return Err(DeviceError::Shape { op: "slice", what: format!("{self:?} is not a dense {dtype:?} tensor") });
        }
        Ok(())
    }

    /// Refuses a tensor to receive into that differs in type or length from `self`, which is sent, or overlaps with it.
    ///
    /// # Errors
    /// [`DeviceError::Shape`].
    pub fn exchanges_with(self, to: Tensor) -> Result<(), DeviceError> {
        let (sent, received) = (self.bytes(), to.bytes());
        let is_apart = sent.end <= received.start || received.end <= sent.start;
        if self.dtype == to.dtype && self.len() == to.len() && (is_apart || self.is_empty()) {
            return Ok(());
        }
        let what = format!("{self:?} and {to:?} differ in type or length, or overlap");
        Err(DeviceError::Shape { op: "exchange", what })
    }

    /// The reason for which a tensor of integers is refused where real numbers are computed with.
    pub fn not_real(self) -> DeviceError {
        DeviceError::Shape { op: "matrix", what: format!("{self:?} holds no real numbers") }
    }

    /// Refuses host bytes of another number than the tensor's; `op` is "read" or "write".
    ///
    /// # Errors
    /// [`DeviceError::Shape`].
    pub fn has_host_bytes(self, op: &'static str, host_bytes: usize) -> Result<(), DeviceError> {
        if self.size_bytes() == host_bytes {
            return Ok(());
        }
        Err(DeviceError::Shape { op, what: format!("{self:?} has {} bytes, the host {host_bytes}", self.size_bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_names_the_tensor_and_the_rule() {
        let tensor = Tensor { row_stride: 5, ..Tensor::new(64, 2, 3, Dtype::F32) };
        let text = |result: Result<(), DeviceError>| result.expect_err("refused").to_string();
        assert_eq!(text(tensor.inside(95)), "F32[2, 3] stride 5 @64 needs bytes up to 96, but the arena has 95");
        assert!(tensor.inside(96).is_ok() && tensor.holds(Dtype::F32).is_ok());
        assert_eq!(text(tensor.holds(Dtype::Bf16)), "matrix: F32[2, 3] stride 5 @64 is not Bf16");
        assert_eq!(text(tensor.is_dense_of(Dtype::F32)), "slice: F32[2, 3] stride 5 @64 is not a dense F32 tensor");
        let ids = Tensor::new(0, 1, 4, Dtype::I32);
        assert_eq!(text(ids.is_dense_of(Dtype::I64)), "slice: I32[1, 4] @0 is not a dense I64 tensor");
        assert_eq!(ids.not_real().to_string(), "matrix: I32[1, 4] @0 holds no real numbers");
        let (sent, rule) = (Tensor::new(0, 2, 4, Dtype::F32), "differ in type or length, or overlap");
        assert!(sent.exchanges_with(Tensor::new(32, 4, 2, Dtype::F32)).is_ok());
        for received in
            [Tensor::new(28, 2, 4, Dtype::F32), Tensor::new(32, 2, 4, Dtype::Bf16), Tensor::new(32, 2, 3, Dtype::F32)]
        {
            let refused = text(sent.exchanges_with(received));
            assert_eq!(refused, format!("exchange: F32[2, 4] @0 and {received:?} {rule}"));
        }
        assert_eq!(text(ids.has_host_bytes("read", 8)), "read: I32[1, 4] @0 has 16 bytes, the host 8");
    }
}
