//! Words of tables: what they mean, and that one that is unknown costs its row alone.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{AttentionKernels, Cluster, Software, named};
use config::{Activation, Gathering, Reshard, ScheduleKind, ZeroStage};
use plan::{MeasuredRun, PreparedRun, Row, Table, TableError, better_trainers};

const HEADER: &str =
    "layers,hidden,heads,tp,pp,vpp,gpus,global_batch,zero,schedule,activation,flash_attn,seq_parallel\n";

fn run(cells: &str) -> Result<MeasuredRun, TableError> {
    MeasuredRun::new(&Table::read("runs", &format!("{HEADER}{cells}\n")).unwrap().rows[0])
}

fn software(name: &str) -> Software {
    Software::from_toml(Software::named(name).unwrap()).unwrap()
}

#[test]
fn schedules_and_activations_have_columns() {
    let schedule = |cells: &str| run(cells).unwrap().parallelism.schedule;
    for (word, kind) in [
        ("", ScheduleKind::OneForwardOneBackward),
        ("none", ScheduleKind::OneForwardOneBackward),
        ("AFAB", ScheduleKind::GPipe),
        ("ZB-H1", ScheduleKind::ZeroBubbleH1),
        ("zbv", ScheduleKind::ZeroBubbleV),
        ("ZB-2p", ScheduleKind::ZeroBubbleAuto { memory_percent: 200 }),
    ] {
        assert_eq!(schedule(&format!("8,64,2,1,2,,4,8,,{word},,,")), kind.into(), "{word}");
    }
    assert_eq!(
        schedule("8,64,2,1,2,2,4,8,,1f1b_interleaved,,,"),
        ScheduleKind::Interleaved { stages_per_rank: 2 }.into()
    );
    for (word, activation) in [
        ("", Activation::GeluTanh),
        ("relu", Activation::Relu),
        ("SwiGLU", Activation::SwiGlu),
        ("geglu", Activation::GeGlu),
    ] {
        assert_eq!(run(&format!("8,64,2,1,2,,4,8,,,{word},,")).unwrap().model.activation, activation, "{word}");
    }
}

#[test]
fn kernels_of_attention_have_the_words_of_tables() {
    let attention = |word: &str| run(&format!("8,64,2,1,2,,4,8,,,,{word},")).unwrap().attention;
    for word in ["yes", "True", "2", "flash_attn_2", "FA3", "sdpa", "te"] {
        assert_eq!(attention(word), Some(AttentionKernels::Fused), "{word}");
    }
    for word in ["no", "False", "eager"] {
        assert_eq!(attention(word), Some(AttentionKernels::Unfused), "{word}");
    }
    assert_eq!(attention(""), None);
}

/// Pleach has no words for such a row; the table is read.
#[test]
fn an_unknown_word_costs_its_row_alone() {
    for (cells, column) in [
        ("8,64,2,1,2,,4,8,4,,,,", "zero"),
        ("8,64,2,1,2,,4,8,,dualpipe,,,", "schedule"),
        ("8,64,2,1,2,,4,8,,,mish,,", "activation"),
        ("8,64,2,1,2,,4,8,,,,mega,", "flash_attn"),
        ("8,64,2,1,2,,4,8,,,,,perhaps", "seq_parallel"),
    ] {
        let error = run(cells).unwrap_err();
        assert_eq!(Row::column_beyond(&error), Some(column), "{error}");
    }
    assert_eq!(
        Row::column_beyond(&run("8,64,0,1,2,,4,8,,,,,").unwrap_err()),
        None,
        "a wrong number is an error of the table"
    );
}

/// A column with a wrong name would leave its default to every row.
#[test]
fn a_column_that_is_nearly_one_that_is_read_is_refused() {
    let columns = |header: &str| {
        let table = Table::read("runs.csv", &format!("layers,hidden,heads,tp,pp,global_batch,{header}\n")).unwrap();
        table.check_columns("runs.csv").map(|unread| unread.join(" ")).map_err(|error| error.to_string())
    };
    assert_eq!(columns("iter_s,mfu,tokens_per_s"), Ok("mfu tokens_per_s".into()), "neither is near");
    assert_eq!(
        columns("micro_batch_size,recomputation,mfu,iter_s"),
        Err("runs.csv has columns that are not read: `micro_batch_size` (`micro_batch` is read), `recomputation` \
             (`recompute` is read); rename them, or leave them out"
            .into())
    );
    assert_eq!(
        columns("micro_batch,micro_batch_size,iter_s"),
        Ok("micro_batch_size".into()),
        "the column that is read is there"
    );
    for (column, read) in [
        ("Zero", "zero"),
        ("vocab_size", "vocab"),
        ("sequence_length", "seq"),
        ("dtype", "precision"),
        ("flash-attn", "flash_attn"),
    ] {
        let error = columns(&format!("iter_s,{column}")).unwrap_err();
        assert!(error.contains(&format!("`{column}` (`{read}` is read)")), "{error}");
    }
}

/// Such a row is a slip or another kind of run; its time would count among the errors.
#[test]
fn runs_that_no_trainer_has_are_left_out() {
    let header = "layers,hidden,heads,kv_heads,tp,pp,gpus,global_batch,ffn,status,iter_s";
    let run = |cells: &str| {
        let table = Table::read("runs", &format!("{header}\n{cells}\n")).unwrap();
        MeasuredRun::new(&table.rows[0]).map(|run| run.fits)
    };
    for (cells, column, reason) in [
        ("4,7168,112,,5,1,5,8,35840,ok,1", "tp", "line 2: tp = `5` is not a divisor of heads = 112"),
        ("4,512,8,2,4,1,4,8,,ok,1", "tp", "line 2: tp = `4` is not a divisor of kv_heads = 2"),
        ("4,512,8,,8,1,8,8,1372,ok,1", "tp", "line 2: tp = `8` is not a divisor of ffn = 1372"),
        ("4,512,4,3,1,1,1,8,,ok,1", "kv_heads", "line 2: kv_heads = `3` is not a divisor of heads = 4"),
        ("4,512,8,,1,1,1,8,,weird,1", "status", "line 2: status = `weird` is neither ok nor oom"),
    ] {
        let error = run(cells).unwrap_err();
        assert_eq!((Row::column_beyond(&error), error.to_string().as_str()), (Some(column), reason));
    }
    for (status, fits) in [("ok", Some(true)), ("OOM", Some(false)), ("out_of_memory", Some(false)), ("", Some(true))] {
        assert_eq!(run(&format!("4,512,8,,1,1,1,8,,{status},1")), Ok(fits), "{status}");
    }
}

/// FSDP's stage 2 shards parameters, too, and gathers them once for both passes.
#[test]
fn the_second_stage_is_that_of_the_trainer() {
    let run = run("8,64,2,1,1,,4,8,2,,,,").unwrap();
    let zero = |name: &str| run.trained_parallelism(Some(&software(name))).zero;
    assert!(matches!(zero("deepspeed-2025"), ZeroStage::Two { .. }));
    let until_backward = Reshard::AfterBackward;
    for name in ["fsdp1-2023", "torchtitan-2024", "llm-foundry-2024"] {
        assert!(
            matches!(zero(name), ZeroStage::Three { gathering: Gathering { reshard, .. }, .. } if reshard == until_backward),
            "{name}"
        );
    }
}

/// The kernels of pleach have a largest width of heads, predictions have none.
#[test]
fn heads_may_be_wider_than_kernels_of_pleach_allow() {
    let run = run("4,4096,4,1,1,,1,4,,,,yes,").unwrap();
    assert_eq!(run.model.head_dim, 1024);
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let seconds = PreparedRun::new(run, Some(&software("megatron-core-2024"))).unwrap().step_s(&cluster).unwrap();
    assert!(seconds > 0.0);
}

/// Rows whose seconds are those of one trainer, predicted for another.
#[test]
fn a_trainer_that_fits_better_is_named_with_its_error() {
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let right = software("deepspeed-bf16-2022");
    let rows = ["4,2048,16,1,1,,8,64,1,,,no,", "4,2048,16,2,1,,8,64,1,,,no,", "8,2048,16,2,2,,8,64,1,,,no,"];
    let runs: Vec<MeasuredRun> = rows
        .iter()
        .map(|cells| {
            let run = run(cells).unwrap();
            let seconds = PreparedRun::new(run.clone(), Some(&right)).unwrap().step_s(&cluster).unwrap();
            MeasuredRun { step_s: Some(seconds), ..run }
        })
        .collect();
    let runs: Vec<&MeasuredRun> = runs.iter().collect();
    assert_eq!(better_trainers(&cluster, &runs, Some(&right)).unwrap(), None, "no other is closer than exact");
    let found = better_trainers(&cluster, &runs, Some(&software("megatron-core-2025"))).unwrap().unwrap();
    assert_eq!((found.rows, found.better[0]), (3, ("deepspeed-bf16-2022", 0.0)));
    assert!(found.chosen_mean > 0.02, "{found:?}");
}
