//! Every axis of every reduction of a compiled program: none can be left out or added without a violation that names
//! it.

use crate::{
    CompileInput, ContributionOrder, Demands, GradientAxes, Instr, Program, Purpose, Rule, Schedule, Sizes, StageCosts,
    State, Violation, compile, link, split_stages, verify,
};
use config::{
    Activation, Biases, Degrees, Format, GradientReduction, GradientSums, Masters, ModelSpec, Norm, NormKind, Overlap,
    Parallelism, ScheduleKind, SequenceParallel, TopQuery, Unit, ZeroStage,
};
use mesh::{Axis, AxisSet};

use crate::tests::setup::{Setup, ZERO_3, footprints, work};

const NUM_MICROBATCHES: usize = 2;

struct Case {
    name: String,
    model: ModelSpec,
    parallelism: Parallelism,
}

/// Tied or not, with norms of heads or without, with a top query or without.
fn models() -> Vec<(&'static str, ModelSpec)> {
    let setup = Setup { num_layers: 2, ..Setup::default() };
    let gpt = ModelSpec { qk_norm: config::QkNorm::Off, embedding_norm: true, ..setup.model() };
    let llama = ModelSpec {
        norm: Norm { kind: NormKind::Rms, epsilon: 1e-5 },
        activation: Activation::SwiGlu,
        biases: Biases::Off,
        qk_norm: config::QkNorm::Off,
        ..Setup { learned_positions: false, tied: false, ..setup.clone() }.model()
    };
    let per_head_norms = ModelSpec { qk_norm: config::QkNorm::Heads, ..llama.clone() };
    let top_query = Setup { top_query: TopQuery::On, ..setup }.model();
    vec![("gpt", gpt), ("llama", llama), ("llama with norms of heads", per_head_norms), ("top query", top_query)]
}

fn cases() -> Vec<Case> {
    let step = GradientReduction::Step;
    let zeros = [
        ZeroStage::Off,
        ZeroStage::One,
        ZeroStage::Two { reduce: step },
        ZeroStage::Two { reduce: GradientReduction::Microbatch },
        ZERO_3,
    ];
    let mut cases = vec![];
    for (style, model) in models() {
        for sequence_parallel in [SequenceParallel::Off, SequenceParallel::On] {
            for (zero, shard_group) in zeros.into_iter().flat_map(|zero| [(zero, None), (zero, Some(2))]) {
                let parallelism =
                    Parallelism { sequence_parallel, zero, shard_group, ..Setup::default().parallelism() };
                let degrees = Degrees { dp: 4, ..parallelism.degrees };
                let parallelism = Parallelism { degrees, ..parallelism };
                let name = format!("{style}, {sequence_parallel:?}, {zero:?}, groups of {shard_group:?}");
                cases.push(Case { name, model: model.clone(), parallelism });
            }
        }
    }
    cases
}

impl Case {
    fn programs(&self) -> Vec<Program> {
        let kind = ScheduleKind::OneForwardOneBackward;
        compile(&CompileInput {
            model: &self.model,
            parallelism: &self.parallelism,
            stages: &split_stages(self.model.num_layers, self.parallelism.degrees.pp, &work()).unwrap(),
            schedule: &Schedule::generate(kind, self.parallelism.degrees.pp, NUM_MICROBATCHES, &StageCosts::EVEN),
            masters: Masters::Parameters,
            averages: config::Averages::Off,
            offload: config::Offload::None,
            sums: GradientSums::Single,
            purpose: Purpose::Train,
            num_microbatches: NUM_MICROBATCHES,
        })
        .unwrap()
    }

    fn violations(&self, programs: Vec<Program>) -> Vec<Violation> {
        let sizes = Sizes::new(
            &self.model,
            &self.parallelism,
            footprints(),
            Format::Fp32,
            GradientSums::Single,
            State::Training,
        );
        let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
        link(programs).and_then(|graph| verify(graph, &sizes, demands)).err().unwrap_or_default()
    }

    /// Toggles `axis` of one parameter of one reduction; returns what the message must name.
    fn toggled(&self, programs: &mut [Program], at: (usize, usize), parameter: usize, axis: Axis) -> [String; 3] {
        let (rank, index) = at;
        let Instr::ReduceGrads { unit, by, axes } = programs[rank].instrs[index] else { panic!("no reduction") };
        let right = axes.as_slice()[parameter];
        let wrong = if right.contains(axis) { right.without(axis) } else { right.with(axis) };
        let changed = axes.as_slice().iter().enumerate();
        let axes = GradientAxes::new(changed.map(|(index, axes)| if index == parameter { wrong } else { *axes }));
        programs[rank].instrs[index] = Instr::ReduceGrads { unit, by, axes };
        let name = config::params(&self.model, unit).swap_remove(parameter).name;
        let name =
            name.split_once("layers.").map_or(name.as_str(), |(_, of_layer)| of_layer.split_once('.').unwrap().1);
        [name.into(), format!("of {unit} over {right}"), format!("got {wrong}")]
    }
}

/// The reductions of `programs`, with the number of their parameters.
fn reductions(programs: &[Program]) -> Vec<((usize, usize), usize)> {
    let mut found = vec![];
    for (rank, program) in programs.iter().enumerate() {
        for (index, instr) in program.instrs.iter().enumerate() {
            if let Instr::ReduceGrads { axes, .. } = instr {
                found.push(((rank, index), axes.as_slice().len()));
            }
        }
    }
    found
}

#[test]
fn every_axis_that_is_left_out_or_added_is_found() {
    let mut toggles = 0;
    for case in cases() {
        let programs = case.programs();
        assert_eq!(case.violations(programs.clone()), [], "{}", case.name);
        for (at, parameters) in reductions(&programs) {
            for (parameter, axis) in (0..parameters).flat_map(|index| Axis::ALL.map(|axis| (index, axis))) {
                let mut faulty = programs.clone();
                let parts = case.toggled(&mut faulty, at, parameter, axis);
                let violations = case.violations(faulty);
                let [violation] = violations.as_slice() else { panic!("{}: {parts:?}: {violations:#?}", case.name) };
                assert_eq!(violation.rule, Rule::Gradients, "{}", case.name);
                let named = parts.iter().all(|part| violation.message.contains(part));
                assert!(named, "{}: {parts:?} in {}", case.name, violation.message);
                toggles += 1;
            }
        }
    }
    assert!(toggles > 20_000, "{toggles}");
}

#[test]
fn a_missing_tensor_axis_is_named() {
    let (_, gpt) = models().swap_remove(0);
    let sequence_parallel = SequenceParallel::On;
    let case = Case {
        name: String::new(),
        model: gpt,
        parallelism: Parallelism { sequence_parallel, ..Setup::default().parallelism() },
    };
    let mut programs = case.programs();
    let is_of_layer = |instr: &Instr| matches!(instr, Instr::ReduceGrads { unit: Unit::Layer(1), .. });
    let index = programs[1].instrs.iter().position(is_of_layer).unwrap();
    let name = "layers.1.ffn_norm.weight";
    let parameter = config::params(&case.model, Unit::Layer(1)).iter().position(|param| param.name == name).unwrap();
    case.toggled(&mut programs, (1, index), parameter, Axis::Tp);
    assert_eq!(
        case.violations(programs)[0].to_string(),
        format!(
            "gradients: pipeline rank 1: `reduce gradients of layer 1` (instruction {index}) must sum the gradient of \
             ffn_norm.weight of layer 1 over dp_outer+dp_inner+cp+tp; got dp_outer+dp_inner+cp"
        )
    );
}

#[test]
fn every_parameter_of_a_unit_has_axes() {
    let case = cases().swap_remove(0);
    let mut programs = case.programs();
    let (rank, index) = reductions(&programs)[0].0;
    let Instr::ReduceGrads { unit, by, axes } = programs[rank].instrs[index] else { panic!("no reduction") };
    let fewer = GradientAxes::new(axes.as_slice().iter().skip(1).copied());
    programs[rank].instrs[index] = Instr::ReduceGrads { unit, by, axes: fewer };
    let violations = case.violations(programs);
    let expected = format!(
        "must have axes for each of {0} parameters of {unit}; got {1}",
        axes.as_slice().len(),
        axes.as_slice().len() - 1
    );
    assert!(violations[0].message.ends_with(&expected), "{violations:?}");
}

#[test]
fn axes_are_printed_where_parameters_differ() {
    let data = AxisSet::DATA;
    let both = GradientAxes::new([data, data.with(Axis::Tp), data]);
    assert_eq!(both.to_string(), "over dp_outer+dp_inner, 1 of 3 parameters also over tp");
    assert_eq!((both.union(), both.common()), (data.with(Axis::Tp), data));
    assert_eq!(GradientAxes::new([data]).to_string(), "over dp_outer+dp_inner");
}
