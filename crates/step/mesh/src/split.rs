//! Dividing a count among parts, and naming the counts that would have divided.

use std::ops::Range;

/// Part `index` of `0..total` cut into `parts` contiguous parts whose lengths differ by at most
/// one; the longer parts come first. Parts past the end are empty.
///
/// # Panics
/// When `index` is not below `parts`.
pub fn even_split(total: usize, parts: usize, index: usize) -> Range<usize> {
    assert!(index < parts, "part {index} of {parts} does not exist");
    let (short, longer_parts) = (total / parts, total % parts);
    let start = index * short + index.min(longer_parts);
    let len = short + usize::from(index < longer_parts);
    start..start + len
}

/// The largest number that divides both; the other one where one of them is zero.
pub fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The divisors of `number` in ascending order; none of zero.
pub fn divisors(number: usize) -> Vec<usize> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    let mut candidate = 1;
    while candidate <= number / candidate.max(1) {
        if number.is_multiple_of(candidate) {
            small.push(candidate);
            if candidate != number / candidate {
                large.push(number / candidate);
            }
        }
        candidate += 1;
    }
    small.extend(large.into_iter().rev());
    small
}

/// The numbers as a choice in a sentence: `1, 2, 4 or 8`; the end of a message such as "tensor
/// parallelism 3 must divide 8 heads; use 1, 2, 4 or 8". Empty for no numbers.
pub fn alternatives(numbers: &[usize]) -> String {
    match numbers {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(usize::to_string).collect();
            format!("{} or {last}", first.join(", "))
        }
    }
}

/// The positive multiples of `factor` on either side of `value`, as a choice in a sentence.
pub fn multiples_around(factor: usize, value: usize) -> String {
    let below = value / factor * factor;
    let multiples: Vec<usize> = [below, below + factor].into_iter().filter(|multiple| *multiple > 0).collect();
    alternatives(&multiples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn divisors_are_all_divisors_in_order() {
        for number in 0..200usize {
            let expected: Vec<usize> = (1..=number).filter(|d| number.is_multiple_of(*d)).collect();
            assert_eq!(divisors(number), expected, "divisors of {number}");
        }
    }

    #[test]
    fn the_greatest_common_divisor_is_the_last_common_one() {
        for (a, b) in (1..40).flat_map(|a| (1..40).map(move |b| (a, b))) {
            let expected = divisors(a).into_iter().rfind(|divisor| divisors(b).contains(divisor));
            assert_eq!(Some(greatest_common_divisor(a, b)), expected, "of {a} and {b}");
        }
        assert_eq!((greatest_common_divisor(0, 6), greatest_common_divisor(6, 0)), (6, 6));
    }

    #[test]
    fn alternatives_read_as_a_sentence() {
        assert_eq!(alternatives(&divisors(16)), "1, 2, 4, 8 or 16");
        assert_eq!(alternatives(&[3]), "3");
        assert_eq!(alternatives(&[]), "");
    }

    proptest! {
        #[test]
        fn parts_cover_the_total_in_order_and_evenly(total in 0usize..10_000, parts in 1usize..50) {
            let mut next = 0;
            for index in 0..parts {
                let part = even_split(total, parts, index);
                prop_assert_eq!(part.start, next);
                prop_assert!(part.len() == total / parts || part.len() == total / parts + 1);
                next = part.end;
            }
            prop_assert_eq!(next, total);
        }
    }
}
