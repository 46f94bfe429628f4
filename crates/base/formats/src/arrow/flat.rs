//! FlatBuffers, in which Arrow describes its messages: tables whose fields are found by their numbers.

use crate::error::Problem;

/// A table within a message's description.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the offsets of its fields are, and their bytes.
    offsets: usize,
    offsets_bytes: usize,
}

impl<'a> Table<'a> {
    /// The table that a description begins with.
    pub fn root(bytes: &'a [u8]) -> Result<Table<'a>, Problem> {
        let at = number(bytes, 0, 4)? as usize;
        Table::at(bytes, at)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Table<'a>, Problem> {
        let back = number(bytes, at, 4)? as u32 as i32;
        let offsets = (at as i64).checked_sub(back.into()).and_then(|offsets| usize::try_from(offsets).ok());
        let offsets = offsets.ok_or_else(outside)?;
        let offsets_bytes = number(bytes, offsets, 2)? as usize;
        Ok(Table { bytes, at, offsets, offsets_bytes })
    }

    /// Where field `field` is; `None` where it is left out.
    fn place(&self, field: usize) -> Result<Option<usize>, Problem> {
        let entry = 4 + 2 * field;
        if entry + 2 > self.offsets_bytes {
            return Ok(None);
        }
        match number(self.bytes, self.offsets + entry, 2)? as usize {
            0 => Ok(None),
            offset => Ok(Some(self.at + offset)),
        }
    }

    /// The number of `width` bytes in field `field`, or 0.
    pub fn number(&self, field: usize, width: usize) -> Result<u64, Problem> {
        self.place(field)?.map_or(Ok(0), |at| number(self.bytes, at, width))
    }

    /// A length of 64 bits.
    pub fn length(&self, field: usize) -> Result<usize, Problem> {
        length(self.number(field, 8)?)
    }

    /// The table in field `field`.
    pub fn table(&self, field: usize) -> Result<Option<Table<'a>>, Problem> {
        let Some(at) = self.place(field)? else { return Ok(None) };
        Table::at(self.bytes, self.target(at)?).map(Some)
    }

    fn target(&self, at: usize) -> Result<usize, Problem> {
        Ok(at + number(self.bytes, at, 4)? as usize)
    }

    /// Where the elements of a list in field `field` are, and how many of `width` bytes there are.
    fn list(&self, field: usize, width: usize) -> Result<(usize, usize), Problem> {
        let Some(at) = self.place(field)? else { return Ok((0, 0)) };
        let at = self.target(at)?;
        let count = number(self.bytes, at, 4)? as usize;
        let end = count.checked_mul(width).and_then(|bytes| bytes.checked_add(at + 4));
        if end.is_none_or(|end| end > self.bytes.len()) {
            return Err(outside());
        }
        Ok((at + 4, count))
    }

    /// The string in field `field`; empty where it is left out.
    pub fn text(&self, field: usize) -> Result<String, Problem> {
        let (at, count) = self.list(field, 1)?;
        Ok(String::from_utf8_lossy(&self.bytes[at..at + count]).into_owned())
    }

    /// The tables in field `field`.
    pub fn tables(&self, field: usize) -> Result<Vec<Table<'a>>, Problem> {
        let (at, count) = self.list(field, 4)?;
        (0..count).map(|index| Table::at(self.bytes, self.target(at + 4 * index)?)).collect()
    }

    /// Pairs of lengths of 64 bits in field `field`.
    pub fn pairs(&self, field: usize) -> Result<Vec<(usize, usize)>, Problem> {
        let (at, count) = self.list(field, 16)?;
        let half = |at| number(self.bytes, at, 8).and_then(length);
        (0..count).map(|index| Ok((half(at + 16 * index)?, half(at + 16 * index + 8)?))).collect()
    }

    /// Lengths of 64 bits in field `field`.
    pub fn lengths(&self, field: usize) -> Result<Vec<usize>, Problem> {
        let (at, count) = self.list(field, 8)?;
        (0..count).map(|index| number(self.bytes, at + 8 * index, 8).and_then(length)).collect()
    }
}

fn length(number: u64) -> Result<usize, Problem> {
    i64::try_from(number)
        .ok()
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| Problem::damaged(format!("a length of its description is {}", number as i64)))
}

fn number(bytes: &[u8], at: usize, width: usize) -> Result<u64, Problem> {
    let field = at.checked_add(width).and_then(|end| bytes.get(at..end)).ok_or_else(outside)?;
    let mut word = [0; 8];
    word[..width].copy_from_slice(field);
    Ok(u64::from_le_bytes(word))
}

fn outside() -> Problem {
    Problem::damaged("a message's description refers to bytes outside of it")
}
