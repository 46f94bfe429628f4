//! Classes with experts. The folders have weights of which each layer's choices are far from ties, and of which an
//! expert has no tokens.
//!
//! Bounds, relative Frobenius distances: logits and loss 2e-6, each gradient 1e-5. The layers have sums of at most 24
//! terms, and a router adds a softmax and two products, each rounded to 2^-24 of its size: of four layers some 100
//! roundings follow each other, which add up to about 10 x 2^-24 = 6e-7 where they are independent. Gradients pass
//! twice as many, and those of norms and routers are sums over tokens in which terms cancel. A gradient below 1e-6 of
//! all is relative to all: a router of normalised weights that chooses one expert has none.
//!
//! A choice of experts is a step: where a token's last chosen score and the next are closer than rounding, it may fall
//! the other way, and what follows differs by more than rounding. Such tokens are listed with their gap.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::TensorReader;
use config::{Unit, params};
use interchange::HuggingFaceFolder;

use crate::hugging_face::{Folder, distance, fixtures, gradients, norm, norm_of, succeeds, tokens, whole};

/// Classes of the library with experts: Qwen 2 with a dense first layer and a shared expert, Qwen 3 with experts in
/// every second layer.
pub(super) const CLASSES: [&str; 5] = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"];

/// The same classes with what their configurations may say otherwise: windows, the other kind of weights, other biases,
/// factors of 1.
pub(super) const VARIANTS: [&str; 4] =
    ["mixtral_windows", "qwen2_moe_normalised", "olmoe_normalised", "granitemoe_plain"];

/// Degrees (dp, cp, tp, pp).
const LAYOUTS: [[usize; 4]; 6] = [[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2], [2, 2, 2, 2]];

/// Scores of this distance may change places: ten times the bound of logits, as softmax multiplies their distance by at
/// most a quarter and logits of routers have the size of several units.
const NEAR_TIE: f32 = 2e-5;

/// The place of a row of logits, and the smallest gap of its token's choices in any layer.
fn gaps(expected: &TensorReader) -> Vec<f32> {
    let shape = expected.shape("router_gaps").expect("gaps").to_vec();
    let [layers, rows] = shape[..] else { panic!("{shape:?}") };
    let all = whole(expected, "router_gaps");
    (0..rows).map(|row| (0..layers).map(|layer| all[layer * rows + row]).fold(f32::MAX, f32::min)).collect()
}

/// The tokens whose logits are farther from those of the library than rounding moves them, with their gaps.
fn flips([ours, theirs]: [&[f32]; 2], gaps: &[f32]) -> Vec<String> {
    let cols = theirs.len() / gaps.len();
    let rows = ours.chunks(cols).zip(theirs.chunks(cols)).zip(gaps).enumerate();
    rows.filter(|(_, ((ours, theirs), _))| distance(ours, theirs) > 1e-4 * norm_of(theirs))
        .map(|(row, (_, gap))| format!("token {row}: gap {gap:.1e}"))
        .collect()
}

/// The results of `forward` for the folder of `class`.
fn forward(class: &str, [dp, cp, tp, pp]: [usize; 4], folder: &Folder) -> TensorReader {
    let from = fixtures().join(class).display().to_string();
    let (tokens, out) = (tokens(class).display().to_string(), folder.at("out.safetensors"));
    let degrees = [("dp", dp), ("cp", cp), ("tp", tp), ("pp", pp)];
    let sets = degrees.map(|(axis, degree)| format!("parallelism.{axis}={degree}"));
    let mut arguments = vec!["forward", "--from", &from, "--tokens", &tokens, "--out", &out, "--grads"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    succeeds(&arguments);
    TensorReader::open(Path::new(&out)).expect("a file")
}

#[test]
fn experts_compute_what_the_library_computes_under_every_layout() {
    let folder = Folder::new("experts");
    let of_variants = VARIANTS.map(|class| (class, &LAYOUTS[5..]));
    for (class, layouts) in CLASSES.map(|class| (class, &LAYOUTS[..])).into_iter().chain(of_variants) {
        let expected = TensorReader::open(&fixtures().join(class).join("expected.safetensors")).expect("a file");
        let gaps = gaps(&expected);
        let smallest = gaps.iter().copied().fold(f32::MAX, f32::min);
        assert!(smallest > NEAR_TIE, "{class}: the smallest gap of a choice is {smallest:.1e}");
        let gradients = gradients(class, &folder);
        let all = norm(gradients.iter().map(|(_, values)| norm_of(values)));
        for layout in layouts {
            let results = forward(class, *layout, &folder);
            let what = format!("{class}, dp, cp, tp, pp {layout:?}");
            let [ours, theirs] = [&results, &expected].map(|file| whole(file, "logits"));
            let none: [&str; 0] = [];
            assert_eq!(flips([&ours, &theirs], &gaps), none, "{what}");
            let of_logits = distance(&ours, &theirs) / norm_of(&theirs);
            let [loss, of_library] = [&results, &expected].map(|file| f64::from(whole(file, "loss")[0]));
            let of_loss = (loss - of_library).abs() / of_library;
            let mut of_gradients: Vec<(f64, &str)> = gradients
                .iter()
                .map(|(name, theirs)| {
                    let ours = whole(&results, &format!("grad.{name}"));
                    let size = norm_of(theirs);
                    let size = if size >= 1e-6 * all { size } else { all };
                    (distance(&ours, theirs) / size, name.as_str())
                })
                .collect();
            of_gradients.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (farthest, name) = of_gradients[of_gradients.len() - 1];
            println!("{what}: logits {of_logits:.1e}, loss {of_loss:.1e}, gradients {farthest:.1e} ({name}) away");
            assert!(of_logits <= 2e-6 && of_loss <= 2e-6, "{what}: logits {of_logits:.1e}, loss {of_loss:.1e}");
            assert!(farthest <= 1e-5, "{what}: the gradient of {name} is {farthest:.1e} away");
        }
    }
}

/// An expert that no token has chosen has gradients of 0, in the library as here, and every class has one.
#[test]
fn experts_without_tokens_have_no_gradients() {
    let folder = Folder::new("idle-experts");
    for class in CLASSES.into_iter().chain(VARIANTS) {
        let library: BTreeMap<String, Vec<f32>> = gradients(class, &folder).into_iter().collect();
        let results = forward(class, [1, 1, 2, 1], &folder);
        let model = HuggingFaceFolder::open(&fixtures().join(class)).expect("a folder").model;
        let mut idle = 0;
        for param in (0..model.num_layers as u32).flat_map(|layer| params(&model, Unit::Experts(layer))) {
            let (ours, theirs) = (whole(&results, &format!("grad.{}", param.name)), &library[&param.name]);
            let of_expert = param.len() / param.shape[0];
            for (expert, (ours, theirs)) in ours.chunks(of_expert).zip(theirs.chunks(of_expert)).enumerate() {
                let are_zero = [ours, theirs].map(|values| norm(values.iter().map(|value| f64::from(*value))) == 0.0);
                assert_eq!(are_zero[0], are_zero[1], "{class}: {} of expert {expert}", param.name);
                idle += usize::from(are_zero[1]);
            }
        }
        assert!(idle >= 2, "{class}: gate and up, and down, of an expert");
    }
}

/// Tensors have the library's names, shapes and bytes again, those of stacks and those of single experts.
#[test]
fn tensors_of_experts_are_written_byte_by_byte() {
    let folder = Folder::new("experts-narrow");
    for class in CLASSES.into_iter().chain(VARIANTS) {
        let out = super::exported(class, "bf16", &folder);
        let [before, after] =
            [&fixtures().join(class), &out].map(|path| super::stored(&path.join("model.safetensors")));
        assert!(before.iter().any(|(name, ..)| name.contains("expert") || name.contains("input_linear")), "{class}");
        assert!(before == after, "{class}");
    }
}
