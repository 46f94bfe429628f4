//! Readers of what runs leave: rings of last instructions, metrics, tables of measured runs, and pairs of Megatron-LM.

use blame::{Peers, RankHistory, Ring, RingHeader};
use data::Tokenizer;
use data::megatron::{MegatronWriter, open};
use plan::{MeasuredRun, Row, Table};
use report::Metrics;

use crate::corrupted::Corrupted;
use crate::texts::{seeds, texts};
use crate::watched::{INPUTS, Read, Scratch, Target};
use crate::{files_in, no_seal, use_corpus};

#[test]
fn rings() {
    let scratch = Scratch::new("rings");
    let path = scratch.path().join("seed");
    let groups = [(1, vec![0, 1, 2]), (2, vec![1, 3])].into();
    let header = RingHeader { rank: 1, process: 0, host: "node0".into(), pid: 7, groups };
    let mut ring = Ring::create(&path, &header).unwrap();
    for (peers, instruction) in
        [(Peers::None, "forward of layer 0"), (Peers::Group(1), "all-reduce over tp"), (Peers::Rank(3), "receive")]
    {
        ring.begin(2, peers, instruction);
        ring.end();
    }
    ring.begin(3, Peers::Group(2), "gather");
    drop(ring);
    let read = |bytes: &[u8]| {
        let history = RankHistory::read(&scratch.file("ring", bytes));
        if let Ok(history) = &history {
            assert!(history.entries.is_sorted_by_key(|entry| entry.number) && history.entries.len() <= 20);
            let _ = history.last();
        }
        Read::from(&history)
    };
    let target = Target { name: "rings", seeds: vec![std::fs::read(&path).unwrap()], seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn metrics() {
    let read = texts(|text| {
        let metrics = Metrics::parse(text);
        let _ = report::csv(&metrics);
        if metrics.steps.is_empty() { Read::Refused } else { Read::Accepted }
    });
    let given = "{\"step\":1,\"loss\":6.95,\"grad_norm\":2.7,\"total_tokens\":2048,\"step_seconds\":0.5}\n\
                 {\"step\":1,\"held_out_loss\":6.5}\n{\"step\":1,\"validation\":\"code\",\"validation_loss\":6.1}\n\
                 {\"step\":2,\"loss\":\"NaN\",\"total_tokens\":4096,\"skipped\":true}\n\
                 {\"step\":2,\"event\":\"resumed\",\"from\":\"checkpoints/1\"}\n";
    let target = Target { name: "metrics", seeds: seeds(&[given]), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn tables_of_runs() {
    let read = texts(|text| {
        let table = Table::read("runs.csv", text).and_then(|table| table.check_measured("runs.csv").map(|()| table));
        let is_run = |row: &Row| MeasuredRun::new(row).is_ok_and(|run| run.is_measured());
        let is_read = table.is_ok_and(|table| table.rows.iter().any(is_run));
        if is_read { Read::Accepted } else { Read::Refused }
    });
    let tables = files_in("crates/planning/plan/tables", "csv").into_iter();
    // Of each table the header and some rows; tables of kernels have other columns.
    let beginning = |table: Vec<u8>| table.split_inclusive(|byte| *byte == b'\n').take(6).collect::<Vec<_>>().concat();
    let seeds: Vec<Vec<u8>> = tables.map(beginning).filter(|table| read(table) == Read::Accepted).collect();
    assert!(seeds.len() >= 4, "{} tables of runs", seeds.len());
    let target = Target { name: "tables_of_runs", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn megatron_indices() {
    let scratch = Scratch::new("megatron");
    let path = scratch.path().join("pair");
    let mut writer = MegatronWriter::create(&path, 300).unwrap();
    for tokens in [&[1, 2, 3][..], &[], &[200, 40, 99, 255]] {
        writer.push(tokens).unwrap();
    }
    writer.finish().unwrap();
    let index = std::fs::read(path.with_extension("idx")).unwrap();
    let read = |bytes: &[u8]| {
        let corpus = open(&scratch.file("pair.idx", bytes));
        if let Ok(corpus) = &corpus {
            use_corpus(corpus, &Tokenizer::bytes());
        }
        Read::from(&corpus)
    };
    let target = Target { name: "megatron_indices", seeds: vec![index], seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}
