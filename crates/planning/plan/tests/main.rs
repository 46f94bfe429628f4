//! Predictions and searches.

mod context_kinds;
mod drawn;
mod faster_hardware;
mod llama;
mod long_sequences;
mod peaks;
mod predictions;
mod published_layouts;
mod search;
mod table_words;
mod trainers;
mod zero_bubble;
