//! One rank's copy of a box of a value, in memory and on its way to process 0.

use device::Dtype;
use mesh::{Region, copy_runs};
use serde::{Deserialize, Serialize};

use crate::exchange::{from_message, malformed, to_message};
use crate::message_forms::DtypeForm;
use crate::runner::ProofError;

/// Elements of a message, unless a row has more.
const MESSAGE_ELEMENTS: usize = 1 << 20;

/// A box of a value on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub header: CopyHeader,
    /// Row-major.
    pub values: Vec<f32>,
}

/// Everything but the elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyHeader {
    pub rank: usize,
    /// Coordinates of the rank.
    pub place: String,
    pub microbatch: Option<u32>,
    /// Of the value.
    pub shape: Vec<usize>,
    pub sequence_length: usize,
    /// First element of the box along each dim.
    pub start: Vec<usize>,
    /// Elements of the box along each dim.
    pub extent: Vec<usize>,
    #[serde(with = "DtypeForm")]
    pub dtype: Dtype,
}

impl Copy {
    /// The elements with their places in the value.
    pub fn elements(&self) -> impl Iterator<Item = (usize, f32)> {
        let CopyHeader { start, extent, shape, .. } = &self.header;
        let region = Region { start: start.clone(), extent: extent.clone() };
        let runs = copy_runs(&region, &Region::whole(shape)).into_iter();
        runs.flat_map(|run| (run.target..).zip(self.values[run.source..run.source + run.len].iter().copied()))
    }

    /// Messages of some MB for [`Copy::from_message`], each a copy of some rows.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    pub fn to_messages(&self) -> Result<Vec<Vec<u8>>, ProofError> {
        let row_len = self.header.extent.iter().skip(1).product::<usize>().max(1);
        let rows_at_once = (MESSAGE_ELEMENTS / row_len).max(1);
        let parts = self.values.chunks(rows_at_once * row_len).enumerate().map(|(index, values)| {
            let mut header = self.header.clone();
            if let (Some(start), Some(rows)) = (header.start.first_mut(), header.extent.first_mut()) {
                *start += index * rows_at_once;
                *rows = values.len() / row_len;
            }
            let header = to_message(&header)?;
            let mut message = (header.len() as u64).to_le_bytes().to_vec();
            message.extend(header);
            message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            Ok(message)
        });
        parts.collect()
    }

    /// The copy of one message.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    pub fn from_message(message: &[u8]) -> Result<Copy, ProofError> {
        let cut = || malformed(&"it ends early");
        let (length, rest) = message.split_first_chunk::<8>().ok_or_else(cut)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|error| malformed(&error))?;
        let (header, values) = rest.split_at_checked(length).ok_or_else(cut)?;
        let header: CopyHeader = from_message(header)?;
        let (values, rest) = values.as_chunks::<4>();
        let values: Vec<f32> = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
        let ends = header.start.iter().zip(&header.extent).map(|(start, extent)| start.checked_add(*extent));
        let is_inside = header.start.len() == header.shape.len()
            && header.extent.len() == header.shape.len()
            && ends.zip(&header.shape).all(|(end, size)| end.is_some_and(|end| end <= *size));
        if !rest.is_empty() || !is_inside || header.extent.iter().product::<usize>() != values.len() {
            return Err(malformed(&"its elements are not those of its box"));
        }
        Ok(Copy { header, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(shape: &[usize], start: &[usize], extent: &[usize]) -> Copy {
        let header = CopyHeader {
            rank: 3,
            place: "dp 1".into(),
            microbatch: Some(2),
            shape: shape.into(),
            sequence_length: 8,
            start: start.into(),
            extent: extent.into(),
            dtype: Dtype::Bf16,
        };
        let values = (0..extent.iter().product()).map(|index: usize| index as f32).collect();
        Copy { header, values }
    }

    #[test]
    fn large_copies_travel_in_messages_of_whole_rows() {
        let large = copy(&[3000, 1024], &[40, 0], &[2500, 1024]);
        let messages = large.to_messages().expect("messages");
        assert_eq!(messages.len(), 3, "1,024 rows are a message");
        let parts: Vec<Copy> = messages.iter().map(|message| Copy::from_message(message).expect("a copy")).collect();
        let elements: Vec<(usize, f32)> = parts.iter().flat_map(Copy::elements).collect();
        assert!(elements == large.elements().collect::<Vec<_>>());
        let number = copy(&[1], &[0], &[1]);
        let messages = number.to_messages().expect("messages");
        assert_eq!(Copy::from_message(&messages[0]).expect("a copy"), number);
    }

    #[test]
    fn a_message_that_is_no_copy_is_refused() {
        let message = copy(&[4, 2], &[2, 0], &[2, 2]).to_messages().expect("messages").remove(0);
        let outside = copy(&[3, 2], &[2, 0], &[2, 2]).to_messages().expect("messages").remove(0);
        for bytes in
            [&message[..4], &message[..20], &message[..message.len() - 1], &message[..message.len() - 4], &outside]
        {
            let error = Copy::from_message(bytes).expect_err("refused").to_string();
            assert!(error.starts_with("a message of another process: "), "{error}");
        }
    }
}
