//! The list of sources and of the kernels in them.

use nvidia::nvrtc::Target;

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in `kernels/`, without the ending.
    pub name: &'static str,
    pub text: &'static str,
    /// Its kernels.
    pub entries: &'static [&'static str],
    /// The instructions that they use.
    pub instructions: Instructions,
}

/// Which GPUs have the instructions of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// All of compute capability 8.0 and later.
    Common,
    /// The instructions of 9.0 alone, as code for exactly this capability.
    Of90,
}

/// `source!("file": "kernel", each "of_each_type", ..)`: kernels by name; after `each`, one for each type of real
/// numbers in memory, whose names end with `_f32`, `_bf16` and `_f16`.
macro_rules! source {
    (of_90 $name:literal: $($entries:tt)*) => {
        Source { instructions: Instructions::Of90, ..source!($name: $($entries)*) }
    };
    ($name:literal: $($entries:tt)*) => {
        Source {
            name: $name,
            text: include_str!(concat!("../kernels/", $name, ".cu")),
            entries: entries!([] $($entries)*),
            instructions: Instructions::Common,
        }
    };
}

/// The names in brackets, and those that follow.
macro_rules! entries {
    ([$($done:expr,)*]) => {
        &[$($done),*]
    };
    ([$($done:expr,)*] each $name:literal $(, $($rest:tt)*)?) => {
        entries!(
            [$($done,)* concat!($name, "_f32"), concat!($name, "_bf16"), concat!($name, "_f16"),] $($($rest)*)?
        )
    };
    ([$($done:expr,)*] $name:literal $(, $($rest:tt)*)?) => {
        entries!([$($done,)* $name,] $($($rest)*)?)
    };
}

/// All files of kernels; a file is compiled at a time.
pub const SOURCES: &[Source] = &[
    source!(
        "mat_mul": "mat_mul_nt_128", "mat_mul_nt_64", "mat_mul_nn_128", "mat_mul_nn_64", "mat_mul_tn_128",
        "mat_mul_tn_64"
    ),
    source!(
        "mat_mul_blocks":
        "mat_mul_blocks_nt_bf16_128", "mat_mul_blocks_nt_bf16_64", "mat_mul_blocks_nt_f16_128",
        "mat_mul_blocks_nt_f16_64", "mat_mul_blocks_nn_bf16_128", "mat_mul_blocks_nn_bf16_64",
        "mat_mul_blocks_nn_f16_128", "mat_mul_blocks_nn_f16_64", "mat_mul_blocks_tn_bf16_128",
        "mat_mul_blocks_tn_bf16_64", "mat_mul_blocks_tn_f16_128", "mat_mul_blocks_tn_f16_64"
    ),
    source!(
        "mat_mul_blocks_activation":
        "mat_mul_blocks_activation_128_bf16", "mat_mul_blocks_activation_64_bf16",
        "mat_mul_blocks_activation_128_f16", "mat_mul_blocks_activation_64_f16", "mat_mul_blocks_gated_128_bf16",
        "mat_mul_blocks_gated_64_bf16", "mat_mul_blocks_gated_128_f16", "mat_mul_blocks_gated_64_f16",
        "mat_mul_blocks_activation_backward_128_bf16", "mat_mul_blocks_activation_backward_64_bf16",
        "mat_mul_blocks_activation_backward_128_f16", "mat_mul_blocks_activation_backward_64_f16",
        "mat_mul_blocks_gated_backward_128_bf16", "mat_mul_blocks_gated_backward_64_bf16",
        "mat_mul_blocks_gated_backward_128_f16", "mat_mul_blocks_gated_backward_64_f16"
    ),
    source!(
        of_90 "mat_mul_wgmma":
        "mat_mul_wgmma_nt_256", "mat_mul_wgmma_nt_192", "mat_mul_wgmma_nt_128", "mat_mul_wgmma_nt_64",
        "mat_mul_wgmma_nn_256", "mat_mul_wgmma_nn_192", "mat_mul_wgmma_nn_128", "mat_mul_wgmma_nn_64",
        "mat_mul_wgmma_tn_256", "mat_mul_wgmma_tn_192", "mat_mul_wgmma_tn_160", "mat_mul_wgmma_tn_128",
        "mat_mul_wgmma_tn_64"
    ),
    source!(
        of_90 "mat_mul_wgmma_turns":
        "mat_mul_wgmma_turns_nt_128", "mat_mul_wgmma_turns_nn_128", "mat_mul_wgmma_turns_tn_128"
    ),
    source!(
        of_90 "mat_mul_wgmma_activation":
        "mat_mul_wgmma_activation", "mat_mul_wgmma_gated", "mat_mul_wgmma_activation_backward",
        "mat_mul_wgmma_gated_backward"
    ),
    source!("column_sum": each "column_sum"),
    source!(
        "norm": each "norm_layer", each "norm_rms", each "norm_rms_plus_one", each "norm_backward_input_layer",
        each "norm_backward_input_rms", each "norm_backward_input_rms_plus_one", each "norm_backward_weight"
    ),
    source!("rotary": "rotary_table", each "rotary_half", each "rotary_interleaved"),
    source!("attention": each "attention_64", each "attention_128"),
    source!(
        "attention_backward": each "attention_backward_queries_64", each "attention_backward_queries_128",
        each "attention_backward_keys_64", each "attention_backward_keys_128"
    ),
    source!(
        "attention_blocks":
        "attention_blocks_64_bf16", "attention_blocks_64_f16", "attention_blocks_128_bf16", "attention_blocks_128_f16",
        "attention_blocks_any_64_bf16", "attention_blocks_any_64_f16", "attention_blocks_any_128_bf16",
        "attention_blocks_any_128_f16"
    ),
    source!(
        "attention_blocks_queries":
        "attention_blocks_delta_bf16", "attention_blocks_delta_f16", "attention_blocks_queries_64_bf16",
        "attention_blocks_queries_64_f16", "attention_blocks_queries_128_bf16", "attention_blocks_queries_128_f16",
        "attention_blocks_queries_any_64_bf16", "attention_blocks_queries_any_64_f16",
        "attention_blocks_queries_any_128_bf16", "attention_blocks_queries_any_128_f16"
    ),
    source!(
        "attention_blocks_keys":
        "attention_blocks_keys_64_bf16", "attention_blocks_keys_64_f16", "attention_blocks_keys_128_bf16",
        "attention_blocks_keys_128_f16", "attention_blocks_keys_any_64_bf16", "attention_blocks_keys_any_64_f16",
        "attention_blocks_keys_any_128_bf16", "attention_blocks_keys_any_128_f16"
    ),
    source!(
        "attention_blocks_wide":
        "attention_blocks_wide_bf16", "attention_blocks_wide_f16", "attention_blocks_queries_wide_bf16",
        "attention_blocks_queries_wide_f16", "attention_blocks_keys_wide_bf16", "attention_blocks_keys_wide_f16"
    ),
    source!("join_attention": each "join_attention_assign", each "join_attention_accumulate"),
    source!(
        "activation": each "gelu_tanh", each "gelu_erf", each "gelu_sigmoid", each "relu", each "swiglu",
        each "geglu", each "geglu_tanh", each "swiglu_clamped", each "gelu_tanh_backward", each "gelu_erf_backward",
        each "gelu_sigmoid_backward",
        each "relu_backward", each "swiglu_backward", each "geglu_backward",
        each "geglu_tanh_backward", each "swiglu_clamped_backward"
    ),
    source!("route": "route", "route_backward"),
    source!("balance": "count_choices", "load_of_experts", "correct_choices", "limit_choices"),
    source!("router_losses": "router_losses", "router_losses_backward"),
    source!("expert_rows": "group_rows", each "gather_rows", each "combine_rows"),
    source!(
        "expert_mat_mul":
        "expert_mat_mul_nt_128", "expert_mat_mul_nt_64", "expert_mat_mul_nn_128", "expert_mat_mul_nn_64",
        "expert_mat_mul_tn_128", "expert_mat_mul_tn_64"
    ),
    source!(
        "expert_mat_mul_blocks":
        "expert_mat_mul_blocks_nt_bf16_128", "expert_mat_mul_blocks_nt_bf16_64", "expert_mat_mul_blocks_nt_f16_128",
        "expert_mat_mul_blocks_nt_f16_64", "expert_mat_mul_blocks_nn_bf16_128", "expert_mat_mul_blocks_nn_bf16_64",
        "expert_mat_mul_blocks_nn_f16_128", "expert_mat_mul_blocks_nn_f16_64", "expert_mat_mul_blocks_tn_bf16_128",
        "expert_mat_mul_blocks_tn_bf16_64", "expert_mat_mul_blocks_tn_f16_128", "expert_mat_mul_blocks_tn_f16_64"
    ),
    source!(
        "expert_activation":
        each "expert_activation_plain", each "expert_activation_gated", each "expert_activation_backward_plain",
        each "expert_activation_backward_gated"
    ),
    source!("dropout": each "add_residual", each "dropout_add", each "dropout_backward"),
    source!("embedding": each "embedding_lookup", each "embedding_backward"),
    source!(
        "cross_entropy":
        "row_max", "sum_exp", "cross_entropy", each "cross_entropy_gradient", each "cross_entropy_rows_256",
        each "cross_entropy_rows_1024"
    ),
    source!(
        "rounded_sum": "add_rounded_assign", "add_rounded_accumulate", "rounded_to_single_first",
        "rounded_to_single_next"
    ),
    source!(
        "element_wise": "accumulate_f32", "accumulate_i64", "scaled_sum", each "fill", "fill_i64", each "copy_f32",
        each "copy_bf16", each "copy_f16", "copy_i64"
    ),
    source!("soft_cap": "soft_cap", "soft_cap_backward"),
    source!("initialize": each "initialize_normal"),
    source!("fixed_point": "squared_sum", "loss_sum", "clip_coefficient"),
    source!("adamw": "adamw", each "adamw_copy"),
];

/// A file that sources include.
macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../kernels/", $name)))
    };
}

/// Headers that sources include: names and texts.
const HEADERS: &[(&str, &str)] = &[
    header!("types.cuh"),
    header!("tensor.cuh"),
    header!("elements.cuh"),
    header!("groups.cuh"),
    header!("element.cuh"),
    header!("tensor_core.cuh"),
    header!("product_chains.cuh"),
    header!("product_output.cuh"),
    header!("product_blocks.cuh"),
    header!("product_blocks_output.cuh"),
    header!("product_activation.cuh"),
    header!("bulk_copies.cuh"),
    header!("warpgroup.cuh"),
    header!("warpgroup_output.cuh"),
    header!("warpgroup_ring.cuh"),
    header!("warpgroup_turns.cuh"),
    header!("warpgroup_activation.cuh"),
    header!("warpgroup_activation_gradient.cuh"),
    header!("activation.cuh"),
    header!("activation_rows.cuh"),
    header!("curves.cuh"),
    header!("block_counts.cuh"),
    header!("expert_groups.cuh"),
    header!("expert_shares.cuh"),
    header!("vectors.cuh"),
    header!("math.cuh"),
    header!("soft_cap.cuh"),
    header!("philox.cuh"),
    header!("dropout_mask.cuh"),
    header!("row_sum.cuh"),
    header!("row_chunks.cuh"),
    header!("sum_words.cuh"),
    header!("fixed_point.cuh"),
    header!("attention.cuh"),
    header!("attention_blocks.cuh"),
    header!("attention_blocks_forward.cuh"),
    header!("attention_blocks_depths.cuh"),
    header!("attention_blocks_panels.cuh"),
    header!("attention_blocks_warpgroups.cuh"),
    header!("attention_blocks_queries_warpgroups.cuh"),
    header!("attention_blocks_keys_warpgroups.cuh"),
    header!("warpgroup_registers.cuh"),
    header!("attention_blocks_gradient.cuh"),
    header!("attention_blocks_of_queries.cuh"),
    header!("attention_blocks_of_keys.cuh"),
];

impl Source {
    /// Whether the source can be compiled for a target.
    pub fn is_for(&self, target: &Target) -> bool {
        let (Target::Ptx(architecture) | Target::Cubin(architecture)) = target;
        match self.instructions {
            Instructions::Common => true,
            Instructions::Of90 => architecture == "90a",
        }
    }

    /// The text with each included file in the place where it is first included, so that a compiler needs no other
    /// file.
    pub fn whole(&self) -> String {
        let mut whole = String::new();
        append(&mut whole, &mut vec![], &format!("{}.cu", self.name), self.text);
        whole
    }
}

/// Appends the text of a file with what it includes. Marks of lines keep the names and numbers of the files in
/// messages.
fn append(whole: &mut String, included: &mut Vec<&'static str>, name: &str, text: &str) {
    whole.push_str(&format!("#line 1 \"{name}\"\n"));
    for (index, line) in text.lines().enumerate() {
        let header = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match header.and_then(|header| HEADERS.iter().find(|(name, _)| *name == header)) {
            Some((header, _)) if included.contains(header) => whole.push('\n'),
            Some((header, text)) => {
                included.push(header);
                append(whole, included, header, text);
                whole.push_str(&format!("#line {} \"{name}\"\n", index + 2));
            }
            None if line == "#pragma once" => whole.push('\n'),
            None => {
                whole.push_str(line);
                whole.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_bounds_and_a_name_as_it_is_written() {
        for source in SOURCES {
            let kernels = source.text.matches("__global__").count();
            assert_eq!(source.text.matches("extern \"C\" __global__ void __launch_bounds__(").count(), kernels);
        }
    }

    #[test]
    fn each_header_is_included_once_and_none_is_left() {
        for source in SOURCES {
            let whole = source.whole();
            assert!(!whole.contains("#include"), "{} includes what is not listed", source.name);
            for (header, text) in HEADERS {
                let first = text.lines().next().unwrap_or_default();
                assert!(whole.matches(first).count() <= 1, "{header} in {}", source.name);
            }
        }
    }

    /// The names of the kernels that a text has: after the bounds of a launch, or as the first argument of a macro that
    /// stands for a kernel.
    fn kernels(text: &str) -> Vec<&str> {
        const KERNEL: &str = "__global__ void __launch_bounds__(";
        let (mut macros, mut names, mut rest) = (vec![], vec![], text);
        while !rest.is_empty() {
            // A line with those that continue it.
            let end = rest.match_indices('\n').map(|(end, _)| end + 1).find(|end| !rest[..*end].ends_with("\\\n"));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            let of_macro = macros.iter().find_map(|name| line.strip_prefix(name)?.strip_prefix('('));
            if let Some(definition) = line.strip_prefix("#define ") {
                let name = definition.split_once('(').map(|(name, _)| name);
                macros.extend(name.filter(|_| definition.contains(KERNEL)));
            } else if let Some(arguments) = of_macro {
                names.extend(arguments.split_once(',').map(|(name, _)| name));
            } else if let Some((_, bounds)) = line.split_once(KERNEL) {
                let (_, name) = bounds.split_once(')').expect("bounds");
                // The name may be in the next line.
                let name = if name.trim().is_empty() { after } else { name };
                names.push(name.split_once('(').expect("parameters").0.trim());
            }
            rest = after;
        }
        names
    }

    #[test]
    fn kernels_of_macros_are_named_by_their_uses() {
        let text = "#define A(NAME, T) \\\n    extern \"C\" __global__ void __launch_bounds__(8) NAME(T x) {}\n\
                    #define B(x) (x)\nA(a, int)\nB(b)\n__global__ void __launch_bounds__(8, 2)\n    c(int x) {\nA(d, int)\n";
        assert_eq!(kernels(text), ["a", "c", "d"]);
    }

    #[test]
    fn the_list_names_exactly_the_kernels_of_the_files() {
        let mut all = vec![];
        for source in SOURCES {
            let names = kernels(source.text);
            assert_eq!(names, source.entries, "{}", source.name);
            all.extend(names);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "names are those of one kernel each");
    }
}
