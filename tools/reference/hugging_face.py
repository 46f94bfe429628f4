"""Makes the folders of crates/app/cli/tests/hugging_face: small models of every class that pleach reads, as the library
writes them.

    pip install torch transformers numpy
    python tools/reference/hugging_face.py
    python tools/reference/hugging_face.py --only mistral smollm
    python tools/reference/hugging_face.py EXPORTED

Every weight is random, norms and biases too, and short enough for 16 bits; most classes store them so. Kept are the
library's own `config.json` and tensors, and the logits, the loss and the gradient of every weight in double
precision, rounded once. With EXPORTED, a folder of folders that `pleach export` made of them, those are loaded and
their logits compared; their distance is kept with the configuration that the library has read (`exported.json`); a
test compares exports with it.
"""

import json
import pathlib
import shutil
import sys
import zlib

import torch
import transformers

from tensors import save

FOLDER = pathlib.Path(__file__).parents[2] / "crates/app/cli/tests/hugging_face"
VOCABULARY, LENGTH, SEQUENCES = 31, 10, 3
# Of classes with experts: every axis divides them in two.
EVEN_LENGTH, EVEN_SEQUENCES = 12, 4
COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
NO_DROPOUT = {"attention_dropout": 0.0}


def rope(theta: float, share: float = 1.0) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}}


def configurations() -> dict[str, transformers.PretrainedConfig]:
    llama = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20} | COMMON | NO_DROPOUT
    return {
        "gpt_neox": transformers.GPTNeoXConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=12,
            hidden_act="gelu_fast", hidden_dropout=0.0, **COMMON, **NO_DROPOUT, **rope(10_000.0, 0.25),
        ),
        "bloom": transformers.BloomConfig(
            hidden_size=12, n_layer=2, n_head=6, hidden_dropout=0.0, seq_length=12, **COMMON, **NO_DROPOUT
        ),
        "opt": transformers.OPTConfig(
            hidden_size=12, num_hidden_layers=2, num_attention_heads=4, ffn_dim=28, max_position_embeddings=12,
            word_embed_proj_dim=12, dropout=0.0, **(COMMON | {"pad_token_id": 1}), **NO_DROPOUT,
        ),
        "gpt2": transformers.GPT2Config(
            n_embd=12, n_layer=2, n_head=2, n_positions=12, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **COMMON
        ),
        "llama": transformers.LlamaConfig(
            num_key_value_heads=2, max_position_embeddings=12, tie_word_embeddings=False, **llama, **rope(500_000.0)
        ),
        "qwen2": transformers.Qwen2Config(
            num_key_value_heads=2, max_position_embeddings=12, tie_word_embeddings=True, **llama, **rope(1e6)
        ),
        "qwen3": transformers.Qwen3Config(
            num_key_value_heads=2, head_dim=6, max_position_embeddings=12, tie_word_embeddings=False, **llama, **rope(1e6)
        ),
    }


def variants() -> dict[str, transformers.PretrainedConfig]:
    """Other configurations of the same classes."""
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2} | COMMON
    llama = small | {"intermediate_size": 12, "num_key_value_heads": 2, "max_position_embeddings": 12} | NO_DROPOUT
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama31 = {"rope_parameters": scaling | {"rope_theta": 20.0, "original_max_position_embeddings": 16}}
    linear = {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}}
    opt = small | {"ffn_dim": 12, "max_position_embeddings": 12, "word_embed_proj_dim": 8, "dropout": 0.0} | NO_DROPOUT
    return {
        "gpt_neox_sequential": transformers.GPTNeoXConfig(
            intermediate_size=12, max_position_embeddings=12, hidden_act="relu", hidden_dropout=0.0, use_parallel_residual=False,
            attention_bias=False, tie_word_embeddings=True, **small, **NO_DROPOUT, **rope(100.0, 0.5),
        ),
        "bloom_untied": transformers.BloomConfig(
            hidden_size=12, n_layer=1, n_head=6, hidden_dropout=0.0, seq_length=12, tie_word_embeddings=False, **COMMON, **NO_DROPOUT
        ),
        "opt_padding": transformers.OPTConfig(enable_bias=False, **(opt | {"pad_token_id": 1})),
        "opt_untied": transformers.OPTConfig(tie_word_embeddings=False, activation_function="gelu", **opt),
        "gpt2_untied": transformers.GPT2Config(
            n_embd=8, n_layer=1, n_head=2, n_positions=12, n_inner=20, activation_function="relu", tie_word_embeddings=False,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **COMMON,
        ),
        "llama31": transformers.LlamaConfig(attention_bias=True, tie_word_embeddings=True, head_dim=12, **llama, **llama31),
        "llama_linear": transformers.LlamaConfig(mlp_bias=True, hidden_act="gelu", **llama, **linear),
        "qwen3_padding": transformers.Qwen3Config(
            attention_bias=True, tie_word_embeddings=True, head_dim=6, **(llama | {"pad_token_id": 1}), **rope(1e6)
        ),
    }


def families() -> dict[str, transformers.PretrainedConfig]:
    """Classes whose layers differ in what they see, and where norms are. Each has random numbers of its own."""
    llama = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20} | COMMON | NO_DROPOUT
    llama = llama | {"num_key_value_heads": 2, "max_position_embeddings": 12}
    gemma = {key: value for key, value in llama.items() if key != "hidden_act"}
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 20.0, "original_max_position_embeddings": 8, "beta_fast": 0.75,
            "beta_slow": 0.25}
    return {
        "smollm": transformers.LlamaConfig(tie_word_embeddings=True, initializer_range=0.04, **llama, **rope(100_000.0)),
        "mistral": transformers.MistralConfig(
            head_dim=6, sliding_window=4, tie_word_embeddings=False, **llama, **rope(10_000.0)
        ),
        "qwen3_windows": transformers.Qwen3Config(
            head_dim=6, use_sliding_window=True, sliding_window=3, max_window_layers=1, tie_word_embeddings=False,
            **(llama | {"num_hidden_layers": 3}), **rope(1e6),
        ),
        "qwen3_yarn": transformers.Qwen3Config(
            head_dim=24, tie_word_embeddings=False, **(llama | {"num_hidden_layers": 1}), rope_parameters=yarn
        ),
        "olmo2": transformers.Olmo2Config(tie_word_embeddings=False, **llama, **rope(500_000.0)),
        "olmo2_biases": transformers.Olmo2Config(
            tie_word_embeddings=True, attention_bias=True, **(llama | {"num_hidden_layers": 1, "pad_token_id": 1}), **rope(100.0)
        ),
        "gemma2": transformers.Gemma2Config(
            head_dim=6, query_pre_attn_scalar=9, sliding_window=4, attn_logit_softcapping=0.5, final_logit_softcapping=2.0,
            **(gemma | {"num_hidden_layers": 3}), **rope(100.0),
        ),
        "gemma2_plain": transformers.Gemma2Config(
            head_dim=6, query_pre_attn_scalar=6, sliding_window=4, attn_logit_softcapping=None, final_logit_softcapping=None,
            tie_word_embeddings=False, **(gemma | {"num_hidden_layers": 1}), **rope(100.0),
        ),
        "gemma3_capped": transformers.Gemma3TextConfig(
            head_dim=6, query_pre_attn_scalar=6, sliding_window=3, layer_types=["sliding_attention"], final_logit_softcapping=3.0,
            **(gemma | {"num_hidden_layers": 1}),
        ),
        "gemma3": transformers.Gemma3TextConfig(
            head_dim=6, query_pre_attn_scalar=9, sliding_window=4, layer_types=["sliding_attention"] * 2 + ["full_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
            **(gemma | {"num_hidden_layers": 3}),
        ),
        "gemma3_global": transformers.Gemma3TextConfig(
            head_dim=8, query_pre_attn_scalar=8, layer_types=["full_attention"], attention_bias=True, tie_word_embeddings=False,
            **(gemma | {"num_hidden_layers": 1, "pad_token_id": 1}),
        ),
    }


def experts() -> dict[str, transformers.PretrainedConfig]:
    """Classes with experts. Each has random numbers of its own."""
    llama = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 12} | COMMON | NO_DROPOUT
    llama = llama | {"num_key_value_heads": 2, "max_position_embeddings": 12, "tie_word_embeddings": False}
    chosen = {"num_experts": 12, "num_experts_per_tok": 3}
    one_layer = llama | {"num_hidden_layers": 1}
    multipliers = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 6.0}
    return {
        "mixtral": transformers.MixtralConfig(num_local_experts=8, num_experts_per_tok=2, **llama, **rope(1e6)),
        "mixtral_windows": transformers.MixtralConfig(
            num_local_experts=4, num_experts_per_tok=1, sliding_window=3, head_dim=6, router_aux_loss_coef=0.02,
            output_router_logits=True, **(one_layer | {"tie_word_embeddings": True}), **rope(100.0),
        ),
        "qwen2_moe": transformers.Qwen2MoeConfig(
            moe_intermediate_size=10, shared_expert_intermediate_size=20, mlp_only_layers=[0], **chosen, **llama, **rope(1e6),
        ),
        "qwen2_moe_normalised": transformers.Qwen2MoeConfig(
            moe_intermediate_size=8, shared_expert_intermediate_size=4, norm_topk_prob=True, qkv_bias=False, num_experts=6,
            num_experts_per_tok=2, **one_layer, **rope(100.0),
        ),
        "qwen3_moe": transformers.Qwen3MoeConfig(
            head_dim=6, moe_intermediate_size=10, norm_topk_prob=True, decoder_sparse_step=2, **chosen,
            **(llama | {"num_hidden_layers": 4}), **rope(1e6),
        ),
        "olmoe": transformers.OlmoeConfig(**chosen, **llama, **rope(10_000.0)),
        "olmoe_normalised": transformers.OlmoeConfig(
            norm_topk_prob=True, attention_bias=True, num_experts=6, num_experts_per_tok=2, **one_layer, **rope(100.0)
        ),
        "granitemoe": transformers.GraniteMoeConfig(
            num_local_experts=12, num_experts_per_tok=3, rms_norm_eps=0.02, **multipliers, **(llama | {"tie_word_embeddings": True}), **rope(10_000.0)
        ),
        "granitemoe_plain": transformers.GraniteMoeConfig(
            num_local_experts=6, num_experts_per_tok=2, attention_multiplier=0.5, attention_bias=True, **one_layer, **rope(100.0)
        ),
    }


# Parts of a block in memory, where all experts are one tensor, and as the library writes them: of each expert a tensor
# for each half of the first, or stacks under other names.
OF_EXPERTS = {
    "mixtral": ("mlp", "block_sparse_moe", ["w1", "w3", "w2"]),
    "granitemoe": ("block_sparse_moe", "block_sparse_moe", ["input_linear.weight", "output_linear.weight"]),
}
USUAL_EXPERTS = ("mlp", "mlp", ["gate_proj", "up_proj", "down_proj"])


def as_written(name: str, gradient: torch.Tensor, model_type: str) -> dict[str, torch.Tensor]:
    """The gradient of a weight under the names that the library writes: it keeps stacks of experts in memory."""
    own, block, parts = OF_EXPERTS.get(model_type, USUAL_EXPERTS)
    layer, _, stack = name.rpartition(f".{own}.experts.")
    if layer and model_type == "granitemoe":
        return {f"{layer}.{block}.{parts[0] if stack == 'gate_up_proj' else parts[1]}": gradient}
    if stack == "gate_up_proj":
        halves = gradient.chunk(2, dim=1)
        return {
            f"{layer}.{block}.experts.{expert}.{part}.weight": half[expert].contiguous()
            for part, half in zip(parts, halves) for expert in range(len(gradient))
        }
    if stack == "down_proj":
        return {f"{layer}.{block}.experts.{expert}.{parts[2]}.weight": one.contiguous() for expert, one in enumerate(gradient)}
    return {name.replace(".router.", ".router.layer.").replace(".mlp.gate.", f".{block}.gate."): gradient}


# The smallest gap of scores that tells apart the last chosen expert and the first that is not, in drawn weights.
SMALLEST_GAP = 1e-3


def choices(model: torch.nn.Module, data: dict[str, list]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The gap between the last chosen score and the next, `[layers, tokens]`, and the tokens of each expert of a layer."""
    gaps, counts = [], []

    def note(router: torch.nn.Module, _: tuple, found: tuple) -> None:
        scores = torch.softmax(found[0].double(), dim=-1)
        sorted_scores = scores.sort(dim=-1, descending=True).values
        gaps.append(sorted_scores[:, router.top_k - 1] - sorted_scores[:, router.top_k])
        counts.append(torch.bincount(found[2].flatten(), minlength=scores.shape[-1]))

    hooks = [module.register_forward_hook(note) for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    with torch.no_grad():
        outputs(model, data)
    for hook in hooks:
        hook.remove()
    return torch.stack(gaps), counts


def draw_experts(name: str, model: torch.nn.Module, data: dict[str, list]) -> torch.Tensor:
    """Weights whose choices rounding cannot change, and of which an expert has no tokens; their gaps, `[layers, tokens]`."""
    for attempt in range(1000):
        torch.manual_seed(zlib.crc32(name.encode()) + attempt)
        randomize(model)
        gaps, counts = choices(model, data)
        if gaps.min() > SMALLEST_GAP and any((count == 0).any() for count in counts):
            print(name, "attempt", attempt, "smallest gap", gaps.min().item(), "tokens", [count.tolist() for count in counts])
            return gaps
    raise SystemExit(f"{name}: 1,000 draws have no expert without tokens and no gap below {SMALLEST_GAP}")


def randomize(model: torch.nn.Module) -> None:
    """Every weight at random, none at its default; rows that no token reads stay as they are."""
    for name, param in model.named_parameters():
        is_norm = "norm" in name or "ln_" in name
        is_router = name.endswith(("mlp.gate.weight", "router.weight"))
        mean, std = (1.0, 0.1) if is_norm and name.endswith("weight") else (0.0, 0.6 if is_router else 0.15)
        param.data = (torch.randn(param.shape) * std + mean).bfloat16().double()
        if is_router:
            # The last expert has small logits, which are the largest ones of few tokens.
            param.data[-1] = (param.data[-1] / 32).bfloat16().double()


def inputs(sequences: int, length: int) -> dict[str, list]:
    tokens = torch.randint(2, VOCABULARY, (sequences, length + 1))
    labels = tokens[:, 1:].clone()
    labels[0, 7:] = -100
    labels[2, :3] = -100
    return {"input_ids": tokens[:, :-1].tolist(), "labels": labels.tolist()}


def outputs(model: torch.nn.Module, data: dict[str, list]) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model(input_ids=torch.tensor(data["input_ids"]), use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(data["labels"]).flatten(), ignore_index=-100
    )
    return logits, loss


def make(only: list[str]) -> None:
    """Makes all folders, or those that are named."""
    torch.manual_seed(20_220_411)
    data = inputs(SEQUENCES, LENGTH)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not only:
        (FOLDER / "tokens.json").write_text(json.dumps(data) + "\n")
    for name, config in (configurations() | variants() | families() | experts()).items():
        if name in families():
            torch.manual_seed(zlib.crc32(name.encode()))
        if name in experts() and only and name not in only:
            continue
        config._attn_implementation, config._experts_implementation = "eager", "eager"
        model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
        if name not in experts():
            randomize(model)
        if only and name not in only:
            continue
        model.tie_weights()
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        own = data
        if name.endswith("_padding"):
            own = data | {"input_ids": [[*tokens[:-2], 1, 1] for tokens in data["input_ids"]]}
        if name in experts():
            torch.manual_seed(zlib.crc32(name.encode()))
            own = inputs(EVEN_SEQUENCES, EVEN_LENGTH)
        if own is not data:
            (folder / "tokens.json").write_text(json.dumps(own) + "\n")
        gaps = draw_experts(name, model, own) if name in experts() else None
        logits, loss = outputs(model, own)
        loss.backward()
        # The library writes one matrix under another name than it has in memory.
        written = {"lm_head.weight": "embed_out.weight"} if name.startswith("gpt_neox") else {}
        gradients = {written.get(key, key): param.grad.float() for key, param in model.named_parameters()}
        if name in experts():
            of_all = [as_written(key, gradient, config.model_type).items() for key, gradient in gradients.items()]
            gradients = {key: gradient for of_one in of_all for key, gradient in of_one}
        stored = torch.float32 if name in ("gpt_neox", "llama") else torch.bfloat16
        # One in several files with an index.
        model.to(stored).save_pretrained(folder, **({"max_shard_size": "6KB"} if name == "gpt_neox" else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        save(folder / "gradients.safetensors", gradients)
        expected = {"logits": logits.detach().float(), "loss": loss.detach().float().reshape(1)}
        # Where choices of experts have near ties, rounding may change them.
        save(folder / "expected.safetensors", expected | ({} if gaps is None else {"router_gaps": gaps.float()}))
        print(name, f"loss {loss.item():.4f}", sum(file.stat().st_size for file in folder.iterdir()), "bytes")


def compare(exported: pathlib.Path) -> None:
    data = json.loads((FOLDER / "tokens.json").read_text())
    for folder in sorted(exported.iterdir()):
        models = [
            transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, experts_implementation="eager").eval()
            for path in (folder, FOLDER / folder.name)
        ]
        ours, theirs = (outputs(model, data)[0] for model in models)
        record = {
            "config": json.loads((folder / "config.json").read_text()),
            "class": type(models[0]).__name__,
            "logits_differ_by": (ours - theirs).abs().max().item(),
        }
        (FOLDER / folder.name / "exported.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        print(folder.name, record["class"], "logits differ by", record["logits_differ_by"])


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] != "--only":
        compare(pathlib.Path(sys.argv[1]))
    else:
        make(sys.argv[2:])
