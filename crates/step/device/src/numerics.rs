//! Numbers of a run, as a device must know them before it executes the first operation.

use std::fmt;

use config::{Format, GradientSums, Precision, Products};

use crate::DeviceError;

/// The kind of a device by name. Devices of one kind compute the same bits, whatever their instruction sets and
/// threads; kinds may promise each other's bits ([`DeviceKind::has_bits_of`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKind(pub &'static str);

impl DeviceKind {
    /// Kernels of crate `cpu`.
    pub const CPU: DeviceKind = DeviceKind("the CPU");
    /// Kernels of crate `cuda` on a GPU of NVIDIA.
    pub const CUDA: DeviceKind = DeviceKind("the GPU");
    /// [`MetaDevice`](crate::MetaDevice), which computes nothing.
    pub const RECORDER: DeviceKind = DeviceKind("the recorder");

    /// Kinds that add in the order that the run file names, each term and each sum rounded as the CPU rounds it:
    /// whatever numerics two of them accept, they compute the same bits.
    const SAME_BITS: [DeviceKind; 2] = [DeviceKind::CPU, DeviceKind::CUDA];

    /// Whether devices of this kind promise the bits of devices of the other.
    pub fn has_bits_of(self, other: DeviceKind) -> bool {
        self == other || [self, other].iter().all(|kind| DeviceKind::SAME_BITS.contains(kind))
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Everything in [`config::Precision`] and `train.sums` that changes how a device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numerics {
    /// The order in which products add their terms.
    pub products: Products,
    /// The format of parameters and activations.
    pub stored: Format,
    /// The numbers in which gradients are summed.
    pub gradient_sums: GradientSums,
}

/// One choice in [`Numerics`], which a device accepts or refuses. Printed as the key of the run file with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumericsChoice {
    /// The order of products.
    Products(Products),
    /// The stored format.
    Stored(Format),
    GradientSums(GradientSums),
}

impl Numerics {
    /// Single precision throughout, products in chains: the defaults of a run file.
    pub const SINGLE: Numerics =
        Numerics { products: Products::Chained, stored: Format::Fp32, gradient_sums: GradientSums::Single };

    /// Numerics of a run with this precision and these sums of gradients.
    pub fn of(precision: Precision, gradient_sums: GradientSums) -> Numerics {
        Numerics { products: precision.products(), stored: precision.stored(), gradient_sums }
    }

    /// The choices that an engine accepts or refuses by name.
    pub fn choices(self) -> [NumericsChoice; 3] {
        let Numerics { products, stored, gradient_sums } = self;
        [
            NumericsChoice::Products(products),
            NumericsChoice::Stored(stored),
            NumericsChoice::GradientSums(gradient_sums),
        ]
    }

    /// Compares every choice with those that `device` accepts.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] with the first choice that is not accepted, and the choices that `accepts` takes
    /// instead: of orders of products those that are defined for the stored format.
    pub fn accepted_by(self, device: DeviceKind, accepts: impl Fn(NumericsChoice) -> bool) -> Result<(), DeviceError> {
        let Some(refused) = self.choices().into_iter().find(|choice| !accepts(*choice)) else { return Ok(()) };
        let others: Vec<String> = refused
            .alternatives()
            .into_iter()
            .filter(|other| accepts(*other) && self.defines(*other))
            .map(NumericsChoice::value)
            .map(|value| format!("\"{value}\""))
            .collect();
        let remedy = match others.split_last() {
            None => "use another device".into(),
            Some((only, [])) => format!("use {only}"),
            Some((last, others)) => format!("use {} or {last}", others.join(", ")),
        };
        Err(DeviceError::Refused { choice: refused.to_string(), device, remedy })
    }

    /// Whether a run with all other choices of these numerics may make this one.
    fn defines(self, choice: NumericsChoice) -> bool {
        match choice {
            NumericsChoice::Products(products) => products.multiplies(self.stored),
            NumericsChoice::Stored(_) | NumericsChoice::GradientSums(_) => true,
        }
    }
}

impl NumericsChoice {
    /// All values of the same key.
    fn alternatives(self) -> Vec<NumericsChoice> {
        match self {
            NumericsChoice::Products(_) => Products::ALL.into_iter().map(NumericsChoice::Products).collect(),
            NumericsChoice::Stored(_) => Format::ALL.into_iter().map(NumericsChoice::Stored).collect(),
            NumericsChoice::GradientSums(_) => {
                [GradientSums::Single, GradientSums::Exact].into_iter().map(NumericsChoice::GradientSums).collect()
            }
        }
    }

    fn key(self) -> &'static str {
        match self {
            NumericsChoice::Products(_) => "train.products",
            NumericsChoice::Stored(_) => "train.precision",
            NumericsChoice::GradientSums(_) => "train.sums",
        }
    }

    fn value(self) -> &'static str {
        match self {
            NumericsChoice::Products(products) => products.name(),
            NumericsChoice::Stored(format) => format.name(),
            NumericsChoice::GradientSums(sums) => sums.name(),
        }
    }
}

impl fmt::Display for NumericsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = \"{}\"", self.key(), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with one way to compute.
    const TOY: DeviceKind = DeviceKind("the toy device");

    fn refusal(numerics: Numerics) -> String {
        let single = |choice: NumericsChoice| Numerics::SINGLE.choices().contains(&choice);
        match numerics.accepted_by(TOY, single) {
            Ok(()) => "accepted".into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_choice_is_refused_by_name() {
        assert_eq!(refusal(Numerics::SINGLE), "accepted");
        assert_eq!(
            refusal(Numerics { products: Products::Pairs, ..Numerics::SINGLE }),
            "train.products = \"pairs\" must be supported by the device; the toy device refuses it; use \"chained\""
        );
        assert_eq!(
            refusal(Numerics { products: Products::Blocks16, ..Numerics::SINGLE }),
            "train.products = \"blocks16\" must be supported by the device; the toy device refuses it; use \"chained\""
        );
        assert_eq!(
            refusal(Numerics { stored: Format::Bf16, ..Numerics::SINGLE }),
            "train.precision = \"bf16\" must be supported by the device; the toy device refuses it; use \"fp32\""
        );
        assert_eq!(
            refusal(Numerics { gradient_sums: GradientSums::Exact, ..Numerics::SINGLE }),
            "train.sums = \"exact\" must be supported by the device; the toy device refuses it; use \"single\""
        );
    }

    #[test]
    fn orders_that_the_format_does_not_have_are_no_remedy() {
        let refusal = |stored| {
            let numerics = Numerics { products: Products::Pairs, stored, ..Numerics::SINGLE };
            let all_but_pairs = |choice| choice != NumericsChoice::Products(Products::Pairs);
            numerics.accepted_by(TOY, all_but_pairs).expect_err("refused").to_string()
        };
        let rule = "train.products = \"pairs\" must be supported by the device; the toy device refuses it; use ";
        assert_eq!(refusal(Format::Fp32), format!("{rule}\"chained\""));
        assert_eq!(refusal(Format::Bf16), format!("{rule}\"chained\", \"blocks16\", \"blocks8\" or \"device\""));
    }

    #[test]
    fn gpus_promise_the_bits_of_the_cpu_and_no_other_device_does() {
        let [cpu, cuda] = [DeviceKind::CPU, DeviceKind::CUDA];
        assert!(cpu.has_bits_of(cuda) && cuda.has_bits_of(cpu) && TOY.has_bits_of(TOY));
        assert!(!cpu.has_bits_of(TOY) && !TOY.has_bits_of(cuda) && !cpu.has_bits_of(DeviceKind::RECORDER));
    }

    #[test]
    fn a_device_that_accepts_nothing_leaves_no_value_to_use() {
        let error = Numerics::SINGLE.accepted_by(TOY, |_| false).expect_err("refused").to_string();
        let expected = "train.products = \"chained\" must be supported by the device; the toy device refuses it; use another device";
        assert_eq!(error, expected);
    }
}
