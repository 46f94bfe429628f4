//! Each rule refuses a program that breaks it, by name, and where the rules are independent, no other rule does.

use crate::{
    ContributionOrder, Demands, Instr, Partner, Program, Purpose, Rule, Schedule, StageSplit, Violation, link, verify,
};
use config::{Microbatch, Overlap, Recompute, ScheduleKind, Unit};

use crate::tests::setup::Setup;

const MB0: Microbatch = Microbatch(0);
const MB1: Microbatch = Microbatch(1);

fn violations(programs: Vec<Program>, setup: &Setup) -> Vec<Violation> {
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
    link(programs).and_then(|graph| verify(graph, &setup.sizes(), demands)).err().unwrap_or_default()
}

/// The rules that are broken, each once, and the first message.
fn broken(programs: Vec<Program>, setup: &Setup) -> (Vec<Rule>, String) {
    let violations = violations(programs, setup);
    let mut rules: Vec<Rule> = violations.iter().map(|violation| violation.rule).collect();
    rules.sort();
    rules.dedup();
    (rules, violations.first().map(ToString::to_string).unwrap_or_default())
}

fn at(program: &Program, instr: Instr) -> usize {
    program.instrs.iter().position(|other| *other == instr).unwrap_or_else(|| panic!("no `{instr}`"))
}

/// The reduction of the gradients of `unit` that `by` makes.
fn reduction(program: &Program, unit: Unit, by: Unit) -> Instr {
    let is_it =
        |instr: &&Instr| matches!(instr, Instr::ReduceGrads { unit: of, by: maker, .. } if (*of, *maker) == (unit, by));
    *program.instrs.iter().find(is_it).unwrap()
}

fn drop(program: &mut Program, instr: Instr) {
    let at = at(program, instr);
    program.instrs.remove(at);
}

/// Moves `instr` directly before `other`.
fn put_before(program: &mut Program, instr: Instr, other: Instr) {
    drop(program, instr);
    let at = at(program, other);
    program.instrs.insert(at, instr);
}

fn swap(program: &mut Program, first: Instr, second: Instr) {
    let (first, second) = (at(program, first), at(program, second));
    program.instrs.swap(first, second);
}

#[test]
fn intact_programs_break_no_rule() {
    let setup = Setup::default();
    assert_eq!(violations(setup.programs(), &setup), []);
}

#[test]
fn work_misses_a_backward_of_the_head() {
    // The head's backward parts change no value, so no other rule can notice.
    let setup = Setup::default();
    let mut programs = setup.programs();
    drop(&mut programs[1], Instr::BackwardWeight { unit: Unit::Head, microbatch: MB0 });
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Work]);
    assert_eq!(
        message,
        "work: pipeline rank 1: BackwardWeight of head, microbatch 0 is there 0 times, it should be 1 times"
    );
}

#[test]
fn work_and_values_miss_a_forward() {
    let setup = Setup::default();
    let mut programs = setup.programs();
    drop(&mut programs[0], Instr::Forward { unit: Unit::Layer(1), microbatch: MB1 });
    assert_eq!(broken(programs, &setup).0, [Rule::Work, Rule::Values]);
}

#[test]
fn values_are_not_read_before_they_are_written() {
    let setup = Setup::default();
    let mut programs = setup.programs();
    let (unit, microbatch) = (Unit::Layer(0), MB0);
    swap(&mut programs[0], Instr::BackwardInput { unit, microbatch }, Instr::BackwardWeight { unit, microbatch });
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Values]);
    assert!(message.contains("needs the pending of layer 0, microbatch 0, which was never written"), "{message}");
}

#[test]
fn values_are_not_read_after_they_are_freed() {
    // The activations of a recomputing forward pass are freed before the backward pass.
    let setup = Setup { recompute: Recompute::FULL, ..Setup::default() };
    let mut programs = setup.programs();
    let (unit, microbatch) = (Unit::Layer(0), MB0);
    put_before(&mut programs[0], Instr::BackwardInput { unit, microbatch }, Instr::Recompute { unit, microbatch });
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Values]);
    assert!(message.contains("needs the saved until input of layer 0, microbatch 0, which is gone"), "{message}");
}

#[test]
fn pairs_come_in_one_order() {
    let setup = Setup { kind: ScheduleKind::GPipe, ..Setup::default() };
    let mut programs = setup.programs();
    let send = |microbatch| Instr::SendAct { unit: Unit::Layer(1), microbatch };
    put_before(&mut programs[0], send(MB0), send(MB1));
    swap(&mut programs[0], send(MB0), send(MB1));
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Pairs]);
    assert!(message.contains("transfer 0: "), "{message}");
}

#[test]
fn pairs_have_both_ends() {
    let setup = Setup::default();
    let mut programs = setup.programs();
    let last = Microbatch(setup.num_microbatches as u32 - 1);
    drop(&mut programs[1], Instr::SendGrad { unit: Unit::Layer(1), microbatch: last });
    let (rules, message) = broken(programs, &setup);
    // The gradient that is not lent to the receiver is left over.
    assert_eq!(rules, [Rule::Values, Rule::Pairs]);
    assert!(message.contains("3 sends, 4 receives; the output gradient of layer 1, microbatch 3"), "{message}");
}

#[test]
fn collectives_are_called_by_all_members() {
    let setup = Setup { pp: 3, ..Setup::default() };
    let mut programs = setup.programs();
    drop(&mut programs[1], Instr::GradNorm);
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Collectives, Rule::Gradients]);
    assert!(message.contains("rank 0 calls `gradient norm`"), "{message}");

    let mut programs = setup.programs();
    programs[1].instrs.push(Instr::SumTied);
    assert_eq!(
        programs[1].instrs.last().unwrap().effects(&programs[1].view).partner,
        Partner::Ends { embedding: 0, head: 2 }
    );
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Values, Rule::Collectives, Rule::Gradients]);
    assert!(message.contains("pipeline rank 1 calls the group of pipeline ranks [0, 2]"), "{message}");
}

#[test]
fn progress_names_the_cycle() {
    // Rank 1 wants the second activation before it gives the first gradient, for which rank 0 waits.
    let setup = Setup { num_microbatches: 2, ..Setup::default() };
    let text = "0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1";
    let mut programs = setup.compile_schedule(&text.parse::<Schedule>().unwrap());
    let unit = Unit::Layer(1);
    put_before(&mut programs[1], Instr::RecvAct { unit, microbatch: MB1 }, Instr::SendGrad { unit, microbatch: MB0 });
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Progress]);
    assert_eq!(
        message,
        "progress: pipeline rank 0 waits at instruction 5, `receive gradient of layer 1, microbatch 0`, for pipeline \
         rank 1; pipeline rank 1 waits at instruction 11, `receive output of layer 1, microbatch 1`, for pipeline rank 0"
    );
}

#[test]
fn gradients_are_reduced_once_after_their_last_write() {
    let setup = Setup::default();
    let (unit, by) = (Unit::Layer(1), Unit::Layer(1));
    let reduce = reduction(&setup.programs()[0], unit, by);
    type Mutation<'a> = (&'a str, &'a dyn Fn(&mut Vec<Program>));
    let mutations: [Mutation; 7] = [
        ("is missing", &|programs| drop(&mut programs[0], reduce)),
        ("is there 2 times", &|programs| {
            let at = at(&programs[0], reduce);
            programs[0].instrs.insert(at, reduce);
        }),
        ("comes before the last contribution", &|programs| {
            put_before(&mut programs[0], reduce, Instr::BackwardWeight { unit, microbatch: MB1 });
        }),
        ("`sum gradients of the tied table` is missing", &|programs| {
            drop(&mut programs[0], Instr::SumTied);
            drop(&mut programs[1], Instr::SumTied);
        }),
        ("comes before the norm", &|programs| {
            put_before(&mut programs[0], Instr::OptimizerStep { unit }, Instr::GradNorm);
        }),
        ("`gather parameters of layer 1` is missing", &|programs| {
            drop(&mut programs[0], Instr::GatherParams { unit });
        }),
        ("`optimizer step of layer 1` is missing", &|programs| drop(&mut programs[0], Instr::OptimizerStep { unit })),
    ];
    for (expected, mutate) in mutations {
        let mut programs = setup.programs();
        mutate(&mut programs);
        let violations = violations(programs, &setup);
        assert!(violations.iter().all(|violation| violation.rule == Rule::Gradients), "{expected}: {violations:#?}");
        assert!(violations.iter().any(|violation| violation.message.contains(expected)), "{expected}: {violations:#?}");
    }
}

#[test]
fn provenance_counts_each_microbatch_once() {
    let setup = Setup::default();
    let mut programs = setup.programs();
    let unit = Unit::Head;
    let first = at(&programs[1], Instr::Forward { unit, microbatch: MB0 });
    programs[1].instrs[first] = Instr::Forward { unit, microbatch: MB1 };
    let violations = violations(programs, &setup);
    let found: Vec<String> =
        violations.iter().filter(|v| v.rule == Rule::Provenance).map(ToString::to_string).collect();
    let message = |microbatch, times, gradients| {
        format!(
            "provenance: pipeline rank 1: microbatch {microbatch} contributes {times} times to the gradients of \
             {gradients}, it should once"
        )
    };
    let expected = ["table made by head", "head"].map(|name| [message(0, 0, name), message(1, 2, name)]).concat();
    assert_eq!(found, expected);
}

#[test]
fn layers_have_one_owner_on_whom_all_agree() {
    // Rank 0 has nothing to do with the layers of ranks 1 and 2, so no other rule notices that it is mistaken.
    let setup = Setup { pp: 3, num_layers: 6, ..Setup::default() };
    let mut programs = setup.programs();
    let of_layer_3 = 1 + 3;
    assert_eq!(programs[0].view.owners, [0, 0, 0, 1, 1, 2, 2, 2]);
    programs[0].view.owners[of_layer_3] = 2;
    let (rules, message) = broken(programs, &setup);
    assert_eq!(rules, [Rule::Layers]);
    assert_eq!(message, "layers: layer 3 belongs to pipeline rank 1, but rank 0 disagrees");
}

#[test]
fn order_is_ascending_unless_waived() {
    let setup = Setup { pp: 1, num_microbatches: 2, ..Setup::default() };
    let schedule: Schedule = "0F0 0F1 0B1 0B0".parse().unwrap();
    let programs = setup.compile_schedule(&schedule);
    let (rules, message) = broken(programs.clone(), &setup);
    assert_eq!(rules, [Rule::Order]);
    assert!(message.contains("adds microbatch 0 to the gradients of"), "{message}");
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Any, overlap: Overlap::Off };
    verify(link(programs).unwrap(), &setup.sizes(), demands).unwrap();
}

#[test]
fn memory_fits() {
    let setup = Setup::default();
    let verified = |capacity_bytes| {
        let demands = Demands { capacity_bytes, order: ContributionOrder::Ascending, overlap: Overlap::Off };
        verify(setup.graph(), &setup.sizes(), demands)
    };
    let needed = verified(None).unwrap().plan().ranks[0].arena_bytes();
    assert!(verified(Some(needed)).is_ok());
    let violations = verified(Some(needed - 1)).unwrap_err();
    assert_eq!(violations[0].rule, Rule::Memory);
    assert!(violations[0].message.contains(&format!("needs {needed} bytes (parameters ")), "{}", violations[0]);
    assert!(violations[0].message.contains("ZeRO, more tensor parallelism or more stages"), "{}", violations[0]);
}

#[test]
fn an_evaluation_sums_its_losses_at_its_end() {
    let setup = Setup { purpose: Purpose::Evaluate, ..Setup::default() };
    let mut programs = setup.programs();
    for program in &mut programs {
        drop(program, Instr::GradNorm);
    }
    assert_eq!(broken(programs, &setup).0, [Rule::Gradients]);
}

#[test]
fn inputs_that_do_not_fit_together_are_refused_by_compile() {
    let setup = Setup::default();
    let compile = |schedule: &str, layers: &[usize], num_microbatches| {
        let stages = StageSplit::given(layers, layers.iter().sum(), layers.len()).unwrap();
        let input = crate::CompileInput {
            model: &setup.model(),
            parallelism: &setup.parallelism(),
            stages: &stages,
            schedule: &schedule.parse().unwrap(),
            masters: config::Masters::Parameters,
            averages: config::Averages::Off,
            offload: config::Offload::None,
            sums: config::GradientSums::Single,
            purpose: Purpose::Train,
            num_microbatches,
        };
        crate::compile(&input).unwrap_err().to_string()
    };
    assert_eq!(
        compile("0F0 0B0", &[4], 1),
        "the schedule has 1 ranks, the pipeline has 2; make a schedule for 2 ranks or set pp = 1"
    );
    assert_eq!(
        compile("0F0 0B0\n1F0 1B0", &[1, 1, 2], 1),
        "the schedule has 2 stages, the layers are split into 3; split them into 2"
    );
    assert_eq!(
        compile("0F0 0B0\n1F0 1B0", &[1, 2], 1),
        "the stages have 3 layers together, the model has 4; split 4 layers"
    );
    assert_eq!(
        compile("0F0 0B0\n1F0 1B1", &[2, 2], 1),
        "cell 1B1 is outside 2 stages and 1 microbatches; correct the schedule"
    );
}
