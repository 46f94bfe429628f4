//! The one reader and the one writer of files that a user names.
//!
//! A reader knows what it expects ([`InputKind`]): the kinds of files, and a size. A device that never ends is refused,
//! a pipe is read up to the limit and must begin to speak in time. A writer ([`Output`]) replaces regular files at once
//! and whole, follows links, writes into pipes and devices without replacing them, and refuses a file that is one of
//! the inputs. Inside of a folder that a command fills ([`Draft`] and its neighbours), nothing is written through a
//! link.

mod disk_space;
mod identity;
mod input;
mod input_kind;
mod output;
mod own_file;
mod path;

pub use disk_space::{DiskSpace, disk_space_at, is_full};
pub use identity::{same_file, same_place};
pub use input::{InputError, format_of, open, read, read_text, read_text_of_file};
pub use input_kind::InputKind;
pub use output::{Content, Output, OutputError, check_replaceable, copy, replace};
pub use own_file::{Draft, open_to_append, open_to_change, recreate, reserve};
pub use path::{PathError, within};
