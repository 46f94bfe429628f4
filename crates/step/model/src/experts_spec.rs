//! The experts of a model that has some.

use config::ExpertsSpec;

use crate::context::Context;

/// The experts of the model.
pub(crate) fn spec<'a>(context: &Context<'a>) -> &'a ExpertsSpec {
    match &context.model.experts {
        Some(experts) => experts,
        None => panic!("parameters of experts are declared by a model that has experts"),
    }
}
