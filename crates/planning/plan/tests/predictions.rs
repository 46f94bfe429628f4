//! Predictions of whole steps: their parts add up, their drawings are whole, and constants are found again.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, Constant, Software, WeightGradients, named};
use config::RunConfig;
use plan::{Fitted, MeasuredRun, Open, PreparedRun, PreparedStep, Pricing, Table, fit, scores};
use sim::{Caption, ChromeTrace, Loss, MemoryPart, Trace, svg};

fn cluster() -> Cluster {
    Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap()
}

fn software() -> Software {
    Software::from_toml(Software::named("megatron-2021").unwrap()).unwrap()
}

fn step(overrides: &[&str], software: Option<&Software>) -> PreparedStep {
    let mut keys = vec!["model.num_layers=8".to_string(), "model.hidden=1024".into(), "train.global_batch=32".into()];
    keys.extend(overrides.iter().map(|key| format!("parallelism.{key}")));
    let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &keys).unwrap();
    PreparedStep::new(&model, &parallelism, &train, software).unwrap()
}

const LAYOUTS: [&[&str]; 6] = [
    &["dp=1", "tp=1", "pp=1"],
    &["dp=2", "tp=2", "pp=2", "zero=0"],
    &["dp=16", "tp=1", "pp=1", "zero=3"],
    &["dp=1", "tp=2", "pp=4", "schedule=zb-h1"],
    &["dp=2", "tp=4", "pp=2", "sequence_parallel=true", "recompute=full"],
    &["dp=2", "tp=1", "pp=2", "schedule=interleaved", "recompute=selective"],
];

#[test]
fn the_parts_of_a_step_add_up_to_it() {
    for layout in LAYOUTS {
        for software in [None, Some(software())] {
            let prediction = step(layout, software.as_ref()).on(&cluster()).unwrap();
            let (parts, whole) = (prediction.spent.step_ns() as f64, prediction.step_ns() as f64);
            assert!((parts / whole - 1.0).abs() < 1e-3, "{layout:?}: {parts} of {whole}\n{:?}", prediction.spent);
        }
    }
}

#[test]
fn each_loss_comes_from_what_it_is_named_after() {
    let lost = |layout: &[&str], loss| step(layout, None).on(&cluster()).unwrap().spent.on(loss);
    assert_eq!(lost(LAYOUTS[0], Loss::Tensor), 0);
    assert!(lost(LAYOUTS[1], Loss::Tensor) > 0);
    assert_eq!(lost(LAYOUTS[0], Loss::Waiting), 0);
    assert!(lost(LAYOUTS[1], Loss::Waiting) > 0);
    assert_eq!(lost(LAYOUTS[3], Loss::Recompute), 0);
    assert!(lost(LAYOUTS[4], Loss::Recompute) > lost(LAYOUTS[5], Loss::Recompute), "all of it against the core");
}

#[test]
fn a_trace_has_every_message_and_every_rank() {
    let step = step(LAYOUTS[1], None);
    let cluster = cluster();
    let times = step.on(&cluster).unwrap().times;
    let trace = Trace::of_stages(&step.graph, &times);
    let (movements, memory) = (step.movements(step.algorithms(&cluster)).unwrap(), step.memory_over_time(&times));
    let memory: Vec<_> = memory.iter().collect();
    let events = ChromeTrace { trace: &trace, graph: &step.graph, movements: &movements, memory: &memory };
    let json: serde_json::Value = serde_json::from_str(&events.to_string()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let phases = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    // 2 pipeline ranks; 8 microbatches there and back.
    assert_eq!((phases("s"), phases("f")), (16, 16));
    // Each process and each of its four threads has a name and a place; passes name their microbatches.
    assert_eq!(phases("M"), 2 * (2 + 2 * 4));
    let of_microbatch = |event: &&serde_json::Value| event["args"]["microbatch"].is_u64();
    assert!(events.iter().any(|event| event["ph"] == "X" && of_microbatch(&event)));
    let processes: std::collections::BTreeSet<u64> =
        events.iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!(processes.len(), 2);
    let drawing = svg(&trace, &Caption { title: "a < b".into(), ..Caption::default() });
    assert!(drawing.contains("a &lt; b") && drawing.contains(">pp 1<") && drawing.contains(">waiting<"));
    for word in ["forward", "backward", "communication", "numbers are microbatches"] {
        assert!(drawing.contains(word), "{word}");
    }
}

/// Sixteen layouts on 8 and 16 accelerators.
fn runs(cluster: &Cluster) -> Vec<PreparedRun> {
    let mut text =
        String::from("model,layers,hidden,heads,dp,tp,pp,micro_batch,global_batch,recompute,precision,iter_s\n");
    for (dp, tp, pp) in [(8, 1, 1), (4, 2, 1), (2, 2, 2), (16, 1, 1)] {
        for micro_batch in [1, 2, 4, 8] {
            text += &format!("gpt,4,2048,16,{dp},{tp},{pp},{micro_batch},128,full,fp16,1\n");
        }
    }
    let table = Table::read("runs", &text).unwrap();
    let prepared = table.rows.iter().map(|row| {
        let mut run = PreparedRun::new(MeasuredRun::new(row).unwrap(), Some(&software())).unwrap();
        run.run.step_s = Some(run.step_s(cluster).unwrap());
        run
    });
    prepared.collect()
}

#[test]
fn times_that_constants_made_are_met_again() {
    let mut truth = cluster();
    let constants = [Constant::MatrixEfficiency, Constant::MemoryEfficiency, Constant::NetworkEfficiency];
    for (constant, value) in constants.iter().zip([0.6, 0.7, 0.5]) {
        *constant.of(&mut truth) = value;
    }
    let runs = runs(&truth);
    let Fitted { cluster: fitted, open } = fit(&cluster(), &constants, &runs).unwrap();
    assert_eq!(open, []);
    // Constants can stand in for each other where no run tells them apart, so the times are compared.
    for run in &runs {
        let error = run.on(&fitted).unwrap().time_s.error().unwrap();
        assert!(error.abs() < 0.01, "{}: {error}", run.run.layout());
        assert!(run.on(&cluster()).unwrap().time_s.error().unwrap().abs() > 0.1, "before the fit it is far away");
    }
}

/// Rows of one layout share its step, and each keeps what was measured.
#[test]
fn equal_layouts_are_priced_once() {
    let measured: Vec<MeasuredRun> = runs(&cluster()).into_iter().map(|run| run.run).collect();
    let again =
        measured.iter().enumerate().map(|(row, run)| MeasuredRun { index: 16 + row, step_s: Some(9.0), ..run.clone() });
    let all: Vec<MeasuredRun> = measured.iter().cloned().chain(again).collect();
    let prepared = PreparedRun::all(&all, Some(&software())).into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert!((0..16).all(|row| std::sync::Arc::ptr_eq(&prepared[row].step, &prepared[16 + row].step)));
    let scored = PreparedRun::all_on(&prepared, &cluster()).unwrap();
    for (run, scored) in prepared.iter().zip(&scored) {
        assert_eq!(*scored, run.on(&cluster()).unwrap());
        assert_eq!(scored.time_s.measured, run.run.step_s);
    }
    assert_eq!(scored[16].time_s.measured, Some(9.0));
    let pricing = Pricing::default();
    let rows = scores(&all, Some(&software()), &cluster(), &pricing).unwrap();
    assert_eq!(rows.into_iter().collect::<Result<Vec<_>, _>>().unwrap(), scored, "without steps that are kept");
    assert_eq!((pricing.priced(), pricing.steps()), (16, 16));
}

#[test]
fn constants_that_rows_do_not_determine_are_named_and_stay_what_they_can_be() {
    let mut runs = runs(&cluster());
    let alone: Vec<PreparedRun> = runs.drain(..).filter(|run| run.run.accelerators() == 8).take(2).collect();
    let constants =
        [Constant::NetworkEfficiency, Constant::MatrixEfficiency, Constant::TileRampColumns, Constant::KernelGap];
    let Fitted { cluster: mut fitted, open } = fit(&cluster(), &constants, &alone).unwrap();
    assert_eq!(open[0], (Constant::NetworkEfficiency, Open::Unseen), "one node has no network");
    assert_eq!(Constant::NetworkEfficiency.of(&mut fitted), Constant::NetworkEfficiency.of(&mut cluster()));
    assert!(
        open[1..].iter().all(|(_, open)| *open == Open::Mixed) && open.len() > 1,
        "two rows, three constants: {open:?}"
    );
    for constant in constants {
        let (low, high) = constant.range();
        assert!((low..=high).contains(constant.of(&mut fitted)), "{constant}");
    }
}

#[test]
fn a_table_that_cannot_be_used_says_where_and_why() {
    let refused = |text: &str| match Table::read("runs.csv", text) {
        Err(error) => error.to_string(),
        Ok(table) => MeasuredRun::new(&table.rows[0]).unwrap_err().to_string(),
    };
    assert_eq!(refused(""), "runs.csv has no header; the first line names the columns");
    assert_eq!(
        refused("layers,hidden,heads,tp,pp\n"),
        "runs.csv has no column `global_batch`; it needs layers, hidden, heads, tp, pp, global_batch"
    );
    let header = "layers,hidden,heads,tp,pp,global_batch,gpus,zero\n";
    assert_eq!(
        refused(&format!("{header}2,8,2,1\n")),
        "runs.csv, line 2: 4 cells for 8 columns; write a comma for each cell that is empty"
    );
    assert_eq!(
        refused(&format!("{header}2\n")),
        "runs.csv, line 2: 1 cell for 8 columns; write a comma for each cell that is empty"
    );
    assert_eq!(
        refused(&format!("{header}2,8,2,1,1,4,,,a, b\n")),
        "runs.csv, line 2: 10 cells for 8 columns; put cells with commas in quotation marks"
    );
    assert_eq!(
        refused(&format!("{header}0,8,2,1,1,4,,\n")),
        "line 2: layers = `0` is not a whole number above 0; every run has one, so write it, or leave the row out with --rows"
    );
    assert_eq!(
        refused(&format!("{header}2,8,2,2,1,4,3,\n")),
        "line 2: gpus = `3` is not a multiple of tp 2 x pp 1 = 2; correct the wrong one"
    );
    assert_eq!(
        refused(&format!("{header}2,8,3,1,1,4,,\n")),
        "line 2: heads = `3` is not a divisor of hidden = 8; correct the wrong one"
    );
    assert_eq!(refused(&format!("{header}2,8,2,1,1,4,,4\n")), "line 2: zero = `4` is not one of 0, 1, 2 and 3");
    assert_eq!(
        refused("layers,hidden,heads,tp,pp,global_batch,recompute\n2,8,2,1,1,4,selective (op)\n"),
        "line 2: recompute = `selective (op)` is another form of selective recomputation than that of the attention core"
    );
    assert_eq!(
        refused(&format!("{header}2,8,2,1,1,5,2,\n")),
        "line 2: global_batch = `5` is not a multiple of dp 2 x micro_batch 1; correct the wrong one"
    );
}

#[test]
fn gradients_that_stay_beside_their_sums_are_as_large_as_the_parameters() {
    let memory = |weight_gradients| {
        let mut software = software();
        software.memory.weight_gradients = weight_gradients;
        step(LAYOUTS[1], Some(&software)).memory().remove(0)
    };
    let [freed, kept] = [WeightGradients::Freed, WeightGradients::Kept].map(memory);
    let [freed_gradients, kept_gradients] = [&freed, &kept].map(|memory| memory.parts[&MemoryPart::Gradients]);
    assert_eq!(kept_gradients - freed_gradients, freed.parts[&MemoryPart::Parameters]);
    assert_eq!(kept.resident_bytes - freed.resident_bytes, kept_gradients - freed_gradients);
}
