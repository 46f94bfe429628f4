//! Sizes of the exchange of rows between the ranks that divide experts: known before a run, whatever routers choose.

use config::ExpertsSpec;
use device::{Dtype, ExpertRows, Frame, Tensor};

use crate::context::Context;
use crate::experts_spec::spec;

/// The sizes of a microbatch. Each round has one sequence of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Ranks `n` that divide experts.
    pub(crate) ranks: usize,
    /// The place of this rank among them.
    pub(crate) position: usize,
    /// The first expert of this tensor-parallel rank, whose experts the ranks divide.
    pub(crate) first_expert: usize,
    /// Experts `G = E / (tp n)` of each rank.
    pub(crate) experts: usize,
    /// Experts `k` that a token chooses.
    pub(crate) per_token: usize,
    /// Sequences of a microbatch.
    pub(crate) rounds: usize,
    /// Tokens `S` that a rank has of a sequence.
    pub(crate) tokens: usize,
    /// The most rows `C = S min(k, G)` of a sequence for the experts of one rank.
    pub(crate) room: usize,
    /// Rows of a sequence for the experts of one rank where routing is balanced.
    pub(crate) expected: usize,
}

impl Sizes {
    /// The sizes of a layer's experts; `None` where no ranks divide them.
    pub(crate) fn of(context: &Context) -> Option<Sizes> {
        let group = context.ep?;
        let (experts, ranks, tokens) = (spec(context), group.size(), context.shape.tokens_of_sequence());
        let ExpertsSpec { number, per_token, .. } = *experts;
        let (of_tensor, of_all) = (number / context.tp.size(), context.tp.size() * ranks);
        Some(Sizes {
            ranks,
            position: group.position(),
            first_expert: context.tp.position() * of_tensor,
            experts: of_tensor / ranks,
            per_token,
            rounds: context.shape.sequences,
            tokens,
            room: experts.most_rows(tokens, of_all),
            expected: (tokens * per_token).div_ceil(of_all),
        })
    }

    /// Rows `n C` that a rank sends, and is sent, in a round at most.
    pub(crate) fn rows_of_round(self) -> usize {
        self.ranks * self.room
    }

    /// Rows that a rank is sent in all rounds of a microbatch at most.
    pub(crate) fn rows(self) -> usize {
        self.rounds * self.rows_of_round()
    }

    /// Lays out the rows that this rank sends in all rounds.
    pub(crate) fn lay_out_sent(self, frame: &Frame) -> ExpertRows {
        ExpertRows {
            places: frame.tensor(self.rounds * self.tokens, self.per_token, Dtype::I32),
            slots: frame.tensor(self.rounds, self.rows_of_round(), Dtype::I32),
            offsets: frame.tensor(self.rounds * self.ranks, self.experts + 1, Dtype::I32),
            expected: self.ranks * self.expected,
        }
    }

    /// The rows that this rank sends in one round.
    pub(crate) fn sent_in(self, round: usize, rows: ExpertRows) -> ExpertRows {
        ExpertRows {
            places: self.tokens_in(round, rows.places),
            slots: rows.slots.rows_of(round..round + 1),
            offsets: rows.offsets.rows_of(round * self.ranks..(round + 1) * self.ranks),
            expected: rows.expected,
        }
    }

    /// The rows of this rank's tokens of a round, of a tensor of the microbatch's tokens.
    pub(crate) fn tokens_in(self, round: usize, x: Tensor) -> Tensor {
        x.rows_of(round * self.tokens..(round + 1) * self.tokens)
    }

    /// The rows that rank `from` sent in a round, of a tensor of those of the round.
    pub(crate) fn rows_from(self, from: usize, x: Tensor) -> Tensor {
        x.rows_of(from * self.room..(from + 1) * self.room)
    }

    /// The same of a tensor of the rows of all rounds.
    pub(crate) fn rows_in(self, round: usize, from: usize, x: Tensor) -> Tensor {
        self.rows_from(round * self.ranks + from, x)
    }
}
