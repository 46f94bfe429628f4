//! Random choices by counter: the same for the same seed, number and purpose.

use philox::philox4x32_10;

/// A source of choices.
#[derive(Clone, Debug)]
pub struct RandomChoices {
    seed: u32,
    number: u32,
    purpose: u32,
    drawn: u32,
}

impl RandomChoices {
    /// The choices of thing `number` of a survey; another `purpose` has others.
    pub fn new(seed: u32, number: u32, purpose: u32) -> RandomChoices {
        RandomChoices { seed, number, purpose, drawn: 0 }
    }

    /// The next random word.
    pub fn word(&mut self) -> u32 {
        self.drawn += 1;
        philox4x32_10([self.drawn, self.number, 0, self.purpose], [self.seed, 0])[0]
    }

    /// One of `options`, which are equally likely.
    pub fn one_of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.word() as usize % options.len()]
    }
}
