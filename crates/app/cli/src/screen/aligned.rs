//! Rows as columns of text.

use crate::screen::narrow::table;

/// Columns to the right, two spaces between them.
pub fn aligned(rows: &[Vec<String>]) -> String {
    table(rows, None)
}
