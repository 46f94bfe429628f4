//! Tests of the public interface of `formats`.

mod chats;
mod tables;
