//! Tests of the public interface of `rendezvous`.

mod attackers;
mod control_channel;
mod fuzz;
mod killed_process;
mod meetings;
mod messages;
mod rig;
mod tokens;
