//! Statements to instructions.

use std::collections::HashMap;

use super::flow::Flow;
use super::kernel::{Constant, Kernel, Source};
use super::layout::Parameter;
use super::layout::{Place, Symbols, aligned, lay_out};
use super::modifiers::Modifiers;
use super::operations::{Instruction, Op, PredicateSource, Row, Slot};
use crate::ptx::{
    Base, Function, Immediate, Line, Operand, PtxError, Register, Scalar, Space, Special, Statement, Variable, Width,
};

/// Decodes a kernel. `symbols` are the variables outside of functions, `shared` those of them that are shared.
///
/// # Errors
/// An instruction that this GPU does not have.
pub fn decode(function: &Function, shared: &[Variable], symbols: &Symbols) -> Result<Kernel, PtxError> {
    let mut symbols = symbols.clone();
    let mut parameters = Vec::new();
    let mut parameter_bytes = 0;
    for parameter in &function.parameters {
        let offset = aligned(parameter_bytes, parameter.align);
        symbols.insert(&parameter.name, Place { space: Space::Param, address: offset as u64 });
        parameters.push(Parameter { offset, bytes: parameter.bytes });
        parameter_bytes = offset + parameter.bytes;
    }
    let all_shared: Vec<Variable> = shared.iter().chain(&function.variables).cloned().collect();
    let shared_bytes = lay_out(&all_shared, Space::Shared, 0, &mut symbols);
    let local_bytes = aligned(lay_out(&function.variables, Space::Local, 0, &mut symbols), 16);
    let [predicates, small, wide] = function.registers;
    let kernel = Kernel {
        name: function.name.clone(),
        instructions: vec![],
        blocks: vec![],
        slots: vec![],
        sources: vec![],
        predicates,
        small,
        wide,
        small_constants: vec![],
        wide_constants: vec![],
        parameters,
        parameter_bytes,
        shared_bytes,
        local_bytes,
        max_threads: function.max_threads,
        exact_threads: function.exact_threads,
        has_addresses: false,
        has_warpgroups: false,
        has_asynchronous: false,
    };
    let mut decoder = Decoder {
        kernel,
        symbols,
        small_rows: HashMap::new(),
        wide_rows: HashMap::new(),
        flow: Flow::new(function.labels),
    };
    decoder.body(function)?;
    let Decoder { mut kernel, flow, .. } = decoder;
    kernel.blocks = flow.finish(kernel.instructions.len(), function)?;
    Ok(kernel)
}

/// A kernel that is being decoded.
#[derive(Debug)]
pub struct Decoder {
    pub kernel: Kernel,
    /// Variables.
    pub symbols: Symbols,
    small_rows: HashMap<Constant, Row>,
    wide_rows: HashMap<u64, Row>,
    /// Blocks.
    pub flow: Flow,
}

fn row(index: usize, line: u32) -> Result<Row, PtxError> {
    Row::try_from(index).map_err(|_| PtxError::new(line, format!("register {index}; at most 65535 are supported")))
}

impl Decoder {
    fn body(&mut self, function: &Function) -> Result<(), PtxError> {
        for line in &function.body {
            let at = self.kernel.instructions.len();
            match line {
                Line::Label(label) => self.flow.label(*label, at),
                Line::Statement(statement) => {
                    let source = self.kernel.sources.len() as u32;
                    self.kernel.sources.push(Source {
                        line: statement.line,
                        text: statement.text.clone(),
                        opcode: statement.opcode(),
                    });
                    let guard = match statement.guard {
                        Some(guard) => Some(PredicateSource {
                            row: row(guard.predicate.index, statement.line)?,
                            is_negated: guard.is_negated,
                        }),
                        None => None,
                    };
                    if self.control(statement, guard, source)? {
                        continue;
                    }
                    let op = self.statement(statement)?;
                    self.kernel.instructions.push(Instruction { op, guard, source });
                }
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<Op, PtxError> {
        let mut modifiers = Modifiers::of(statement);
        let m = &mut modifiers;
        let op = match m.base() {
            "add" | "sub" | "mul" | "mad" | "mul24" | "fma" | "div" | "rem" | "abs" | "neg" | "min" | "max"
            | "sqrt" | "rcp" | "copysign" | "sad" => self.arithmetic(m, statement)?,
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt" | "bfe" | "bfi" | "clz"
            | "popc" | "brev" | "bfind" => self.bits(m, statement)?,
            "setp" | "set" | "selp" | "slct" => self.comparison(m, statement)?,
            "mov" => self.movement(m, statement)?,
            "cvt" => self.conversion(m, statement)?,
            "cvta" => self.window(m, statement)?,
            "ld" | "ldu" | "st" => self.transfer(m, statement)?,
            "atom" | "red" => self.atomic(m, statement)?,
            "prefetch" | "prefetchu" | "applypriority" | "discard" if m.base() != "discard" => return Ok(Op::Nothing),
            "nanosleep" | "griddepcontrol" | "setmaxnreg" => return Ok(Op::Nothing),
            "mma" | "ldmatrix" | "stmatrix" | "cp" => self.matrix(m, statement)?,
            "wgmma" => self.warpgroup(m, statement)?,
            "mbarrier" => self.phase(m, statement)?,
            "mapa" => self.map_to_block(m, statement)?,
            _ => self.across_lanes(m, statement)?,
        };
        modifiers.finish()?;
        self.kernel.has_asynchronous |= matches!(op, Op::Asynchronous(_));
        Ok(op)
    }

    /// An error about `statement`.
    pub fn error(&self, statement: &Statement, text: &str) -> PtxError {
        PtxError::new(statement.line, format!("{}: {text}", statement.text))
    }

    /// The operands, which must be N.
    ///
    /// # Errors
    /// Another number.
    pub fn operands<'a, const N: usize>(&self, statement: &'a Statement) -> Result<[&'a Operand; N], PtxError> {
        let operands: Vec<&Operand> = statement.operands.iter().collect();
        operands
            .try_into()
            .map_err(|_| self.error(statement, &format!("{} operands; {N} are expected", statement.operands.len())))
    }

    /// The row of a constant of 32 bits.
    pub fn small_constant(&mut self, constant: Constant) -> Row {
        let next = (self.kernel.small + self.kernel.small_constants.len()) as Row;
        let row = *self.small_rows.entry(constant).or_insert(next);
        if row == next {
            self.kernel.small_constants.push(constant);
        }
        row
    }

    /// The row of a constant of 64 bits.
    pub fn wide_constant(&mut self, value: u64) -> Row {
        let next = (self.kernel.wide + self.kernel.wide_constants.len()) as Row;
        let row = *self.wide_rows.entry(value).or_insert(next);
        if row == next {
            self.kernel.wide_constants.push(value);
        }
        row
    }

    /// The register of an operand that is read or written, by its own width.
    ///
    /// # Errors
    /// No register of 32 or 64 bits.
    pub fn slot(&self, statement: &Statement, operand: &Operand) -> Result<Slot, PtxError> {
        if *operand == Operand::Sink {
            return Ok(Slot::Sink);
        }
        let refused = || self.error(statement, "an operand must be a register");
        let Operand::Register(register) = operand else { return Err(refused()) };
        match register.width {
            Width::Small => Ok(Slot::Small(row(register.index, statement.line)?)),
            Width::Wide => Ok(Slot::Wide(row(register.index, statement.line)?)),
            Width::Predicate => Err(refused()),
        }
    }

    /// The register of 32 bits that an operand writes.
    ///
    /// # Errors
    /// No such register.
    pub fn to_small(&self, statement: &Statement, operand: &Operand) -> Result<Row, PtxError> {
        match self.slot(statement, operand)? {
            Slot::Small(row) => Ok(row),
            Slot::Wide(_) | Slot::Sink => {
                Err(self.error(statement, "the result must be a register of at most 32 bits"))
            }
        }
    }

    /// The register of 64 bits that an operand writes.
    ///
    /// # Errors
    /// No such register.
    pub fn to_wide(&self, statement: &Statement, operand: &Operand) -> Result<Row, PtxError> {
        match self.slot(statement, operand)? {
            Slot::Wide(row) => Ok(row),
            Slot::Small(_) | Slot::Sink => Err(self.error(statement, "the result must be a register of 64 bits")),
        }
    }

    /// The predicate that an operand writes.
    ///
    /// # Errors
    /// No predicate.
    pub fn to_predicate(&self, statement: &Statement, operand: &Operand) -> Result<Row, PtxError> {
        let Operand::Register(Register { width: Width::Predicate, index }) = operand else {
            return Err(self.error(statement, "an operand must be a predicate"));
        };
        row(*index, statement.line)
    }

    /// The predicate that an operand reads.
    ///
    /// # Errors
    /// No predicate.
    pub fn predicate(&self, statement: &Statement, operand: &Operand) -> Result<PredicateSource, PtxError> {
        if let Operand::Not(register) = operand {
            return Ok(PredicateSource { row: row(register.index, statement.line)?, is_negated: true });
        }
        Ok(PredicateSource { row: self.to_predicate(statement, operand)?, is_negated: false })
    }

    /// The register of an operand that is read as `scalar`; constants get one of their own.
    ///
    /// # Errors
    /// An operand that is not a value of this type's width.
    pub fn source(&mut self, statement: &Statement, operand: &Operand, scalar: Scalar) -> Result<Slot, PtxError> {
        let is_wide = scalar.width() == Width::Wide;
        match operand {
            Operand::Register(_) => self.slot(statement, operand),
            Operand::Special(Special::Clock) => Err(self.error(statement, "a clock must be read by mov")),
            Operand::Special(special) => Ok(Slot::Small(self.small_constant(Constant::Special(*special)))),
            Operand::Immediate(immediate) => {
                let bits = bits_of(*immediate, scalar);
                Ok(self.constant(bits, is_wide))
            }
            Operand::Symbol(symbol) => {
                let place = self.place(statement, &symbol.name)?;
                Ok(self.constant(place.address.wrapping_add_signed(symbol.offset), is_wide))
            }
            Operand::Not(_)
            | Operand::Pair(..)
            | Operand::Address(..)
            | Operand::Label(_)
            | Operand::Vector(_)
            | Operand::Box(..)
            | Operand::Sink => Err(self.error(statement, "an operand must be a value")),
        }
    }

    fn constant(&mut self, bits: u64, is_wide: bool) -> Slot {
        if is_wide {
            Slot::Wide(self.wide_constant(bits))
        } else {
            Slot::Small(self.small_constant(Constant::Value(bits as u32)))
        }
    }

    /// The place of a variable.
    ///
    /// # Errors
    /// An unknown name.
    pub fn place(&mut self, statement: &Statement, name: &str) -> Result<Place, PtxError> {
        let place = self.symbols.get(name);
        let place = place.ok_or_else(|| self.error(statement, &format!("unknown variable {name}")))?;
        self.kernel.has_addresses |= matches!(place.space, Space::Global | Space::Const);
        Ok(place)
    }

    /// The row of an operand that is read as `scalar`, of at most 32 bits.
    ///
    /// # Errors
    /// An operand of 64 bits.
    pub fn small(&mut self, statement: &Statement, operand: &Operand, scalar: Scalar) -> Result<Row, PtxError> {
        match self.source(statement, operand, scalar)? {
            Slot::Small(row) => Ok(row),
            Slot::Wide(_) | Slot::Sink => Err(self.error(statement, "an operand must have at most 32 bits")),
        }
    }

    /// The row of an operand that is read as `scalar`, of 64 bits.
    ///
    /// # Errors
    /// An operand of fewer bits.
    pub fn wide(&mut self, statement: &Statement, operand: &Operand, scalar: Scalar) -> Result<Row, PtxError> {
        match self.source(statement, operand, scalar)? {
            Slot::Wide(row) => Ok(row),
            Slot::Small(_) | Slot::Sink => Err(self.error(statement, "an operand must have 64 bits")),
        }
    }

    /// The row of an operand of either width, by the type.
    ///
    /// # Errors
    /// An operand of another width.
    pub fn row(&mut self, statement: &Statement, operand: &Operand, scalar: Scalar) -> Result<Row, PtxError> {
        if scalar.width() == Width::Wide {
            self.wide(statement, operand, scalar)
        } else {
            self.small(statement, operand, scalar)
        }
    }

    /// The row of a result of either width, by the type.
    ///
    /// # Errors
    /// An operand of another width.
    pub fn to_row(&self, statement: &Statement, operand: &Operand, scalar: Scalar) -> Result<Row, PtxError> {
        if scalar.width() == Width::Wide { self.to_wide(statement, operand) } else { self.to_small(statement, operand) }
    }

    /// The register and offset of an address, with the space of a variable that it names.
    ///
    /// # Errors
    /// No address.
    pub fn address(&mut self, statement: &Statement, operand: &Operand) -> Result<(Slot, i64), PtxError> {
        let Operand::Address(base, offset) = operand else {
            return Err(self.error(statement, "an operand must be an address"));
        };
        match base {
            Base::Register(register) => Ok((self.slot(statement, &Operand::Register(*register))?, *offset)),
            Base::Symbol(name) => {
                let place = self.place(statement, name)?;
                Ok((Slot::Wide(self.wide_constant(place.address)), *offset))
            }
            Base::Zero => Ok((Slot::Wide(self.wide_constant(0)), *offset)),
        }
    }
}

/// The bits of a number in the text, as a value of type `scalar`.
pub fn bits_of(immediate: Immediate, scalar: Scalar) -> u64 {
    match (immediate, scalar) {
        (Immediate::Integer(value), _) => match scalar.bytes() {
            1 => value & 0xff,
            2 => value & 0xffff,
            4 => value & 0xffff_ffff,
            _ => value,
        },
        (Immediate::Single(bits), Scalar::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Immediate::Single(bits), _) => u64::from(bits),
        (Immediate::Double(bits), Scalar::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Immediate::Double(bits), _) => bits,
    }
}
