//! Files that are nearly sound: one that was, and a few changes. Bytes at random would end at the first byte that is
//! asked for.

use bolero::TypeGenerator;

/// A sound file and what is done to it.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Corrupted {
    seed: u8,
    #[generator(bolero::produce_with::<Vec<Edit>>().len(1usize..5))]
    edits: Vec<Edit>,
    seal: Seal,
}

/// Whether hashes within the file are those of what it became, so that the checks after them are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TypeGenerator)]
pub enum Seal {
    /// They are what they were, or what a change made of them.
    Left,
    /// They fit.
    Renewed,
}

/// One change. Places are counted around the end of the file.
#[derive(Clone, Debug, TypeGenerator)]
enum Edit {
    /// One bit is another.
    Flip { at: u32, bit: u8 },
    /// One byte is another.
    Put { at: u32, byte: u8 },
    /// A number of 1, 2, 4 or 8 bytes replaces the bytes there.
    Word { at: u32, width_log: u8, value: u8 },
    /// The next number that is written in digits is another.
    Digits { at: u32, value: u8 },
    /// Bytes are gone.
    Remove { at: u32, len: u8 },
    /// The file ends.
    End { at: u32 },
    /// Bytes are copied to another place.
    Copy { from: u32, len: u8, to: u32 },
    /// A whole line is copied to another place.
    CopyLine { from: u32, to: u32 },
    /// Nested brackets, between two bytes.
    Nest { at: u32, depth: u16, bracket: bool },
}

/// Where arithmetic goes wrong.
const WORDS: [u64; 12] =
    [0, 1, 7, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, 0x3fff_ffff_ffff_ffff, u64::MAX];

/// The same as text, with what only text can say.
const DIGITS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "3",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "1e308",
    "1e-320",
    "0.1",
    "nan",
];

impl Corrupted {
    /// The corrupted copy of one of `seeds`; `seal` renews hashes.
    pub fn file(&self, seeds: &[Vec<u8>], seal: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut file = seeds[usize::from(self.seed) % seeds.len()].clone();
        self.edits.iter().for_each(|edit| edit.apply(&mut file));
        match self.seal {
            Seal::Left => {}
            Seal::Renewed => seal(&mut file),
        }
        file
    }
}

impl Edit {
    fn apply(&self, file: &mut Vec<u8>) {
        let place = |at: u32| at as usize % (file.len() + 1);
        let behind = |start: usize, len: u8| (start + usize::from(len)).min(file.len());
        match *self {
            Edit::Flip { at, bit } => {
                let at = place(at);
                file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            Edit::Put { at, byte } => {
                let at = place(at);
                file.iter_mut().skip(at).take(1).for_each(|old| *old = byte);
            }
            Edit::Word { at, width_log, value } => {
                let (at, width) = (place(at), 1u8 << (width_log % 4));
                let word = WORDS[usize::from(value) % WORDS.len()].to_le_bytes();
                let range = at..behind(at, width);
                file.splice(range.clone(), word.into_iter().take(range.len()));
            }
            Edit::Digits { at, value } => {
                let at = place(at);
                let Some(start) = file[at..].iter().position(u8::is_ascii_digit).map(|start| at + start) else {
                    return;
                };
                let len = file[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                file.splice(start..start + len, DIGITS[usize::from(value) % DIGITS.len()].bytes());
            }
            Edit::Remove { at, len } => {
                let at = place(at);
                let end = behind(at, len);
                file.drain(at..end);
            }
            Edit::End { at } => {
                let at = place(at);
                file.truncate(at);
            }
            Edit::Copy { from, len, to } => {
                let (from, to) = (place(from), place(to));
                let bytes = file[from..behind(from, len)].to_vec();
                file.splice(to..to, bytes);
            }
            Edit::CopyLine { from, to } => {
                let line = |at: usize| {
                    let start = file[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    let len =
                        file[start..].iter().position(|byte| *byte == b'\n').map_or(file.len() - start, |end| end + 1);
                    start..start + len
                };
                let (from, to) = (line(place(from)), line(place(to)).start);
                let bytes = file[from].to_vec();
                file.splice(to..to, bytes);
            }
            Edit::Nest { at, depth, bracket } => {
                let (open, at) = (if bracket { b'[' } else { b'{' }, place(at));
                file.splice(at..at, std::iter::repeat_n(open, usize::from(depth)));
            }
        }
    }
}
