//! The registers of 32 bits that an instruction uses.

use super::asynchronous::{Asynchronous, BulkCopy, PhaseKind, TensorBox};
use super::kernel::Kernel;
use super::operations::{Address, Arithmetic, Instruction, IntegerFormat, NumberFormat, Op, Row, Slot};

/// How an instruction uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
}

/// Calls `visit` with the registers of 32 bits that an instruction uses, those that it reads first. Products of
/// warpgroups are left out: their registers have rules of their own.
pub fn small_uses(kernel: &Kernel, instruction: &Instruction, visit: &mut impl FnMut(Row, Use)) {
    let slots = |first: u32, count: u8| &kernel.slots[first as usize..first as usize + usize::from(count)];
    match &instruction.op {
        Op::Arithmetic(op) => arithmetic(op, visit),
        Op::Load(op) => {
            read_address(op.address, visit);
            slots(op.slots, op.count).iter().for_each(|slot| of_slot(*slot, Use::Write, visit));
        }
        Op::Store(op) => {
            read_address(op.address, visit);
            slots(op.slots, op.count).iter().for_each(|slot| of_slot(*slot, Use::Read, visit));
        }
        Op::Atomic(op) => {
            read_address(op.address, visit);
            [op.operand, op.swap].into_iter().for_each(|slot| of_slot(slot, Use::Read, visit));
            of_slot(op.to, Use::Write, visit);
        }
        Op::Shuffle(op) => {
            [op.from, op.lane, op.clamp, op.members].into_iter().for_each(|row| visit(row, Use::Read));
            visit(op.to, Use::Write);
        }
        Op::Vote(op) => visit(op.members, Use::Read),
        Op::Reduce { to, from, members, .. } => {
            [*from, *members].into_iter().for_each(|row| visit(row, Use::Read));
            visit(*to, Use::Write);
        }
        Op::Match { to, from, members, .. } => {
            of_slot(*from, Use::Read, visit);
            visit(*members, Use::Read);
            visit(*to, Use::Write);
        }
        Op::ActiveMask(to) => visit(*to, Use::Write),
        Op::Elect { to, members, .. } => {
            visit(*members, Use::Read);
            of_slot(*to, Use::Write, visit);
        }
        Op::WarpBarrier(members) => visit(*members, Use::Read),
        Op::Barrier { id, threads, .. } => {
            visit(*id, Use::Read);
            threads.iter().for_each(|row| visit(*row, Use::Read));
        }
        Op::MatrixProduct(op) => {
            op.a.iter().chain(&op.b).chain(&op.c).for_each(|row| visit(*row, Use::Read));
            op.d.iter().for_each(|row| visit(*row, Use::Write));
        }
        Op::LoadFragments(op) | Op::StoreFragments(op) => {
            read_address(op.address, visit);
            let use_of = if matches!(instruction.op, Op::LoadFragments(_)) { Use::Write } else { Use::Read };
            op.rows.iter().take(usize::from(op.count)).for_each(|row| visit(*row, use_of));
        }
        Op::AsyncCopy(op) => {
            read_address(op.to, visit);
            read_address(op.from, visit);
            op.read_bytes.iter().for_each(|row| visit(*row, Use::Read));
        }
        Op::Asynchronous(op) => asynchronous(op, visit),
        Op::Clock(to) => of_slot(*to, Use::Write, visit),
        Op::CopyGroup(_) | Op::Fence(_) | Op::Nothing | Op::Trap => {}
    }
}

fn of_slot(slot: Slot, how: Use, visit: &mut impl FnMut(Row, Use)) {
    match slot {
        Slot::Small(row) => visit(row, how),
        Slot::Wide(_) | Slot::Sink => {}
    }
}

fn read_address(address: Address, visit: &mut impl FnMut(Row, Use)) {
    of_slot(address.base, Use::Read, visit);
}

fn arithmetic(op: &Arithmetic, visit: &mut impl FnMut(Row, Use)) {
    let mut all = |read: &[Row], written: Option<Row>| {
        read.iter().for_each(|row| visit(*row, Use::Read));
        written.iter().for_each(|row| visit(*row, Use::Write));
    };
    match op {
        Arithmetic::Integer(_, IntegerFormat::Wide, ..) => {}
        Arithmetic::Integer(_, _, to, from) => all(from, Some(*to)),
        Arithmetic::ShiftWide(_, _, _, by) => all(&[*by], None),
        Arithmetic::CountWide(_, to, _) => all(&[], Some(*to)),
        Arithmetic::MultiplyWide(op) => {
            all(&op.factors, None);
            if op.is_narrow {
                op.addend.iter().for_each(|row| all(&[*row], None));
                all(&[], Some(op.to));
            }
        }
        Arithmetic::Number(op, ..) if op.format == NumberFormat::F64 => {}
        Arithmetic::Number(_, to, from) => all(from, Some(*to)),
        Arithmetic::Convert(conversion, to, from) => {
            conversion.low.iter().for_each(|row| all(&[*row], None));
            of_slot(*from, Use::Read, visit);
            of_slot(*to, Use::Write, visit);
        }
        Arithmetic::Compare(op) => {
            let is_wide =
                matches!(op.kind, super::ComparisonKind::U64 | super::ComparisonKind::S64 | super::ComparisonKind::F64);
            if !is_wide {
                all(&op.numbers, None);
            }
        }
        Arithmetic::SelectSmall(_, to, a, b) => all(&[*a, *b], Some(*to)),
        Arithmetic::SelectBySign(to, a, b, c, _) => all(&[*a, *b, *c], Some(*to)),
        Arithmetic::MoveSmall(to, from) => all(&[*from], Some(*to)),
        Arithmetic::Pack(to, from, _, count) => {
            all(&from[..usize::from(*count).min(4)], None);
            of_slot(*to, Use::Write, visit);
        }
        Arithmetic::Unpack(to, from, _, count) => {
            of_slot(*from, Use::Read, visit);
            to.iter().take(usize::from(*count)).for_each(|slot| of_slot(*slot, Use::Write, visit));
        }
        Arithmetic::Join(_, low, high) => all(&[*low, *high], None),
        Arithmetic::Split(low, high, _) => [*low, *high].into_iter().for_each(|slot| of_slot(slot, Use::Write, visit)),
        Arithmetic::SelectWide(..) | Arithmetic::Logic(..) | Arithmetic::MoveWide(..) | Arithmetic::Displace(..) => {}
    }
}

fn asynchronous(op: &Asynchronous, visit: &mut impl FnMut(Row, Use)) {
    let read_box = |from: &TensorBox, visit: &mut dyn FnMut(Row, Use)| {
        from.coordinates.iter().take(usize::from(from.dims)).for_each(|row| visit(*row, Use::Read));
    };
    match op {
        Asynchronous::Barrier(op) => {
            read_address(op.barrier, visit);
            match op.kind {
                PhaseKind::Initialize(row) | PhaseKind::ExpectBytes(row) => visit(row, Use::Read),
                PhaseKind::Arrive { state, count, bytes } => {
                    count.iter().chain(&bytes).for_each(|row| visit(*row, Use::Read));
                    of_slot(state, Use::Write, visit);
                }
                PhaseKind::Wait { phase: super::Phase::Parity(row), .. } => visit(row, Use::Read),
                PhaseKind::Pending(to, _) => visit(to, Use::Write),
                PhaseKind::Wait { phase: super::Phase::Of(_), .. } | PhaseKind::Invalidate => {}
            }
        }
        Asynchronous::Copy(copy) => match copy {
            BulkCopy::LoadBox { to, from, barrier, blocks } => {
                [*to, *barrier, from.map].into_iter().for_each(|address| read_address(address, visit));
                blocks.iter().for_each(|row| visit(*row, Use::Read));
                read_box(from, visit);
            }
            BulkCopy::StoreBox { to, from } => {
                [*from, to.map].into_iter().for_each(|address| read_address(address, visit));
                read_box(to, visit);
            }
            BulkCopy::Load { to, from, bytes, barrier } => {
                [*to, *from, *barrier].into_iter().for_each(|address| read_address(address, visit));
                visit(*bytes, Use::Read);
            }
            BulkCopy::Store { to, from, bytes } => {
                [*to, *from].into_iter().for_each(|address| read_address(address, visit));
                visit(*bytes, Use::Read);
            }
        },
        Asynchronous::MapToBlock(to, from, block) => {
            of_slot(*from, Use::Read, visit);
            visit(*block, Use::Read);
            of_slot(*to, Use::Write, visit);
        }
        Asynchronous::Product(_)
        | Asynchronous::BarrierFence
        | Asynchronous::ProxyFence
        | Asynchronous::CopyGroup(_)
        | Asynchronous::ProductFence
        | Asynchronous::ProductCommit
        | Asynchronous::ProductWait(_)
        | Asynchronous::ClusterArrive
        | Asynchronous::ClusterWait => {}
    }
}
