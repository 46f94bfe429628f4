//! Bits per byte of simple methods on the held-out text, to compare a model's figure with.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::dataset::Dataset;
use crate::error::DataError;

/// Bits per byte of held-out text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baselines {
    /// Of `gzip -9`, which sees nothing but the held-out text.
    pub gzip: f64,
    /// Of [`OrderTwo`], counted in the training text.
    pub order_two: f64,
}

impl Baselines {
    /// Measures the held-out text of `dataset`, or nothing where that is empty.
    ///
    /// # Errors
    /// The error of the tokenizer.
    pub fn measure(dataset: &Dataset) -> Result<Option<Baselines>, DataError> {
        let held_out = dataset.text_of(&dataset.held_out)?;
        if held_out.is_empty() {
            return Ok(None);
        }
        let model = OrderTwo::count(dataset.text_of(&dataset.train)?.as_bytes());
        let held_out = held_out.as_bytes();
        Ok(Some(Baselines { gzip: gzip_bits_per_byte(held_out), order_two: model.bits_per_byte(held_out) }))
    }
}

/// Bits per byte of `text` after `gzip -9`, its header of 18 bytes included.
pub fn gzip_bits_per_byte(text: &[u8]) -> f64 {
    let mut encoder = GzEncoder::new(Length(0), Compression::best());
    // Counting bytes cannot fail.
    let length = encoder.write_all(text).and_then(|()| encoder.finish()).map_or(0, |length| length.0);
    8.0 * length as f64 / text.len() as f64
}

/// Counts what is written to it.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A model of a byte given the two before it: counts, interpolated after Witten and Bell ("The zero-frequency problem",
/// 1991, method C).
///
/// `P(c | h) = (N(h c) + D(h) P(c | h')) / (N(h) + D(h))`, where `N` counts, `D(h)` is how many different bytes follow
/// `h`, and `h'` is `h` without its first byte; below the empty context is the uniform distribution over 256 bytes.
#[derive(Clone, Debug)]
pub struct OrderTwo {
    orders: [Counts; 3],
}

/// Counts of one order: contexts of `order` bytes, by the number that the bytes make; none for a context that does not
/// occur.
#[derive(Clone, Debug)]
struct Counts {
    order: u32,
    contexts: Vec<Option<Box<Context>>>,
}

/// One context `h`.
#[derive(Clone, Debug)]
struct Context {
    /// `N(h)`.
    total: u32,
    /// `D(h)`.
    different: u32,
    /// `N(h c)` by `c`.
    following: [u32; 256],
}

impl OrderTwo {
    /// The model of `text`.
    pub fn count(text: &[u8]) -> OrderTwo {
        OrderTwo { orders: [0, 1, 2].map(|order| Counts::of(text, order)) }
    }

    /// Mean of `-log2 P` over the bytes of `text`; the first two have shorter contexts. 0 for no text.
    pub fn bits_per_byte(&self, text: &[u8]) -> f64 {
        let bits = (0..text.len()).map(|place| -self.probability(&text[..=place]).log2());
        bits.sum::<f64>() / text.len().max(1) as f64
    }

    /// The probability of the last byte of `text` after those before it.
    fn probability(&self, text: &[u8]) -> f64 {
        let mut probability = 1.0 / 256.0;
        for counts in &self.orders {
            if text.len() > counts.order as usize {
                probability = counts.interpolate(text, probability);
            }
        }
        probability
    }
}

impl Counts {
    fn of(text: &[u8], order: u32) -> Counts {
        let mut contexts = vec![None; 256usize.pow(order)];
        for window in text.windows(order as usize + 1) {
            let (place, byte) = split(window);
            let context: &mut Box<Context> = contexts[place].get_or_insert_default();
            let count = &mut context.following[byte];
            context.different += u32::from(*count == 0);
            context.total = context.total.saturating_add(1);
            *count = count.saturating_add(1);
        }
        Counts { order, contexts }
    }

    fn interpolate(&self, text: &[u8], below: f64) -> f64 {
        let (place, byte) = split(&text[text.len() - 1 - self.order as usize..]);
        let Some(context) = &self.contexts[place] else { return below };
        let (total, different) = (f64::from(context.total), f64::from(context.different));
        (f64::from(context.following[byte]) + different * below) / (total + different)
    }
}

impl Default for Context {
    fn default() -> Context {
        Context { total: 0, different: 0, following: [0; 256] }
    }
}

/// The number of the context in `window`, and the byte after it.
fn split(window: &[u8]) -> (usize, usize) {
    let whole = window.iter().fold(0, |place, byte| 256 * place + usize::from(*byte));
    (whole / 256, whole % 256)
}
