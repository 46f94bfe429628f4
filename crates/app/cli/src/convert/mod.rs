//! Input and output in formats of other programs: text into token files, folders of the Hugging Face library.

pub mod data;
pub mod exported_folder;
pub mod hugging_face;
mod merged;
