//! The types of PTX.

/// A type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A truth value.
    Pred,
    /// Bits without a meaning.
    B8,
    /// Bits without a meaning.
    B16,
    /// Bits without a meaning.
    B32,
    /// Bits without a meaning.
    B64,
    /// A natural number.
    U8,
    /// A natural number.
    U16,
    /// A natural number.
    U32,
    /// A natural number.
    U64,
    /// A whole number.
    S8,
    /// A whole number.
    S16,
    /// A whole number.
    S32,
    /// A whole number.
    S64,
    /// Half precision.
    F16,
    /// Two of half precision, the first in the low bits.
    F16x2,
    /// Brain float.
    Bf16,
    /// Two brain floats, the first in the low bits.
    Bf16x2,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// The size of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// One bit a lane.
    Predicate,
    /// At most 32 bits a lane; shorter values are in the low bits, and what is above them says nothing.
    Small,
    /// 64 bits a lane.
    Wide,
}

impl Scalar {
    /// The type of a modifier without its dot; `None` for other modifiers.
    pub fn of(name: &str) -> Option<Scalar> {
        Some(match name {
            "pred" => Scalar::Pred,
            "b8" => Scalar::B8,
            "b16" => Scalar::B16,
            "b32" => Scalar::B32,
            "b64" => Scalar::B64,
            "u8" => Scalar::U8,
            "u16" => Scalar::U16,
            "u32" => Scalar::U32,
            "u64" => Scalar::U64,
            "s8" => Scalar::S8,
            "s16" => Scalar::S16,
            "s32" => Scalar::S32,
            "s64" => Scalar::S64,
            "f16" => Scalar::F16,
            "f16x2" => Scalar::F16x2,
            "bf16" => Scalar::Bf16,
            "bf16x2" => Scalar::Bf16x2,
            "f32" => Scalar::F32,
            "f64" => Scalar::F64,
            _ => return None,
        })
    }

    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Scalar::Pred | Scalar::B8 | Scalar::U8 | Scalar::S8 => 1,
            Scalar::B16 | Scalar::U16 | Scalar::S16 | Scalar::F16 | Scalar::Bf16 => 2,
            Scalar::B32 | Scalar::U32 | Scalar::S32 | Scalar::F32 | Scalar::F16x2 | Scalar::Bf16x2 => 4,
            Scalar::B64 | Scalar::U64 | Scalar::S64 | Scalar::F64 => 8,
        }
    }

    /// The register that holds one.
    pub fn width(self) -> Width {
        match self.bytes() {
            _ if self == Scalar::Pred => Width::Predicate,
            8 => Width::Wide,
            _ => Width::Small,
        }
    }

    /// Whether it is a whole number with a sign.
    pub fn is_signed(self) -> bool {
        matches!(self, Scalar::S8 | Scalar::S16 | Scalar::S32 | Scalar::S64)
    }

    /// Whether it is one floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::Bf16 | Scalar::F32 | Scalar::F64)
    }
}
