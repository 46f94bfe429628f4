//! The file of the algorithms that compute the products of a run: `product_algorithms.json`. Algorithms of a file are
//! compared with those that the library proposes, and nothing else of it reaches the library.

use std::collections::BTreeMap;

use gpu::{BiasForm, FactorForm, MatrixElement, MatrixProduct, ResultForm};
use serde::{Deserialize, Serialize};
use train::{ChosenAlgorithms, StreamProduct};

/// More than the GPU models, drivers and libraries of any run.
const MOST_PLATFORMS: usize = 64;

/// More than the products of any run.
const MOST_PRODUCTS: usize = 4096;

/// A GPU model with its driver and its library, on which algorithms were chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    pub gpu: String,
    pub driver: String,
    pub library: String,
}

impl Platform {
    /// `NVIDIA H200 (CUDA 13.0, cuBLASLt 13.1.0)`
    pub fn described(&self) -> String {
        let Platform { gpu, driver, library } = self;
        format!("{gpu} ({driver}, {library})")
    }
}

/// The algorithms of all platforms that a run has had.
pub type AlgorithmsByPlatform = BTreeMap<Platform, ChosenAlgorithms>;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    platforms: Vec<PlatformAlgorithms>,
}

/// The algorithms of a platform, as they are written and sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformAlgorithms {
    pub platform: Platform,
    products: Vec<Product>,
}

/// A product with the words of its algorithm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Product {
    /// m, n and k.
    sizes: [u64; 3],
    factors: String,
    result: String,
    a: String,
    b: String,
    strides: [u64; 3],
    alignments: [u32; 4],
    write: String,
    bias: String,
    workspace_bytes: usize,
    /// Eight words of 64 bits in base 16.
    algorithm: [String; 8],
}

const ELEMENTS: [(&str, MatrixElement); 3] =
    [("fp32", MatrixElement::F32), ("bf16", MatrixElement::Bf16), ("fp16", MatrixElement::F16)];
const FORMS: [(&str, FactorForm); 2] = [("plain", FactorForm::Plain), ("transposed", FactorForm::Transposed)];
const WRITES: [(&str, ResultForm); 2] = [("assigned", ResultForm::Assigned), ("accumulated", ResultForm::Accumulated)];
const BIASES: [(&str, BiasForm); 2] = [("absent", BiasForm::Absent), ("present", BiasForm::Present)];

/// The name of a value of a table.
fn name_of<T: PartialEq>(table: &[(&str, T)], value: T) -> String {
    table.iter().find(|(_, other)| *other == value).map_or(String::new(), |(name, _)| (*name).into())
}

/// The value of a name.
fn value_of<T: Copy>(table: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        format!("{name:?} is not one of {}", names.join(", "))
    })
}

impl Product {
    fn of(product: &StreamProduct, words: [u64; 8]) -> Product {
        let StreamProduct { product, workspace_bytes } = *product;
        let MatrixProduct { sizes, factors, result, a, b, strides, alignments, write, bias } = product;
        Product {
            sizes,
            factors: name_of(&ELEMENTS, factors),
            result: name_of(&ELEMENTS, result),
            a: name_of(&FORMS, a),
            b: name_of(&FORMS, b),
            strides,
            alignments,
            write: name_of(&WRITES, write),
            bias: name_of(&BIASES, bias),
            workspace_bytes,
            algorithm: words.map(|word| format!("{word:016x}")),
        }
    }

    fn read(&self) -> Result<(StreamProduct, [u64; 8]), String> {
        let product = MatrixProduct {
            sizes: self.sizes,
            factors: value_of(&ELEMENTS, &self.factors)?,
            result: value_of(&ELEMENTS, &self.result)?,
            a: value_of(&FORMS, &self.a)?,
            b: value_of(&FORMS, &self.b)?,
            strides: self.strides,
            alignments: self.alignments,
            write: value_of(&WRITES, &self.write)?,
            bias: value_of(&BIASES, &self.bias)?,
        };
        let mut words = [0; 8];
        for (word, text) in words.iter_mut().zip(&self.algorithm) {
            *word = u64::from_str_radix(text, 16).map_err(|_| format!("{text:?} is not a word in base 16"))?;
        }
        Ok((StreamProduct { product, workspace_bytes: self.workspace_bytes }, words))
    }
}

impl PlatformAlgorithms {
    /// The algorithms of a platform, in the order of their products.
    pub fn of(platform: &Platform, algorithms: &ChosenAlgorithms) -> PlatformAlgorithms {
        let mut products: Vec<Product> =
            algorithms.iter().map(|(product, words)| Product::of(product, *words)).collect();
        products.sort();
        PlatformAlgorithms { platform: platform.clone(), products }
    }

    /// The algorithms.
    ///
    /// # Errors
    /// Too many products, and names that do not exist.
    pub fn algorithms(&self) -> Result<ChosenAlgorithms, String> {
        if self.products.len() > MOST_PRODUCTS {
            return Err(format!("it has {} products; at most {MOST_PRODUCTS}", self.products.len()));
        }
        self.products.iter().map(Product::read).collect()
    }
}

/// The text of the file.
pub fn text_of(kept: &AlgorithmsByPlatform) -> String {
    let platforms = kept.iter().map(|(platform, algorithms)| PlatformAlgorithms::of(platform, algorithms)).collect();
    // Only maps whose keys are not texts cannot be written.
    serde_json::to_string_pretty(&Written { platforms }).unwrap_or_default() + "\n"
}

/// The content of a file.
///
/// # Errors
/// Text that was not written by [`text_of`].
pub fn read(text: &str) -> Result<AlgorithmsByPlatform, String> {
    let Written { platforms } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if platforms.len() > MOST_PLATFORMS {
        return Err(format!("it has {} platforms; at most {MOST_PLATFORMS}", platforms.len()));
    }
    platforms.into_iter().map(|of| Ok((of.platform.clone(), of.algorithms()?))).collect()
}

/// Adds the algorithms of a platform. Where there are too many platforms, those of others are forgotten.
pub fn add(kept: &mut AlgorithmsByPlatform, platform: Platform, algorithms: ChosenAlgorithms) {
    if kept.len() >= MOST_PLATFORMS && !kept.contains_key(&platform) {
        kept.clear();
    }
    kept.insert(platform, algorithms);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(gpu: &str) -> Platform {
        Platform { gpu: gpu.into(), driver: "CUDA 13.0".into(), library: "cuBLASLt 13.1.0".into() }
    }

    fn algorithms(count: u64) -> ChosenAlgorithms {
        let product = |m| {
            let dense = MatrixProduct::dense(
                [m, 3, 4],
                [MatrixElement::Bf16, MatrixElement::F32],
                [FactorForm::Plain, FactorForm::Transposed],
            );
            let product = MatrixProduct { write: ResultForm::Accumulated, ..dense };
            (StreamProduct { product, workspace_bytes: 32 << 20 }, [m, u64::MAX, 0, 1, 2, 3, 4, 5])
        };
        (1..=count).map(product).collect()
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut kept = AlgorithmsByPlatform::new();
        add(&mut kept, platform("H200"), algorithms(3));
        add(&mut kept, platform("A100"), algorithms(1));
        let text = text_of(&kept);
        assert!(
            text.contains("\"algorithm\": [\n            \"0000000000000001\",\n            \"ffffffffffffffff\""),
            "{text}"
        );
        assert_eq!(read(&text), Ok(kept));
    }

    #[test]
    fn files_of_others_are_refused() {
        let mut kept = AlgorithmsByPlatform::new();
        add(&mut kept, platform("H200"), algorithms(1));
        let text = text_of(&kept);
        let refused = |from: &str, to: &str| read(&text.replace(from, to)).expect_err("refused");
        assert_eq!(refused("\"bf16\"", "\"int8\""), "\"int8\" is not one of fp32, bf16, fp16");
        assert_eq!(refused("ffffffffffffffff", "word"), "\"word\" is not a word in base 16");
        assert!(refused("\"sizes\"", "\"shapes\"").starts_with("unknown field `shapes`"));
        assert!(refused("0000000000000005", "0000000000000005\", \"6").contains("trailing"), "nine words");
        assert!(read(&text[1..]).is_err() && read("").is_err() && read(&"[".repeat(1 << 20)).is_err());
        add(&mut kept, platform("A100"), algorithms(MOST_PRODUCTS as u64 + 1));
        assert_eq!(read(&text_of(&kept)), Err("it has 4097 products; at most 4096".into()));
        let many = (0..=MOST_PLATFORMS).map(|gpu| (platform(&gpu.to_string()), algorithms(0))).collect();
        assert_eq!(read(&text_of(&many)), Err("it has 65 platforms; at most 64".into()));
    }

    #[test]
    fn a_file_has_a_bounded_number_of_platforms() {
        let mut kept = AlgorithmsByPlatform::new();
        for gpu in 0..200 {
            add(&mut kept, platform(&gpu.to_string()), algorithms(0));
            assert!(kept.len() <= MOST_PLATFORMS && kept.contains_key(&platform(&gpu.to_string())));
        }
    }
}
