//! Thrift's compact protocol, in which parquet describes itself: fields of structures by number, unknown ones
//! skipped.

use crate::error::Problem;

/// Structures within structures that are followed.
const DEEPEST: usize = 32;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    True,
    False,
    Byte,
    /// 16, 32 or 64 bits.
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Result<Kind, Problem> {
        Ok(match code {
            1 => Kind::True,
            2 => Kind::False,
            3 => Kind::Byte,
            4..=6 => Kind::Integer,
            7 => Kind::Double,
            8 => Kind::Binary,
            9 | 10 => Kind::List,
            11 => Kind::Map,
            12 => Kind::Struct,
            13 => Kind::Uuid,
            _ => return Err(Problem::damaged(format!("a field of its description has the unknown type {code}"))),
        })
    }
}

/// A description that is being read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, depth: 0 }
    }

    /// Bytes that were read.
    pub fn at(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Result<u8, Problem> {
        let byte = self.bytes.get(self.at).copied().ok_or(Problem::Truncated("its description"))?;
        self.at += 1;
        Ok(byte)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Problem::Truncated("its description"))?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, Problem> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Problem::damaged("a number of its description does not end"))
    }

    /// A signed number.
    pub fn integer(&mut self) -> Result<i64, Problem> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number from 0 on.
    pub fn length(&mut self) -> Result<usize, Problem> {
        let value = self.integer()?;
        usize::try_from(value).map_err(|_| Problem::damaged(format!("a length of its description is {value}")))
    }

    /// A string; bytes that are not text are replaced.
    pub fn text(&mut self) -> Result<String, Problem> {
        let count = self.varint()? as usize;
        Ok(String::from_utf8_lossy(self.bytes(count)?).into_owned())
    }

    /// Calls `field` with the number and the type of each field of a structure; it returns whether it has read the
    /// field.
    pub fn fields(
        &mut self,
        mut field: impl FnMut(&mut Reader<'a>, i64, Kind) -> Result<Read, Problem>,
    ) -> Result<(), Problem> {
        self.deeper()?;
        let mut number = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.depth -= 1;
                return Ok(());
            }
            let kind = Kind::of(head & 0xf)?;
            number = match head >> 4 {
                0 => self.integer()?,
                more => number + i64::from(more),
            };
            if field(self, number, kind)? == Read::No {
                self.skip(kind)?;
            }
        }
    }

    /// Calls `element` for each element of a list, which are of one type.
    pub fn list(
        &mut self,
        mut element: impl FnMut(&mut Reader<'a>, usize) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let (count, _) = self.list_head()?;
        (0..count).try_for_each(|index| element(self, index))
    }

    fn list_head(&mut self) -> Result<(usize, Kind), Problem> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()? as usize,
            count => count.into(),
        };
        // Each element has a byte at least.
        if count > self.bytes.len() - self.at {
            return Err(Problem::Truncated("a list of its description"));
        }
        Ok((count, Kind::of(head & 0xf)?))
    }

    fn deeper(&mut self) -> Result<(), Problem> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Problem::damaged(format!("its description has more than {DEEPEST} levels")));
        }
        Ok(())
    }

    fn skip(&mut self, kind: Kind) -> Result<(), Problem> {
        match kind {
            Kind::True | Kind::False => {}
            Kind::Byte => drop(self.byte()?),
            Kind::Integer => drop(self.varint()?),
            Kind::Double => drop(self.bytes(8)?),
            Kind::Uuid => drop(self.bytes(16)?),
            Kind::Binary => {
                let count = self.varint()? as usize;
                self.bytes(count)?;
            }
            Kind::List => {
                self.deeper()?;
                let (count, kind) = self.list_head()?;
                (0..count).try_for_each(|_| self.skip_element(kind))?;
                self.depth -= 1;
            }
            Kind::Map => {
                self.deeper()?;
                let count = self.varint()? as usize;
                if count > 0 {
                    let kinds = self.byte()?;
                    let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 0xf)?);
                    for _ in 0..count {
                        self.skip_element(key)?;
                        self.skip_element(value)?;
                    }
                }
                self.depth -= 1;
            }
            Kind::Struct => self.fields(|_, _, _| Ok(Read::No))?,
        }
        Ok(())
    }

    /// In lists and maps a truth value has a byte of its own.
    fn skip_element(&mut self, kind: Kind) -> Result<(), Problem> {
        match kind {
            Kind::True | Kind::False => self.byte().map(drop),
            Kind::Byte
            | Kind::Integer
            | Kind::Double
            | Kind::Binary
            | Kind::List
            | Kind::Map
            | Kind::Struct
            | Kind::Uuid => self.skip(kind),
        }
    }
}

/// Whether the field was read, or is to be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Yes,
    No,
}
