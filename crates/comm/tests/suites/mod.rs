//! Tests that hold over every transport.

mod channels;
mod collectives;
mod failures;
mod hosts;
