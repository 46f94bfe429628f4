//! Profiles of crate `cluster`: what is read, written back, and refused.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, CollectiveLibrary, Software, StreamQueue, TrainerMemory, named, names};

#[test]
fn every_named_profile_is_read_and_written_back() {
    for name in names() {
        let profile = Cluster::from_toml(named(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(Cluster::from_toml(&profile.to_toml()).unwrap(), profile, "{name}");
    }
}

#[test]
fn collectives_are_those_of_nccl_unless_a_profile_says_otherwise() {
    let text = named("a100-80g-dgx").unwrap();
    let profile = Cluster::from_toml(text).unwrap();
    assert_eq!(profile.collectives, CollectiveLibrary::Nccl);
    assert!(!profile.to_toml().contains("collectives"));
    let own = Cluster::from_toml(&format!("collectives = \"pleach\"\n{text}")).unwrap();
    assert_eq!(own, Cluster { collectives: CollectiveLibrary::Pleach, ..profile });
    assert_eq!(Cluster::from_toml(&own.to_toml()).unwrap(), own);
    let error = Cluster::from_toml(&format!("collectives = \"rccl\"\n{text}")).unwrap_err().to_string();
    assert!(error.contains("expected one of `nccl`, `pleach`, `mpi`"), "{error}");
}

#[test]
fn every_entry_of_a_named_trainer_says_where_it_is_from() {
    for name in Software::names() {
        let text = Software::named(name).unwrap();
        let software = Software::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (_, own) = text.split_once("[sources]\n").unwrap();
        for key in own.lines().filter_map(|line| line.split_once(" = ").map(|(key, _)| key)) {
            assert!(software.sources.contains_key(key), "{name}: {key}");
            let without: Vec<&str> = text.split_inclusive('\n').collect();
            let own = without.iter().rposition(|line| line.starts_with(&format!("{key} = "))).unwrap();
            let without = [&without[..own], &without[own + 1..]].concat().concat();
            assert_eq!(
                Software::from_toml(&without).unwrap_err().to_string(),
                format!("[sources] has no `{key}`; say in a line where what `{key}` says is from"),
                "{name}"
            );
        }
    }
    assert!(
        Software::from_toml("name = \"mine\"")
            .unwrap_err()
            .to_string()
            .contains("missing field `operations_per_kernel`")
    );
}

#[test]
fn a_trainer_that_is_like_another_differs_in_what_its_description_says() {
    let base = Software::from_toml(Software::named("megatron-2021").unwrap()).unwrap();
    let text = "like = \"megatron-2021\"\nreductions = \"overlapped\"\n\n[memory]\nlogit_bytes = 2.0\n\n[sources]\nreductions = \"seen\"\nlogit_bytes = \"seen\"\n";
    let like = Software::from_toml(text).unwrap();
    assert_eq!((like.reductions, like.memory.logit_bytes), (StreamQueue::Beside, 2.0));
    let TrainerMemory { unused_share, .. } = like.memory;
    assert_eq!((like.gathers, unused_share, &like.name), (base.gathers, base.memory.unused_share, &base.name));
    assert_eq!((like.sources["reductions"].as_str(), &like.sources["gathers"]), ("seen", &base.sources["gathers"]));

    let profile = named("a100-80g-dgx").unwrap();
    let within = text.replace("[memory]", "[software.memory]").replace("[sources]", "[software.sources]");
    let with = Cluster::from_toml(&format!("{profile}\n[software]\n{within}")).unwrap();
    assert_eq!(with.software, Some(like));
    assert_eq!(Cluster::from_toml(&with.to_toml()).unwrap(), with, "written whole");

    assert_eq!(
        Software::from_toml(&text.replace("reductions = \"seen\"\n", "")).unwrap_err().to_string(),
        "[sources] has no `reductions`; say in a line where what `reductions` says is from",
        "the source of the other trainer is not a source of this one"
    );
    assert_eq!(
        Software::from_toml("").unwrap_err().to_string(),
        "missing field `name`; write it, or begin with like = \"megatron-core-2025\" to have all that is not written from \
         that trainer"
    );
    let unknown = Software::from_toml(&text.replace("megatron-2021", "mine")).unwrap_err().to_string();
    assert!(
        unknown.starts_with("like = \"mine\" must name a built-in trainer; use one of megatron-2020, "),
        "{unknown}"
    );
}

#[test]
fn what_nothing_in_this_world_has_is_refused_with_its_key() {
    let text = named("a100-80g-dgx").unwrap();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Cluster::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(
        refused("memory_gb_per_s = 2039.0", "memory_gb_per_s = 0.0"),
        "accelerator.memory_gb_per_s = 0 is not above 0; take it from the data sheet"
    );
    assert_eq!(
        refused("unaligned_efficiency = 0.78", "unaligned_efficiency = 1.8"),
        "compute.unaligned_efficiency = 1.8 must be a share; use more than 0 and at most 1"
    );
    assert_eq!(
        refused("half_tflops = 312.0", "half_tflops = 1e-10"),
        "accelerator.half_tflops = 1e-10 must be from 0.001 to 1000000; take it from the data sheet"
    );
    let (_, network) = text.split_once("[network]\n").unwrap();
    let slow = text.replace(network, &network.replacen("gb_per_s = 200.0", "gb_per_s = 1e-300", 1));
    assert_eq!(
        Cluster::from_toml(&slow).unwrap_err().to_string(),
        "network.gb_per_s = 1e-300 must be from 0.001 to 1000000; take it from the data sheet"
    );
    assert_eq!(
        refused("unaligned_efficiency = 0.78", "unaligned_efficiency = 1e-9"),
        "compute.unaligned_efficiency = 1e-9 must be from 0.000001 to 1; take it from the data sheet"
    );
    assert_eq!(
        refused("issue_us = ", "issue_us = 1e30 #"),
        "compute.issue_us = 1e30 must be from 0 to 1000000000; take it from the data sheet"
    );
    assert_eq!(
        refused("issue_us = ", "issue_us = -"),
        "compute.issue_us = -8 must not be negative; use 0 to leave it out"
    );
    assert_eq!(
        refused("memory_gb_per_s = 2039.0\n", ""),
        "[accelerator] has no `memory_gb_per_s`, in 10^9 bytes per second; write for example memory_gb_per_s = 2039.0, \
         which is that of a100-80g-dgx"
    );
    assert_eq!(
        refused("[node.link]\ngb_per_s = 300.0\n", "[node.link]\n"),
        "[node.link] has no `gb_per_s`, in 10^9 bytes per second; write for example gb_per_s = 300.0, which is that of \
         a100-80g-dgx"
    );
    let measured = |from: &str, to: &str| {
        let text = named("gb200-nvl72").unwrap();
        let (before, section) = text.split_once("[attention.flash-2]").unwrap();
        assert!(section.contains(from), "{from}");
        let text = format!("{before}[attention.flash-2]{}", section.replacen(from, to, 1));
        Cluster::from_toml(&text).unwrap_err().to_string()
    };
    assert_eq!(
        measured("\nefficiency = 0.161", "\nefficiency = 1.8"),
        "attention.flash-2.efficiency = 1.8 must be a share; use more than 0 and at most 1"
    );
    assert_eq!(
        measured("tail_tiles = 1.2", "tail_tiles = -1.2"),
        "attention.flash-2.tail_tiles = -1.2 must not be negative; use 0 to leave it out"
    );
    assert!(refused("about = ", "# ").starts_with("the profile has no `about`; write for example about = \"DGX "));
    let (before, network) = text.split_once("[network]").unwrap();
    let (network, sources) = network.split_once("[sources]").unwrap();
    assert_eq!(
        Cluster::from_toml(&format!("{before}[sources]{sources}")).unwrap_err().to_string(),
        format!("the section [network] is missing; that of a100-80g-dgx is\n\n[network]{}", sorted(network))
    );
    assert!(refused("[network]\n", "[network]\nspeed = 3\n").contains("unknown field `speed`"));
    assert_eq!(
        refused("\nnetwork = \"", "\nnetwerk = \""),
        "[sources] has no `network`; say in a line where what `network` says is from"
    );
}

/// The keys of a section in order, as TOML writes them.
fn sorted(section: &str) -> String {
    let mut lines: Vec<&str> = section.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("\n{line}")).collect()
}
