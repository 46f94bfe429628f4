//! Rows of a rank's experts, sorted.

/// The rows of experts `first_expert..first_expert + G`, of `choice[T,k]`: sorted by expert, then by slot.
pub struct GroupRows<'a> {
    /// `[T,k]`: experts; others, also negative numbers, have no row.
    pub choice: &'a [i32],
    /// The first of this rank.
    pub first_expert: usize,
    /// `[T,k]`: the row of each slot, or -1.
    pub places: &'a mut [i32],
    /// `[R]`: the slot of each row, `token * k + slot`; -1 after the last of each rank.
    pub slots: &'a mut [i32],
    /// `[ranks, G / ranks + 1]`: of each rank the first row of each expert, within the rank's rows, then their number.
    pub offsets: &'a mut [i32],
    /// Ranks that divide the experts; their rows begin at equal distances.
    pub ranks: usize,
}

/// Assigns `places`, `slots` and `offsets`. Panics where there are more rows than room.
pub fn group_rows(rows: GroupRows<'_>) {
    let GroupRows { choice, first_expert, places, slots, offsets, ranks } = rows;
    assert_eq!(choice.len(), places.len(), "a place for each slot");
    let (width, room) = (offsets.len() / ranks, slots.len() / ranks);
    let (of_rank, experts) = (width - 1, (width - 1) * ranks);
    let group = |expert: i32| usize::try_from(expert).ok()?.checked_sub(first_expert).filter(|group| *group < experts);
    offsets.fill(0);
    for expert in choice.iter().copied().filter_map(group) {
        offsets[expert / of_rank * width + expert % of_rank + 1] += 1;
    }
    let mut next = Vec::with_capacity(experts);
    for (rank, offsets) in offsets.chunks_exact_mut(width).enumerate() {
        for expert in 0..of_rank {
            offsets[expert + 1] += offsets[expert];
        }
        let count = offsets[of_rank] as usize;
        assert!(count <= room, "{count} rows of experts, but room for {room}");
        next.extend(offsets[..of_rank].iter().map(|first| *first + (rank * room) as i32));
    }
    slots.fill(-1);
    for (slot, expert) in choice.iter().enumerate() {
        places[slot] = match group(*expert) {
            None => -1,
            Some(group) => {
                let row = next[group];
                next[group] += 1;
                slots[row as usize] = slot as i32;
                row
            }
        };
    }
}
