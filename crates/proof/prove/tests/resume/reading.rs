//! A rank reads what it needs and no more.

use config::{Format, Parallelism, Tied, ZeroStage};
use testkit::layout::engine;
use testkit::models::{plain_layout, proof_text};
use testkit::resumed::{LayoutPart, newest, outcome_of_parts, resumed_spec};
use train::{Observer, Ports, Setup, Start, StepReport, StopRequest, run};

use crate::resume::rig::{Folder, layout};

struct Silent;

impl Observer for Silent {
    fn step(&self, _: &StepReport) -> StopRequest {
        StopRequest::None
    }
}

/// Bytes that all ranks of `after` read together of what `before` saved: of headers, of weights, of moments.
fn read(before: Parallelism, after: Parallelism) -> (u64, [u64; 3]) {
    let (folder, tokens) = (Folder::new(), proof_text());
    let saved = layout(Tied::Yes, Format::Fp32, before);
    outcome_of_parts(&[LayoutPart { layout: saved, until: 2 }], &tokens, &folder.0).unwrap();
    let checkpoint = newest(&folder.0).unwrap();
    let after = layout(Tied::Yes, Format::Fp32, after);
    let setup = Setup::new(after.model, after.parallelism, resumed_spec(&after.train, &checkpoint)).unwrap();
    let start = Start::Checkpoint(&checkpoint);
    run(&setup, &*engine(&setup, 1), Ports { start, ..Ports::new(&tokens, &Silent) }).unwrap();
    let manifest = checkpoint.manifest();
    let headers = manifest.files.iter().map(|file| file.header_bytes).sum::<u64>();
    let all = manifest.data_bytes() - headers;
    (checkpoint.bytes_read(), [headers, all / 3, 2 * all / 3])
}

#[test]
fn ranks_of_a_pipeline_read_each_byte_once() {
    let of = |pp| plain_layout(1, 1, pp, 1);
    // The tied table is on the first rank and on the last.
    let (bytes, [headers, weights, moments]) = read(of(2), of(1));
    assert_eq!(bytes, headers + weights + moments);
}

#[test]
fn replicas_read_their_own_shards_of_moments() {
    let sharded = |dp| Parallelism { zero: ZeroStage::One, ..plain_layout(dp, 1, 1, 1) };
    let (bytes, [headers, weights, moments]) = read(sharded(2), sharded(2));
    assert_eq!(bytes, headers + 2 * weights + moments);
}
