//! Readers of texts: files of clusters, schedules and hosts, lists of Slurm, JSON lines, and PTX of the soft GPU.

use std::path::Path;

use cluster::{Cluster, Software};
use data::{Instructions, Tokenizer};
use gpu::{Gpu, ModuleImage};
use launcher::{expand_node_list, expand_tasks_per_node, parse_host_list};
use program::Schedule;
use softgpu::{Settings, SoftGpu};

use crate::corrupted::Corrupted;
use crate::watched::{INPUTS, Read, Scratch, Target};
use crate::{files_in, no_seal};

/// A reader of texts; what is not UTF-8 is refused before it reads.
pub fn texts(read: impl Fn(&str) -> Read + Sync) -> impl Fn(&[u8]) -> Read + Sync {
    move |bytes| std::str::from_utf8(bytes).map_or(Read::Refused, &read)
}

pub fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn cluster_files() {
    let read = texts(|text| {
        let cluster = Cluster::from_toml(text);
        if let Ok(cluster) = &cluster {
            let written = cluster.to_toml();
            assert_eq!(Cluster::from_toml(&written).unwrap().to_toml(), written, "a written profile means the same");
        }
        Read::from(&cluster)
    });
    let target = Target {
        name: "cluster_files",
        seeds: files_in("crates/planning/cluster/profiles", "toml"),
        seal: no_seal,
        read: &read,
    };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn software_files() {
    let read = texts(|text| Read::from(&Software::from_toml(text)));
    let target = Target {
        name: "software_files",
        seeds: files_in("crates/planning/cluster/software", "toml"),
        seal: no_seal,
        read: &read,
    };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn schedule_files() {
    let read = texts(|text| {
        let schedule = text.parse::<Schedule>();
        if let Ok(schedule) = &schedule {
            schedule.contribution_order();
            let _ = schedule.to_string().parse::<Schedule>().expect("a written schedule is read again");
        }
        Read::from(&schedule)
    });
    let given = include_str!("../../../../../examples/pp_schedule_file.txt");
    let target =
        Target { name: "schedule_files", seeds: seeds(&[given, "0F0 0B0 # one\n"]), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn host_files() {
    let read = texts(|text| {
        let hosts = parse_host_list(text, 8);
        if let Ok(hosts) = &hosts {
            assert!(hosts.iter().all(|host| host.processes >= 1 && !host.name.starts_with('-')));
        }
        Read::from(&hosts)
    });
    let given = "\u{feff}# machines\nnode0 slots=4\n  node1:2  # small\n\nuser@node2\nfd00::1\n";
    let target = Target { name: "host_files", seeds: seeds(&[given, "a\n"]), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn node_lists() {
    let read = texts(|text| {
        let (names, tasks) = (expand_node_list(text), expand_tasks_per_node(text));
        let largest = names.as_ref().map_or(0, Vec::len).max(tasks.as_ref().map_or(0, Vec::len));
        assert!(largest <= 1 << 16, "{largest} nodes");
        if names.is_ok() || tasks.is_ok() { Read::Accepted } else { Read::Refused }
    });
    let given = ["node[01-03,7]", "a,b[1-2]-x[3,5],c", "2(x3),1", "gpu[0001-0999]"];
    let target = Target { name: "node_lists", seeds: seeds(&given), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn json_lines() {
    let scratch = Scratch::new("json_lines");
    let read = |bytes: &[u8]| {
        let path = scratch.file("a.jsonl", bytes);
        let documents = data::read(&path, None);
        let tasks = Instructions::read(Some(&path), &Tokenizer::bytes());
        if documents.is_ok() || tasks.is_ok() { Read::Accepted } else { Read::Refused }
    };
    let documents = "{\"text\": \"one \\u00e9 line\", \"n\": 1}\n{\"text\": \"two\"}\n";
    let tasks =
        "{\"input\": \"add 1 2\", \"target\": \"3\"}\n\n{\"input\": \"\", \"target\": \"x\", \"more\": [1, {}]}\n";
    let target = Target { name: "json_lines", seeds: seeds(&[documents, tasks]), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn tables_and_packed_texts() {
    let scratch = Scratch::new("tables_and_packed_texts");
    let read = |bytes: &[u8]| {
        let path = scratch.file("a", bytes);
        if data::read(&path, None).is_ok() { Read::Accepted } else { Read::Refused }
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/formats/src/tests/tables/");
    let names = [
        "snappy-pages-1.parquet",
        "zstd-pages-2.parquet",
        "lengths.parquet",
        "prefixes.parquet",
        "strings-lz4.arrow",
        "views-zstd.arrow",
        "stream.arrows",
        "lines.txt.gz",
        "lines.txt.zst",
    ];
    let given = names.map(|name| std::fs::read(format!("{folder}{name}")).expect("a table"));
    let target = Target { name: "tables_and_packed_texts", seeds: given.to_vec(), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// A kernel with a loop, a predicate, shared memory and a call of a barrier.
const KERNEL: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n
.shared .align 4 .b8 tile[256];\n.global .align 4 .b8 table[16] = {1, 2, 3};
.visible .entry k(.param .u64 out, .param .align 8 .b8 more[24]) {
.reg .pred %p<3>;\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n.reg .f32 %f<4>;
ld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 4;\nadd.s64 %d0, %d1, %d2;
mov.b32 %f1, 0f3F800000;\nLOOP:\nadd.s32 %r1, %r1, 1;\nfma.rn.f32 %f1, %f1, 0f40000000, %f1;
setp.lt.s32 %p1, %r1, 4;\n@%p1 bra LOOP;\nbar.sync 0;\nst.global.f32 [%d0+0], %f1;\nret;\n}\n";

#[test]
fn ptx() {
    let read = texts(|text| {
        let gpu = SoftGpu::new(0, Settings::default());
        let module = gpu.load(ModuleImage::Ptx(text));
        if let Ok(module) = &module
            && let Ok(function) = gpu.function(*module, "k")
        {
            // The facts are there or refused.
            let _ = gpu.function_facts(function);
        }
        Read::from(&module)
    });
    let target = Target { name: "ptx", seeds: seeds(&[KERNEL]), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// The examples are where the tests think they are.
#[test]
fn seeds_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for folder in ["crates/planning/cluster/profiles", "crates/planning/cluster/software", "examples"] {
        assert!(root.join(folder).is_dir(), "{folder}");
    }
}
