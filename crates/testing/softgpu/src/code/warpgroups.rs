//! Decodes `wgmma`.

use super::asynchronous::{Adds, Asynchronous, FirstFactor, Major, Sign, WarpgroupProduct};
use super::decoder::{Decoder, bits_of};
use super::modifiers::Modifiers;
use super::operations::{NumberFormat, Op, Slot};
use crate::ptx::{Operand, PtxError, Scalar, Statement};

impl Decoder {
    /// Decodes `wgmma`.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn warpgroup(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let name = ["fence", "commit_group", "wait_group", "mma_async"];
        let name = name.into_iter().find(|name| m.takes(name)).ok_or_else(|| m.unsupported())?;
        if !m.takes("sync") || !m.takes("aligned") {
            return Err(m.unsupported());
        }
        self.kernel.has_warpgroups = true;
        let op = match (name, &*statement.operands) {
            ("fence", []) => Asynchronous::ProductFence,
            ("commit_group", []) => Asynchronous::ProductCommit,
            ("wait_group", [Operand::Immediate(count)]) => {
                Asynchronous::ProductWait(bits_of(*count, Scalar::U32) as u32)
            }
            ("mma_async", _) => Asynchronous::Product(self.warpgroup_product(m, statement)?),
            _ => return Err(m.unsupported()),
        };
        Ok(Op::Asynchronous(op))
    }

    fn warpgroup_product(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<WarpgroupProduct, PtxError> {
        let shape = statement.parts.iter().find_map(|part| part.strip_prefix("m64n")?.strip_suffix("k16"));
        let columns = shape.and_then(|columns| columns.parse::<u16>().ok());
        let columns = columns.filter(|columns| *columns > 0 && *columns <= 256 && columns % 8 == 0);
        let columns = columns.ok_or_else(|| m.unsupported())?;
        m.takes(&format!("m64n{columns}k16"));
        let format = match [m.scalar()?, m.scalar()?, m.scalar()?] {
            [Scalar::F32, Scalar::Bf16, Scalar::Bf16] => NumberFormat::Bf16,
            [Scalar::F32, Scalar::F16, Scalar::F16] => NumberFormat::F16,
            _ => return Err(m.unsupported()),
        };
        let [d, a, b, adds, rest @ ..] = &*statement.operands else { return Err(m.unsupported()) };
        let in_registers = matches!(a, Operand::Vector(_));
        let [sign_a, sign_b, majors @ ..] = rest else { return Err(m.unsupported()) };
        let majors = match (in_registers, majors) {
            (false, [a, b]) => [self.major(statement, a)?, self.major(statement, b)?],
            (true, [b]) => [Major::K, self.major(statement, b)?],
            _ => return Err(m.unsupported()),
        };
        let a = if in_registers {
            let mut rows = [0; 4];
            self.rows(statement, a, &mut rows, Scalar::B32)?;
            FirstFactor::Registers(rows)
        } else {
            FirstFactor::Shared(self.wide(statement, a, Scalar::B64)?, majors[0])
        };
        let Operand::Vector(elements) = d else { return Err(m.unsupported()) };
        if elements.len() != usize::from(columns) / 2 {
            let text = format!("the result has {} registers; {} are expected", elements.len(), columns / 2);
            return Err(self.error(statement, &text));
        }
        let first = self.kernel.slots.len() as u32;
        for element in elements {
            let row = self.to_small(statement, element)?;
            self.kernel.slots.push(Slot::Small(row));
        }
        let adds = if let Operand::Immediate(value) = adds {
            if bits_of(*value, Scalar::U32) == 0 { Adds::Never } else { Adds::Always }
        } else {
            Adds::Where(self.predicate(statement, adds)?)
        };
        Ok(WarpgroupProduct {
            columns,
            format,
            d: first,
            a,
            b: self.wide(statement, b, Scalar::B64)?,
            b_major: majors[1],
            adds,
            signs: [self.sign(statement, sign_a)?, self.sign(statement, sign_b)?],
        })
    }

    fn constant_of(&self, statement: &Statement, operand: &Operand) -> Result<i32, PtxError> {
        let Operand::Immediate(value) = operand else {
            return Err(self.error(statement, "signs and transposes must be constants"));
        };
        Ok(bits_of(*value, Scalar::S32) as i32)
    }

    fn major(&self, statement: &Statement, operand: &Operand) -> Result<Major, PtxError> {
        match self.constant_of(statement, operand)? {
            0 => Ok(Major::K),
            1 => Ok(Major::Outer),
            other => Err(self.error(statement, &format!("a transpose must be 0 or 1; got {other}"))),
        }
    }

    fn sign(&self, statement: &Statement, operand: &Operand) -> Result<Sign, PtxError> {
        match self.constant_of(statement, operand)? {
            1 => Ok(Sign::Plus),
            -1 => Ok(Sign::Minus),
            other => Err(self.error(statement, &format!("a sign must be 1 or -1; got {other}"))),
        }
    }
}
