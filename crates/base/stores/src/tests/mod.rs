//! Tests of the public interface of `stores`.

mod answers;
mod elsewhere;
mod roles;
pub(crate) mod served;
