//! R20: checkpoints of earlier formats, as programs of their time wrote them, are read. The files are never written
//! again.

use std::path::Path;

use checkpoint::{Checkpoint, StatePart};
use mesh::Region;

use crate::checkpoints::rig::value;

/// Format 1: the state of `rig` after two steps, without its long tensor.
#[test]
fn format_1_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints/format_1/step-00000002");
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    assert_eq!((checkpoint.manifest().format, checkpoint.state().steps, checkpoint.state().sequences), (1, 2, 16));
    for (name, shape) in [("matrix", vec![6, 10]), ("bias", vec![7]), ("number", vec![])] {
        assert_eq!(checkpoint.shape(&StatePart::Weights.tensor(name)), Some(shape.as_slice()));
        let whole = Region::whole(&shape);
        let mut values = vec![0.0; whole.len()];
        checkpoint.get(name, &whole, &mut values).expect("sound");
        assert!(values.iter().enumerate().all(|(index, found)| *found == value(name, 2, index)), "{name}: {values:?}");
    }
    assert_eq!(checkpoint.verify().len(), 0);
}
