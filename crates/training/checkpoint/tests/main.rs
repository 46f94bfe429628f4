//! Files of checkpoints, and whole checkpoints.

mod checkpoints;
mod files;
