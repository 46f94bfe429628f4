//! The section `[data]` of a run file: sources, tokenizer, what tokens see, what is held out.
