//! How a rank writes the words of an entry while another process may read them: a number of 0, the fields, their
//! number.
//!
//! A reader believes an entry whose number is the same before and after it has read the fields. Numbers only grow, so
//! the entry was whole for all of that time.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::ring::{ENTRY_BYTES, field};

pub(crate) const ENTRY_WORDS: usize = ENTRY_BYTES / size_of::<u64>();

/// Words that one rank writes and others read; numbers are little-endian.
pub(crate) trait Words {
    /// Writes a word.
    fn store(&self, word: usize, value: u64, order: Ordering);

    /// Earlier writes become visible before later ones.
    fn fence(&self);
}

impl Words for [AtomicU64] {
    fn store(&self, word: usize, value: u64, order: Ordering) {
        self[word].store(value.to_le(), order);
    }

    fn fence(&self) {
        fence(Ordering::Release);
    }
}

/// The word of a place within an entry.
const fn word(place: usize) -> usize {
    place / size_of::<u64>()
}

/// Writes the entry of `number`: `fields` after the number.
pub(crate) fn begin<W: Words + ?Sized>(entry: &W, number: u64, fields: &[u64]) {
    entry.store(word(field::NUMBER), 0, Ordering::Relaxed);
    entry.fence();
    for (index, value) in fields.iter().enumerate() {
        entry.store(word(field::NUMBER) + 1 + index, *value, Ordering::Relaxed);
    }
    entry.store(word(field::NUMBER), number, Ordering::Release);
}

/// Writes the end of the entry that was begun last.
pub(crate) fn end<W: Words + ?Sized>(entry: &W, ended_ns: u64) {
    entry.store(word(field::ENDED), ended_ns, Ordering::Release);
}

/// The entries that were whole while they were read: those of the second of three copies of a ring's entries, taken one
/// after the other, whose numbers are in the first and in the third.
pub(crate) fn whole([before, copy, after]: [&[u8]; 3]) -> impl Iterator<Item = &[u8]> {
    let number = |entry: &[u8]| entry[field::NUMBER..field::NUMBER + size_of::<u64>()].to_vec();
    let entries = [before, copy, after].map(|copy| copy.chunks_exact(ENTRY_BYTES));
    let [before, copy, after] = entries;
    before.zip(copy).zip(after).filter_map(move |((before, entry), after)| {
        let unchanged = number(before) == number(after) && number(before).iter().any(|byte| *byte != 0);
        unchanged.then_some(entry)
    })
}

/// A ring of two entries in atomic words of any kind, and a copy of it as a reader takes it.
#[cfg(test)]
macro_rules! ring_of {
    ($atomic:ty) => {
        struct Cells(Vec<$atomic>);

        struct Slot<'a>(&'a [$atomic]);

        impl Words for Slot<'_> {
            fn store(&self, word: usize, value: u64, order: Ordering) {
                self.0[word].store(value, order);
            }

            fn fence(&self) {
                fence(Ordering::Release);
            }
        }

        impl Cells {
            fn new() -> Cells {
                Cells((0..SLOTS * ENTRY_WORDS).map(|_| <$atomic>::new(0)).collect())
            }

            /// Writes an entry whose fields are its number, and its end.
            fn write(&self, number: u64) {
                let slot = (number as usize - 1) % SLOTS * ENTRY_WORDS;
                let slot = Slot(&self.0[slot..slot + ENTRY_WORDS]);
                begin(&slot, number, &[number; FIELDS]);
                end(&slot, number);
            }

            /// The words that are in use, in the order in which a copy takes them.
            fn copy(&self) -> Vec<u8> {
                let mut copy = vec![0; SLOTS * ENTRY_BYTES];
                for slot in 0..SLOTS {
                    for word in 0..=FIELDS {
                        let index = slot * ENTRY_WORDS + word;
                        let bytes = self.0[index].load(Ordering::Acquire).to_le_bytes();
                        copy[8 * index..8 * index + 8].copy_from_slice(&bytes);
                    }
                }
                copy
            }

            /// Numbers of the entries that are believed. Each field of each must be its number; the end may be 0.
            fn read(&self) -> Vec<u64> {
                let copies = [(); 3].map(|()| self.copy());
                let [before, copy, after] = &copies;
                let entries = whole([before, copy, after]).map(|entry| {
                    let words: Vec<u64> = entry.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                    let is_whole = words[..=FIELDS].iter().all(|word| *word == words[0]);
                    assert!(is_whole, "entry {} has the fields {:?}", words[0], &words[1..=FIELDS]);
                    words[0]
                });
                entries.collect()
            }
        }
    };
}

#[cfg(test)]
const SLOTS: usize = 2;
/// Fields of entries in tests; the place of the end is the last.
#[cfg(test)]
const FIELDS: usize = 4;

/// Models of the ring: in every order of threads that shuttle draws, an entry that is believed is whole.
/// `tools/check-threads.sh models` runs them.
#[cfg(all(test, shuttle))]
mod models {
    use std::sync::Arc;

    use sync::shuttle::{check_pct, check_random};
    use sync::thread;

    use super::*;

    const ORDERS: usize = 5000;

    ring_of!(sync::atomic::AtomicU64);

    #[test]
    fn an_entry_that_is_believed_is_whole_and_the_last_ones_are_believed() {
        let run = || {
            let ring = Arc::new(Cells::new());
            let writer = Arc::clone(&ring);
            let writer = thread::spawn(move || (1..=5).for_each(|number| writer.write(number)));
            let seen = ring.read();
            assert!(seen.len() <= SLOTS, "{seen:?}");
            writer.join().unwrap();
            assert_eq!(ring.read(), [5, 4]);
        };
        check_random(run, ORDERS);
        check_pct(run, ORDERS, 3);
    }
}

/// The same on threads of the system, and in Miri, which draws what weak memory allows.
#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    ring_of!(AtomicU64);

    #[test]
    fn a_reader_believes_whole_entries_only() {
        let (ring, is_over) = (Cells::new(), AtomicBool::new(false));
        let numbers = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    ring.read();
                    std::thread::yield_now();
                }
            });
            (1..=numbers).for_each(|number| ring.write(number));
            is_over.store(true, Ordering::Release);
        });
        assert_eq!(ring.read(), [numbers - 1, numbers]);
    }
}
