//! The files of a run in its folder, and the files that commands read and write.

pub(crate) mod author;
pub mod checkpoint_path;
pub(crate) mod disk;
pub mod kept_run;
pub mod kept_run_file;
pub mod names;
pub mod newest_checkpoint;
pub mod output_file;
pub mod own_places;
pub mod unfinished;
