//! A device that checks every operation's operands before another device runs it, and writes the operations down.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

use device::{Around, Call, Communicator, Device, DeviceError, Op, Reduction, Stream, SumTree, Tensor};

/// Sections of the arena, by name.
pub type Sections = Vec<(String, Range<usize>)>;

/// Wraps a device and a communicator.
pub struct Tracer<'a> {
    pub device: &'a dyn Device,
    pub communicator: &'a dyn Communicator,
    pub sections: &'a Sections,
    pub lines: RefCell<Vec<String>>,
}

impl<'a> Tracer<'a> {
    pub fn new(device: &'a dyn Device, communicator: &'a dyn Communicator, sections: &'a Sections) -> Tracer<'a> {
        Tracer { device, communicator, sections, lines: RefCell::default() }
    }

    /// The tensor with the name of its section, in which it must be.
    fn named(&self, tensor: Tensor) -> String {
        let bytes = tensor.bytes();
        let section = self.sections.iter().find(|(_, range)| range.start <= bytes.start && bytes.end <= range.end);
        let (name, _) = section.unwrap_or_else(|| panic!("{tensor:?} is in no section"));
        format!("{name}[{}, {}]", tensor.rows, tensor.cols)
    }

    fn names(&self, tensors: impl Iterator<Item = Tensor>) -> String {
        tensors.map(|tensor| self.named(tensor)).collect::<Vec<_>>().join(", ")
    }
}

fn cells(tensor: Tensor) -> HashSet<usize> {
    let element = |row: usize, col: usize| tensor.offset_bytes / 4 + row * tensor.row_stride + col;
    (0..tensor.rows).flat_map(|row| (0..tensor.cols).map(move |col| (row, col))).map(|(r, c)| element(r, c)).collect()
}

/// A written tensor is either read as the same tensor, where the operation allows it, or not read at all. No two
/// results overlap.
fn check_aliases(op: &Op) {
    let operands = op.operands();
    let writes: Vec<Tensor> = operands.writes().collect();
    for (index, write) in writes.iter().enumerate() {
        let written = cells(*write);
        assert!(!written.is_empty(), "{op:?} writes nothing");
        for read in operands.reads().filter(|read| read != write) {
            assert!(written.is_disjoint(&cells(read)), "{op:?} reads {read:?} while it writes {write:?}");
        }
        for other in &writes[..index] {
            assert!(written.is_disjoint(&cells(*other)), "{op:?} writes {other:?} and {write:?}");
        }
    }
}

impl Around for Tracer<'_> {
    fn inner(&self) -> &dyn Device {
        self.device
    }

    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        check_aliases(op);
        let operands = op.operands();
        let line = format!("{}({}) -> {}", op.name(), self.names(operands.reads()), self.names(operands.writes()));
        self.lines.borrow_mut().push(line);
        self.device.submit(stream, op)
    }
}

impl Communicator for Tracer<'_> {
    fn size(&self) -> usize {
        self.communicator.size()
    }

    fn position(&self) -> usize {
        self.communicator.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        if let Call::AllReduce(x, reduction) = call {
            assert!(x.is_dense(), "{x:?}");
            let joined = match reduction {
                Reduction::Sum(tree) => {
                    assert_eq!(tree, SumTree::RANK_ORDER, "sums over tp are in rank order");
                    "Sum"
                }
                Reduction::Max => "Max",
            };
            self.lines.borrow_mut().push(format!("all_reduce {joined} {}", self.named(x)));
        }
        self.communicator.call(stream, call)
    }
}
