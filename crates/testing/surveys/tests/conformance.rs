//! The comparison of a GPU with the CPU, on a GPU in software: with the kernels of an archive, in parts, with results
//! that are kept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{DeviceKind, Dtype};
use gpu::Capability;
use mesh::Coord;
use prove::outcome_of;
use softgpu::{Settings, SoftDriver};
use surveys::conformance::cases::{Case, all};
use surveys::conformance::check::{Ended, Results, Verdict};
use surveys::conformance::expected::{Expected, Outcomes, result};
use surveys::conformance::hashed_device::{defined_elements, unify_nans};
use testkit::intercepted::intercept_ops;
use testkit::layout::{Layout, engine};
use testkit::models::proof_text;
use testkit::soft_gpus::{cache_of_tests, compiler, gpu_engine, soft_gpus};
use testkit::wrapped_engine::WrappedEngine;
use train::{ArchivedKernels, Engine, Gpus, RankEngine, Setup};

/// Cases of a test: one of each kind.
fn cases() -> Vec<Case> {
    let names = ["operations llama", "operations exact-sums", "run gpt zero 1 with overlap, time 1"];
    let mut cases = all();
    cases.retain(|case| names.contains(&case.name.as_str()));
    assert_eq!(cases.len(), names.len());
    for case in &mut cases {
        case.layout.train.steps = 1;
        case.layout.train.warmup_steps = 0;
    }
    cases
}

#[needs::cuda]
#[test]
fn an_archive_is_compared_in_parts_and_a_difference_is_named() {
    let folder = std::env::temp_dir().join(format!("pleach-conformance-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let archive = ArchivedKernels::compile(&compiler(), Some(&cache_of_tests()), &[Capability { major: 9, minor: 0 }])
        .expect("compiled");
    let archive = archive.to_bytes().expect("bytes");
    let (cases, path) = (cases(), folder.join("results.json"));
    let mut expected: Expected =
        cases.iter().map(|case| (case.name.clone(), result(case, |setup| engine(setup, 1)).expect("a run"))).collect();
    let kernels = Box::new(ArchivedKernels::read(&archive).expect("an archive"));
    let soft = Arc::new(SoftDriver::new(1, Settings::default()));
    let gpus = Arc::new(Gpus::new(soft, DeviceKind::CUDA, kernels, None).expect("GPUs"));
    let part = |expected: &Expected, seconds| {
        let mut results = Results::read(&path).expect("results");
        let time = (path.as_path(), Duration::from_secs(seconds));
        let ended = results.compare(&cases, expected, time, |setup| Box::new(gpu_engine(setup, &gpus)));
        (ended.expect("compared"), results)
    };
    assert_eq!(part(&expected, 0).0, Ended::Unfinished, "no time");
    let (ended, results) = part(&expected, 3600);
    assert_eq!(ended, Ended::Equal, "{results:?}");
    assert_eq!(results.cases.len(), cases.len());
    // A case that is done is not done again; a case without its end is, once, and has failed afterwards.
    let begun = |results: &Results| {
        let mut begun = results.clone();
        begun.cases.get_mut("operations llama").expect("a case").verdict = Verdict::Begun;
        std::fs::write(&path, serde_json::to_string(&begun).expect("JSON")).expect("written");
    };
    begun(&results);
    let (ended, again) = part(&expected, 3600);
    assert_eq!((ended, &again.cases["operations llama"].verdict), (Ended::Equal, &Verdict::Equal));
    let seconds = |results: &Results| results.cases["operations exact-sums"].seconds;
    assert_eq!(seconds(&again), seconds(&results));
    begun(&again);
    let (ended, results) = part(&expected, 3600);
    assert_eq!(ended, Ended::Different);
    let ended = Verdict::Different("the program ended twice during this case".into());
    assert_eq!(results.cases["operations llama"].verdict, ended);
    // Another bit of one operation is found and named.
    std::fs::remove_file(&path).expect("removed");
    let Some(Outcomes::Operations(names, hashes)) = expected.get_mut("operations llama") else { panic!("operations") };
    let at = names.iter().position(|name| name == "norm").expect("a norm");
    hashes.replace_range(16 * at..16 * at + 1, if hashes[16 * at..].starts_with('0') { "1" } else { "0" });
    let said = format!("operation {at} of {}, norm, wrote other bits; 1 operations differ in all", names.len());
    let (ended, results) = part(&expected, 3600);
    assert_eq!((ended, &results.cases["operations llama"].verdict), (Ended::Different, &Verdict::Different(said)));
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// The values that each operation of a run has defined.
type Defined = Vec<(String, Vec<(Dtype, Vec<u8>)>)>;

fn defined(layout: &Layout, open: impl Fn(&Setup) -> Box<dyn Engine>) -> Defined {
    let setup = layout.setup().expect("a plan");
    let kept: Arc<Mutex<Defined>> = Arc::default();
    let wrap = |_: Coord, rank: RankEngine| {
        let kept = Arc::clone(&kept);
        intercept_ops(rank, move |device, stream, op| {
            device.submit(stream, op)?;
            let elements = defined_elements(device, op)?;
            kept.lock().expect("no panic").push((op.name().into(), elements));
            Ok(())
        })
    };
    let engine = WrappedEngine::around(open(&setup), &setup, &wrap);
    outcome_of(&setup, &engine, &proof_text()).expect("a run");
    kept.lock().expect("no panic").clone()
}

/// Skipped steps of fp16 leave NaNs, whose payloads are the processor's; all other elements have the bits of the CPU.
#[needs::cuda]
#[test]
fn payloads_of_nans_are_all_that_differs_in_fp16() {
    let gpus = soft_gpus(1);
    for case in all().iter().filter(|case| case.name == "operations gpt in fp16") {
        let on_cpu = defined(&case.layout, |setup| engine(setup, 1));
        let on_gpu = defined(&case.layout, |setup| Box::new(gpu_engine(setup, &gpus)));
        assert_eq!(on_gpu.len(), on_cpu.len(), "{}", case.name);
        let mut payloads = 0;
        for (index, ((name, expected), (_, got))) in on_cpu.into_iter().zip(on_gpu).enumerate() {
            payloads += usize::from(expected != got);
            let unified = |mut tensors: Vec<(Dtype, Vec<u8>)>| {
                tensors.iter_mut().for_each(|(dtype, elements)| unify_nans(*dtype, elements));
                tensors
            };
            assert!(unified(expected) == unified(got), "{}: operation {index}, {name}", case.name);
        }
        println!("{}: {payloads} operations differ in payloads of NaNs", case.name);
        assert!(payloads > 0, "{}", case.name);
    }
}
