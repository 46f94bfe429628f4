//! Transports, and worlds of several processes.

mod processes;
mod transports;
mod worlds;
