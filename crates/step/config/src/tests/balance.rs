//! Keys of the balance of experts: what they mean, and what is refused.

use config::{Balance, LoadSet, RouterBias, RunConfig, Statistics};

const EXPERTS: [&str; 2] = ["model.experts=8", "model.biases=false"];

fn load(file: &str, sets: &[&str]) -> Result<RunConfig, String> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    RunConfig::load("run.toml", file, &sets)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn balance(sets: &[&str]) -> Balance {
    let config = load("", &[&EXPERTS[..], sets].concat()).expect("legal");
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config, "a written run is read again");
    config.model.experts.expect("experts").balance
}

#[test]
fn nothing_but_statistics_is_the_default() {
    assert_eq!(balance(&[]), Balance::NONE);
    assert_eq!(balance(&["model.router_balance_loss=0", "model.router_z_loss=0"]), Balance::NONE);
}

#[test]
fn keys_are_read_and_survive_writing() {
    let losses = ["model.router_balance_loss=0.01", "model.router_z_loss=1e-3", "model.router_statistics=false"];
    let expected = Balance { loss: Some(0.01), z_loss: Some(1e-3), statistics: Statistics::Off, ..Balance::NONE };
    assert_eq!(balance(&losses), expected);
    let of_step = ["model.router_balance_loss=0.01", "model.router_balance_over=step"];
    assert_eq!(balance(&of_step), Balance { loss: Some(0.01), over: LoadSet::Step, ..Balance::NONE });
    let bias = |rate| Balance { bias: Some(RouterBias { rate }), ..Balance::NONE };
    assert_eq!(balance(&["model.router_bias=true"]), bias(1e-3));
    assert_eq!(balance(&["model.router_bias=true", "model.router_bias_rate=0"]), bias(0.0));
}

#[test]
fn values_without_a_meaning_are_refused_by_name() {
    let of_experts = |sets: &[&str]| load("", &[&EXPERTS[..], sets].concat()).err().unwrap_or_default();
    let broken = [
        of_experts(&["model.router_balance_loss=2"]),
        of_experts(&["model.router_balance_over=step"]),
        of_experts(&["model.router_balance_loss=0.1", "model.router_balance_over=microbatch"]),
        of_experts(&["model.router_bias_rate=0.1"]),
        of_experts(&["model.router_bias=true", "model.router_bias_rate=-1"]),
        load("", &["model.router_z_loss=0.1"]).err().unwrap_or_default(),
        of_experts(&[
            "model.router_z_loss=0.1",
            "model.router_bias=true",
            "model.lora={ rank = 4, alpha = 4.0, targets = [\"query\"] }",
        ]),
        load("", &["router_aux_loss_coef=0.1"]).err().unwrap_or_default(),
        load("", &["moe_aux_loss_coeff=0.1"]).err().unwrap_or_default(),
    ];
    let expected = [
        "--set model.router_balance_loss=2: model.router_balance_loss = 2.0 must be the coefficient of a loss; use 0 to \
         1, such as 1e-2",
        "--set model.router_balance_over=step: model.router_balance_over has no effect without \
         model.router_balance_loss; give both, or leave it out",
        "--set model.router_balance_over=microbatch: model.router_balance_over = \"microbatch\" is not \"sequence\" or \
         \"step\"",
        "--set model.router_bias_rate=0.1: model.router_bias_rate has no effect without model.router_bias = true; give \
         both, or leave it out",
        "--set model.router_bias_rate=-1: model.router_bias_rate = -1.0 must be a step of choice scores; use 0 or more, \
         such as 1e-3",
        "--set model.router_z_loss=0.1: model.router_z_loss has no effect without model.experts; give both, or leave it \
         out",
        "--set model.router_z_loss=0.1: model.router_z_loss = 0.1 is of routers, which model.lora does not train; use 0\n\
         model.router_bias_rate = 0.001 is of routers, which model.lora does not train; use 0",
        "--set router_aux_loss_coef=0.1: `router_aux_loss_coef` is a loss of routers, for which systems have different \
         formulas; use model.router_balance_loss",
        "--set moe_aux_loss_coeff=0.1: `moe_aux_loss_coeff` is `model.router_balance_loss` here",
    ];
    for (broken, expected) in broken.iter().zip(expected) {
        assert_eq!(broken, expected);
    }
}

/// Routers are balanced and counted on GPUs as on CPUs.
#[test]
fn gpus_have_losses_of_routers_and_statistics() {
    let balanced = ["model.router_balance_loss=0.1", "model.router_z_loss=0.1", "model.router_bias=true"];
    let [cpu, cuda] = ["cpu", "cuda"].map(|device| {
        let device = format!("run.device={device}");
        let sets = [&EXPERTS[..], &balanced, &["model.expert_capacity=1.25", &device]].concat();
        load("", &sets).expect("legal").model
    });
    assert_eq!(cpu, cuda);
    assert!(cuda.experts.is_some_and(|experts| experts.balance.counts_choices()));
}
