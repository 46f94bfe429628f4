//! Rows of a rank's experts, sorted.

/// The rows of experts `first_expert..first_expert + G`, of `choice[T,k]`: sorted by expert, then by slot.
pub struct GroupRows<'a> {
    /// `[T,k]`: experts; others, also negative numbers, have no row.
    pub choice: &'a [i32],
    /// The first of this rank.
    pub first_expert: usize,
    /// `[T,k]`: the row of each slot, or -1.
    pub places: &'a mut [i32],
    /// `[R]`: the slot of each row, `token * k + slot`; -1 after the last.
    pub slots: &'a mut [i32],
    /// `[G + 1]`: the first row of each expert, then the number of rows.
    pub offsets: &'a mut [i32],
}

/// Assigns `places`, `slots` and `offsets`. Panics where there are more rows than room.
pub fn group_rows(rows: GroupRows<'_>) {
    let GroupRows { choice, first_expert, places, slots, offsets } = rows;
    assert_eq!(choice.len(), places.len(), "a place for each slot");
    let experts = offsets.len() - 1;
    let group = |expert: i32| usize::try_from(expert).ok()?.checked_sub(first_expert).filter(|group| *group < experts);
    offsets.fill(0);
    for expert in choice.iter().copied().filter_map(group) {
        offsets[expert + 1] += 1;
    }
    for expert in 0..experts {
        offsets[expert + 1] += offsets[expert];
    }
    let (count, room) = (offsets[experts] as usize, slots.len());
    assert!(count <= room, "{count} rows of experts, but room for {room}");
    slots[count..].fill(-1);
    let mut next = offsets[..experts].to_vec();
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
