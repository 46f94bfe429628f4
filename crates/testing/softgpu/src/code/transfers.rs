//! Decodes loads, stores and atomics.

use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{Address, Atomic, AtomicOp, Cache, Op, Slot, Transfer};
use crate::ptx::{Operand, PtxError, Scalar, Space, Statement};

/// Spaces by their modifiers.
const SPACES: &[(&str, Space)] = &[
    ("global", Space::Global),
    ("const", Space::Const),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("param", Space::Param),
    ("param::entry", Space::Param),
];

/// Modifiers that say how long caches keep a line: they change nothing that can be seen.
const HINTS: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::cache_hint",
    "unified",
];

/// Modifiers that say who may see an access in the middle of others.
const STRONG: &[&str] = &["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"];
const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

/// Reads how an access is ordered.
fn cache(m: &mut Modifiers) -> Cache {
    m.pass(HINTS);
    m.pass(SCOPES);
    m.pass(&["weak"]);
    if m.takes_one(&STRONG.iter().map(|name| (*name, ())).collect::<Vec<_>>()).is_some() {
        Cache::Strong
    } else {
        Cache::Weak
    }
}

impl Decoder {
    /// Decodes a load or store.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn transfer(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_store = m.base() == "st";
        let has_policy = statement.parts.iter().any(|part| part == "L2::cache_hint");
        let cache = cache(m);
        let space = m.takes_one(SPACES).unwrap_or(Space::Generic);
        let count = m.takes_one(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
        let scalar = m.scalar()?;
        let operands = match (&*statement.operands, has_policy) {
            ([a, b], false) | ([a, b, _], true) => [a, b],
            _ => return Err(m.unsupported()),
        };
        let [values, address] = if is_store { [operands[1], operands[0]] } else { operands };
        let address = self.in_space(statement, address, space)?;
        let elements = match (values, count) {
            (Operand::Vector(elements), count) if elements.len() == count => elements.iter().collect(),
            (value, 1) => vec![value],
            _ => return Err(self.error(statement, "the vector has another length")),
        };
        let slots = self.kernel.slots.len() as u32;
        for element in elements {
            let slot = if is_store { self.source(statement, element, scalar)? } else { self.slot(statement, element)? };
            self.kernel.slots.push(slot);
        }
        let transfer = Transfer {
            address,
            bytes: scalar.bytes() as u8,
            is_signed: scalar.is_signed(),
            count: count as u8,
            slots,
            cache,
        };
        Ok(if is_store { Op::Store(transfer) } else { Op::Load(transfer) })
    }

    /// An address in `space`.
    ///
    /// # Errors
    /// No address.
    pub fn in_space(&mut self, statement: &Statement, operand: &Operand, space: Space) -> Result<Address, PtxError> {
        let (base, offset) = self.address(statement, operand)?;
        if base == Slot::Sink {
            return Err(self.error(statement, "an address must be a register"));
        }
        Ok(Address { base, offset, space })
    }

    /// Decodes an atomic.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn atomic(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_reduction = m.base() == "red";
        cache(m);
        let space = m.takes_one(SPACES).unwrap_or(Space::Generic);
        let op = m.takes_one(&[
            ("add", AtomicOp::Add),
            ("min", AtomicOp::Min),
            ("max", AtomicOp::Max),
            ("and", AtomicOp::And),
            ("or", AtomicOp::Or),
            ("xor", AtomicOp::Xor),
            ("exch", AtomicOp::Exchange),
            ("cas", AtomicOp::CompareAndSwap),
            ("inc", AtomicOp::Increment),
            ("dec", AtomicOp::Decrement),
        ]);
        let op = op.ok_or_else(|| m.unsupported())?;
        let scalar = m.scalar()?;
        // A floating-point sum in no order has no bits that two runs agree on.
        if scalar.is_float() || matches!(scalar, Scalar::F16x2 | Scalar::Bf16x2) || scalar.bytes() < 4 {
            return Err(m.unsupported());
        }
        let (to, address, operand, swap) = match (&*statement.operands, is_reduction, op) {
            ([address, operand], true, _) => (None, address, operand, None),
            ([to, address, operand, swap], false, AtomicOp::CompareAndSwap) => (Some(to), address, operand, Some(swap)),
            ([to, address, operand], false, _) if op != AtomicOp::CompareAndSwap => (Some(to), address, operand, None),
            _ => return Err(m.unsupported()),
        };
        let to = match to {
            Some(to) => self.slot(statement, to)?,
            None => Slot::Sink,
        };
        let address = self.in_space(statement, address, space)?;
        let operand = self.source(statement, operand, scalar)?;
        let swap = match swap {
            Some(swap) => self.source(statement, swap, scalar)?,
            None => Slot::Sink,
        };
        Ok(Op::Atomic(Atomic { address, op, scalar, to, operand, swap }))
    }
}
