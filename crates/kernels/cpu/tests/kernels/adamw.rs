use cpu::adamw::AdamW;
use cpu::lanes::run;
use device::AdamWUpdate;

use crate::kernels::support::*;

const UPDATE: AdamWUpdate =
    AdamWUpdate { learning_rate: 0.01, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, update: 1 };

/// One update of one element in f64, from the formula.
fn reference(state: [f64; 3], gradient: f64, update: &AdamWUpdate) -> [f64; 3] {
    let [param, first, second] = state;
    let [rate, decay, beta1, beta2, epsilon] =
        [update.learning_rate, update.weight_decay, update.beta1, update.beta2, update.epsilon].map(f64::from);
    let first = beta1 * first + (1.0 - beta1) * gradient;
    let second = beta2 * second + (1.0 - beta2) * gradient * gradient;
    let step = f64::from(update.update);
    let mean = first / (1.0 - beta1.powf(step));
    let root = (second / (1.0 - beta2.powf(step))).sqrt();
    [param * (1.0 - rate * decay) - rate * mean / (root + epsilon), first, second]
}

#[test]
fn ten_updates_stay_within_their_bound() {
    for len in [1, 16, 83] {
        let start = random("param", len, 1.0);
        let coefficient = 0.5;
        let gradients: Vec<Vec<f32>> = (0..10).map(|step| random(&format!("gradient {step}"), len, 3.0)).collect();
        let actual = same_on_all_sets(|set| {
            let (mut param, mut first, mut second) = (start.clone(), vec![0.0; len], vec![0.0; len]);
            for (step, grad) in gradients.iter().enumerate() {
                let update = AdamWUpdate { update: step as u32 + 1, ..UPDATE };
                let (param, first_moment, second_moment) = (&mut param[..], &mut first[..], &mut second[..]);
                run(
                    set,
                    AdamW { param, copy: None::<&mut [f32]>, grad, first_moment, second_moment, coefficient, update },
                );
            }
            param
        });
        let exact: Vec<f64> = (0..len)
            .map(|i| {
                let mut state = [f64::from(start[i]), 0.0, 0.0];
                for (step, gradient) in gradients.iter().enumerate() {
                    let update = AdamWUpdate { update: step as u32 + 1, ..UPDATE };
                    state = reference(state, f64::from(gradient[i] * coefficient), &update);
                }
                state[0]
            })
            .collect();
        // Per update: 2 roundings of the parameter (at most 1.2), and of a step of the rate times at most sqrt(10),
        // whose two moments are each off by 3 roundings per update so far.
        let bound = 10.0 * (2.0 * 1.2 + 0.01 * 10f64.sqrt() * (6.0 * 10.0 + 5.0)) * ROUNDING;
        assert_within("param", &actual, &exact, |_| bound);
    }
}

/// The first update without decay moves every parameter by the learning rate against its gradient's sign.
#[test]
fn the_first_update_is_the_sign_of_the_gradient() {
    let (mut param, mut first, mut second) = ([1.0; 3], [0.0; 3], [0.0; 3]);
    let update = AdamWUpdate { weight_decay: 0.0, ..UPDATE };
    let arguments = AdamW {
        param: &mut param,
        copy: None::<&mut [f32]>,
        grad: &[2.0, -0.01, 0.0],
        first_moment: &mut first,
        second_moment: &mut second,
        coefficient: 1.0,
        update,
    };
    run(cpu::instruction_set::InstructionSet::detect(), arguments);
    assert_within("param", &param, &[0.99, 1.01, 1.0], |_| 1e-7);
}
