//! Numbers out of the bytes of a file, all little-endian.

/// The number of 64 bits at `offset`, if the bytes reach so far.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

/// The number of 32 bits at `offset`, if the bytes reach so far.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

/// `first + sum of count * width`, or `None` where that does not fit: the length that a header announces.
pub(crate) fn announced_len(first: u64, parts: &[(u64, u64)]) -> Option<u64> {
    parts.iter().try_fold(first, |len, (count, width)| len.checked_add(count.checked_mul(*width)?))
}
