//! Ranks of two processes deliver weights, first gradients and logits: those of the second process travel as bytes, and
//! rank 0's sinks end with the same tensors.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use config::{ModelSpec, Parallelism, ParamSpec, TrainSpec, ZeroStage, all_params};
use mesh::Region;
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{
    Assembly, ForwardingSink, GatheringSink, LogitsSink, Observer, Ports, Setup, StepReport, StopRequest, TensorMap,
    TensorSink, run, run_forward, take_logits,
};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

struct Silent;

impl Observer for Silent {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }
}

/// Every rank has something of its own to deliver.
fn layout() -> Parallelism {
    Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 1) }
}

fn training() -> TrainSpec {
    TrainSpec { steps: 2, global_batch: 4, ..proof_training() }
}

/// Ranks 2 and 3 are in the second process: threads are named after their ranks.
fn is_of_second_process() -> bool {
    ["rank 2", "rank 3"].contains(&std::thread::current().name().unwrap())
}

/// The sinks of two processes, one for each rank's thread.
struct TwoProcesses<'a, S: ?Sized> {
    first: &'a S,
    second: &'a S,
}

impl<S: ?Sized> TwoProcesses<'_, S> {
    fn own(&self) -> &S {
        if is_of_second_process() { self.second } else { self.first }
    }
}

impl TensorSink for TwoProcesses<'_, dyn TensorSink + '_> {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        self.own().put(param, region, values);
    }
}

impl LogitsSink for TwoProcesses<'_, dyn LogitsSink + '_> {
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]) {
        self.own().put(sequence, first_token, logits);
    }
}

#[derive(Default)]
struct Kept(Mutex<BTreeMap<(u64, usize), Vec<f32>>>);

impl LogitsSink for Kept {
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]) {
        let before = self.0.lock().unwrap().insert((sequence, first_token), logits.to_vec());
        assert!(before.is_none(), "a row comes once");
    }
}

/// Weights and first gradients of a run.
fn trained(setup: &Setup, weights: &dyn TensorSink, gradients: &dyn TensorSink) {
    let ports = Ports { weights: Some(weights), first_gradients: Some(gradients), ..Ports::new(&TEXT, &Silent) };
    run(setup, &*engine(setup, 1), ports).unwrap();
}

fn whole(map: TensorMap) -> BTreeMap<String, Assembly> {
    let tensors = map.into_tensors();
    assert!(tensors.values().all(|tensor| tensor.received == tensor.values.len()));
    tensors
}

#[test]
fn weights_and_gradients_of_two_processes_are_those_of_one() {
    let setup = Setup::new(proof_model(Style::Gpt2, 4, true), layout(), training()).unwrap();
    let [weights, gradients] = [TensorMap::default(), TensorMap::default()];
    trained(&setup, &weights, &gradients);
    let expected = [weights, gradients].map(whole);

    let firsts = [TensorMap::default(), TensorMap::default()];
    let sent: [Mutex<Vec<Vec<u8>>>; 2] = Default::default();
    let posts =
        [0, 1].map(|port| move |sent: &[Mutex<Vec<Vec<u8>>>; 2], message| sent[port].lock().unwrap().push(message));
    let post_weights = |message| posts[0](&sent, message);
    let post_gradients = |message| posts[1](&sent, message);
    let seconds = [ForwardingSink::new(&post_weights), ForwardingSink::new(&post_gradients)];
    let sink = |port: usize| TwoProcesses { first: &firsts[port] as &dyn TensorSink, second: &seconds[port] };
    trained(&setup, &sink(0), &sink(1));
    // Messages come in any order.
    for (sent, first) in sent.iter().zip(&firsts) {
        let gathering = GatheringSink::new(&setup.model, first);
        let messages = sent.lock().unwrap();
        assert!(!messages.is_empty(), "ranks of the second process answer for something");
        messages.iter().rev().for_each(|message| gathering.take(message).unwrap());
    }
    assert!(firsts.map(whole) == expected);
}

#[test]
fn logits_of_two_processes_are_those_of_one() {
    let setup = Setup::forward(proof_model(Style::Gpt2, 4, true), plain_layout(4, 1, 1, 1), training()).unwrap();
    let all = Kept::default();
    run_forward(&setup, &*engine(&setup, 1), &TEXT, None, &all).unwrap();
    let (first, sent) = (Kept::default(), Mutex::new(vec![]));
    let post = |message| sent.lock().unwrap().push(message);
    let second = ForwardingSink::new(&post);
    let both = TwoProcesses { first: &first as &dyn LogitsSink, second: &second };
    run_forward(&setup, &*engine(&setup, 1), &TEXT, None, &both).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 2, "each rank has one of four sequences");
    sent.lock().unwrap().iter().for_each(|message| take_logits(message, &first).unwrap());
    assert!(*first.0.lock().unwrap() == *all.0.lock().unwrap());
}

#[test]
fn a_message_of_another_run_is_refused() {
    let small = proof_model(Style::Gpt2, 4, true);
    let large = ModelSpec { ffn_hidden: 2 * small.ffn_hidden, ..small.clone() };
    let messages = Mutex::new(vec![]);
    let post = |message| messages.lock().unwrap().push(message);
    let (own, param) =
        all_params(&small).zip(all_params(&large)).find(|(own, param)| own.shape != param.shape).unwrap();
    TensorSink::put(&ForwardingSink::new(&post), &param, &Region::whole(&param.shape), &vec![0.0; param.len()]);
    let (message, map) = (messages.into_inner().unwrap().remove(0), TensorMap::default());
    let refusal = |message: &[u8], model| GatheringSink::new(model, &map).take(message).unwrap_err().to_string();
    let remedy = "; start all processes with the same run file, options and program";
    let (name, shape) = (&param.name, own.shape);
    assert_eq!(refusal(&message, &small), format!("a process delivered a box of {name} outside {shape:?}{remedy}"));
    let expected = param.len();
    let short = &message[..message.len() - 8];
    let found = expected - 2;
    assert_eq!(
        refusal(short, &large),
        format!("a process delivered a box of {name} with {found} of {expected} elements{remedy}")
    );
    assert_eq!(refusal(&message[..3], &large), format!("a process delivered a message that ends early{remedy}"));
    assert!(map.into_tensors().is_empty());
}

#[test]
fn large_boxes_travel_in_several_messages() {
    let model = ModelSpec { vocabulary: 2100, hidden: 512, ..proof_model(Style::Gpt2, 4, true) };
    let param = all_params(&model).find(|param| param.shape == [2100, 512]).unwrap();
    let region = Region { start: vec![40, 0], extent: vec![2060, 512] };
    let values: Vec<f32> = (0..region.len()).map(|index| index as f32).collect();
    let messages = Mutex::new(vec![]);
    let post = |message| messages.lock().unwrap().push(message);
    TensorSink::put(&ForwardingSink::new(&post), &param, &region, &values);
    let messages = messages.into_inner().unwrap();
    assert_eq!(messages.len(), 2, "2,048 rows of 512 elements are a message");
    let (whole, forwarded) = (TensorMap::default(), TensorMap::default());
    whole.put(&param, &region, &values);
    messages.iter().try_for_each(|message| GatheringSink::new(&model, &forwarded).take(message)).unwrap();
    let [whole, forwarded] = [whole, forwarded].map(|map| map.into_tensors().remove(&param.name).unwrap());
    assert_eq!((forwarded.shape, forwarded.received), (whole.shape, whole.received));
    assert!(forwarded.values.iter().zip(&whole.values).all(|(one, other)| one.to_bits() == other.to_bits()));
}
