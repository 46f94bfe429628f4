//! From an operation that balances experts to its kernel.

use device::{BalanceOp, BalanceTerm, DeviceError, RouterTerms, RouterValues, Tensor};

use crate::experts::{
    LimitChoices, RouterLosses, RouterLossesBackward, Terms, correct, count_choices, limit_choices, load,
};
use crate::worker::Worker;

impl Worker {
    /// Runs `op` to its end.
    pub(crate) fn execute_balance(&self, op: &BalanceOp) -> Result<(), DeviceError> {
        match *op {
            BalanceOp::CountChoices { choice, labels, counts, write } => {
                let (choice, labels, runs) = (self.ints(choice)?, self.ints(labels)?, counts.rows);
                count_choices(choice, labels, runs, self.longs_mut(counts)?, write);
            }
            BalanceOp::LimitChoices { choice, weights, labels, sequences, experts: _, capacity, kept, dropped } => {
                let (choice, weights, labels) = (self.ints(choice)?, self.reals(weights)?, self.ints(labels)?);
                let kept = self.ints_mut(kept)?;
                let number = limit_choices(LimitChoices { choice, weights, labels, sequences, capacity, kept });
                if let Some(dropped) = dropped {
                    self.longs_mut(dropped)?[0] += number;
                }
            }
            BalanceOp::Load { counts, load: into } => load(self.longs(counts)?, self.matrix_mut(into)?),
            BalanceOp::RouterLosses { logits, scores, terms, values } => {
                let RouterValues { balance, z_loss, entropy } = values;
                let place = |tensor: Option<Tensor>| tensor.map(|tensor| self.reals_mut(tensor)).transpose();
                let (balance, z_loss, entropy) = (place(balance)?, place(z_loss)?, place(entropy)?);
                let (logits, terms) = (self.matrix(logits)?, self.terms(terms)?);
                self.run(RouterLosses { logits, scores, terms, balance, z_loss, entropy });
            }
            BalanceOp::RouterLossesBackward { logits, labels, scores, terms, scale, dlogits } => {
                let (logits, labels, terms) = (self.matrix(logits)?, self.ints(labels)?, self.terms(terms)?);
                let dlogits = self.matrix_mut(dlogits)?;
                self.run(RouterLossesBackward { logits, labels, scores, terms, scale, dlogits });
            }
            BalanceOp::Correct { counts, rate, correction } => {
                correct(self.longs(counts)?, rate, self.matrix_mut(correction)?);
            }
        }
        Ok(())
    }

    fn terms(&self, RouterTerms { balance, z_loss }: RouterTerms) -> Result<Terms<'_>, DeviceError> {
        let of = |BalanceTerm { coefficient, load }| Ok((coefficient, self.matrix(load)?));
        Ok(Terms { balance: balance.map(of).transpose()?, z_loss })
    }
}
