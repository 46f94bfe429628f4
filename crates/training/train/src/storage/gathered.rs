//! Boxes of tensors on their way from the ranks of other processes to the sink of rank 0's process.
//!
//! Ranks deliver to a sink of their own process. In rank 0's process that is the last one: a file, or a map in memory.
//! Elsewhere it is a [`ForwardingSink`], whose messages the process of rank 0 gives to a [`GatheringSink`]. The last
//! sink counts elements, so it knows whether all messages have come, in whatever order.

use std::collections::BTreeMap;

use config::{ModelSpec, ParamSpec, all_params, router_corrections};
use mesh::Region;
use thiserror::Error;

use crate::storage::sink::{LogitsSink, TensorSink};

/// A message that is not a box of a tensor of the run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a process delivered {0}; start all processes with the same run file, options and program")]
pub struct GatherError(String);

/// Most elements of a message, unless a row of a tensor has more: a message of 4 MiB.
pub(crate) const MESSAGE_ELEMENTS: usize = 1 << 20;

/// Turns each box into messages of whole rows. One sink is one destination: weights, gradients and logits have one
/// each.
pub struct ForwardingSink<'a> {
    post: &'a (dyn Fn(Vec<u8>) + Sync),
}

impl<'a> ForwardingSink<'a> {
    /// Messages go to `post`, from the ranks' own threads.
    pub fn new(post: &'a (dyn Fn(Vec<u8>) + Sync)) -> ForwardingSink<'a> {
        ForwardingSink { post }
    }
}

impl TensorSink for ForwardingSink<'_> {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        let (Some(start), Some(rows)) = (region.start.first(), region.extent.first()) else {
            return (self.post)(message_of(param, region, values));
        };
        let row_len = (values.len() / (*rows).max(1)).max(1);
        let rows_at_once = (MESSAGE_ELEMENTS / row_len).max(1);
        for (index, values) in values.chunks(rows_at_once * row_len).enumerate() {
            let mut part = region.clone();
            part.start[0] = start + index * rows_at_once;
            part.extent[0] = values.len() / row_len;
            (self.post)(message_of(param, &part, values));
        }
    }
}

/// The message of one box.
fn message_of(param: &ParamSpec, region: &Region, values: &[f32]) -> Vec<u8> {
    let mut message = Vec::new();
    write_number(&mut message, param.name.len());
    message.extend(param.name.as_bytes());
    write_number(&mut message, region.ndim());
    region.start.iter().chain(&region.extent).for_each(|index| write_number(&mut message, *index));
    write_values(&mut message, values);
    message
}

impl LogitsSink for ForwardingSink<'_> {
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]) {
        let mut message = sequence.to_le_bytes().to_vec();
        write_number(&mut message, first_token);
        write_values(&mut message, logits);
        (self.post)(message);
    }
}

/// The end of the messages in the process of rank 0: hands boxes to the same sink as that process's ranks.
pub struct GatheringSink<'a> {
    params: BTreeMap<String, ParamSpec>,
    sink: &'a dyn TensorSink,
}

impl<'a> GatheringSink<'a> {
    /// Boxes of the parameters of `model` go to `sink`.
    pub fn new(model: &ModelSpec, sink: &'a dyn TensorSink) -> GatheringSink<'a> {
        let params = all_params(model).chain(router_corrections(model));
        GatheringSink { params: params.map(|param| (param.name.clone(), param)).collect(), sink }
    }

    /// Hands over the box of one message.
    ///
    /// # Errors
    /// See [`GatherError`]; the sink gets nothing.
    pub fn take(&self, message: &[u8]) -> Result<(), GatherError> {
        let mut message = Message(message);
        let name_len = message.number()?;
        let name = String::from_utf8_lossy(message.bytes(name_len)?).into_owned();
        let param =
            self.params.get(&name).ok_or_else(|| GatherError(format!("a box of {name:?}, which the model lacks")))?;
        if message.number()? != param.shape.len() {
            return Err(GatherError(format!("a box of {name} whose dims are not those of {:?}", param.shape)));
        }
        let (start, extent) = (message.numbers(param.shape.len())?, message.numbers(param.shape.len())?);
        let ends = start.iter().zip(&extent).map(|(start, extent)| start.checked_add(*extent));
        if !ends.zip(&param.shape).all(|(end, size)| end.is_some_and(|end| end <= *size)) {
            return Err(GatherError(format!("a box of {name} outside {:?}", param.shape)));
        }
        let (region, values) = (Region { start, extent }, message.values()?);
        if values.len() != region.len() {
            let (found, expected) = (values.len(), region.len());
            return Err(GatherError(format!("a box of {name} with {found} of {expected} elements")));
        }
        self.sink.put(param, &region, &values);
        Ok(())
    }
}

/// Hands the logits `[R, V]` of one message to `sink`, the same as that of rank 0's process.
///
/// # Errors
/// See [`GatherError`]; the sink gets nothing.
pub fn take_logits(message: &[u8], sink: &dyn LogitsSink) -> Result<(), GatherError> {
    let mut message = Message(message);
    let (sequence, first_token) = (message.number()? as u64, message.number()?);
    sink.put(sequence, first_token, &message.values()?);
    Ok(())
}

fn write_number(message: &mut Vec<u8>, number: usize) {
    message.extend((number as u64).to_le_bytes());
}

fn write_values(message: &mut Vec<u8>, values: &[f32]) {
    message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// The rest of a message.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], GatherError> {
        let (bytes, rest) =
            self.0.split_at_checked(len).ok_or_else(|| GatherError("a message that ends early".into()))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<usize, GatherError> {
        let bytes = self.bytes(size_of::<u64>())?;
        let number = bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).map_err(|_| GatherError(format!("the size {number}")))
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<usize>, GatherError> {
        (0..count).map(|_| self.number()).collect()
    }

    /// All that is left.
    fn values(&mut self) -> Result<Vec<f32>, GatherError> {
        let (values, rest) = self.0.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(GatherError("a part of an element".into()));
        }
        Ok(values.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }
}
