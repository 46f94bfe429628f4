//! Scratch: distances of a few layouts.
use prove::models::*;
use prove::*;
fn main() {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let mut train = proof_training();
    train.steps = 20;
    for style in [Style::Gpt2, Style::Llama] {
        let model = proof_model(style, 12, true);
        let text = ProofText { vocabulary: model.vocabulary, seed: 1, labels: Labels::Every };
        let one = Layout { model: model.clone(), parallelism: plain_layout(1, 1, 1, 2), train: train.clone() };
        let t = std::time::Instant::now();
        let a = one.outcome(&text).unwrap();
        println!("{:?} {:?}", t.elapsed(), a.losses);
        for (dp, tp, pp) in
            [(1, 1, 2), (1, 1, 4), (2, 1, 1), (1, 2, 1), (2, 2, 2), (1, 4, 1), (16, 1, 1), (args[0], args[1], args[2])]
        {
            let mut l = one.clone();
            l.parallelism = plain_layout(dp, tp, pp, 2);
            if dp > 1 {
                l.parallelism.zero = spec::ZeroStage::One;
            }
            let t = std::time::Instant::now();
            let b = l.outcome(&text).unwrap();
            let d = Distance::between(&a, &b, |n| n.ends_with("key.bias"));
            println!("{dp} {tp} {pp}: {:?} {d:?}", t.elapsed());
        }
    }
}
