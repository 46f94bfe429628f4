"""The model of crates/proof/prove/tests/pytorch/gpt_oss.toml, as the class of transformers computes it.

    pip install torch transformers numpy
    python tools/reference/gpt.py gpt_oss

`gpt.py` trains it. Parameters bear pleach's names; the class is given them in its own forms, by operations that PyTorch
differentiates. Parts that pleach does not have are switched off: sinks of attention are so small that they take no
probability, and no layer has a window. Weights into experts are large enough for clamped values.
"""

import torch
import transformers
from transformers.models.gpt_oss import modeling_gpt_oss

from tensors import single

Params = dict[str, torch.Tensor]

# A sink of this size has the probability 0.
NO_SINK = -1e30
# The nearest that a logit of a router may be to one that is chosen instead, and an input of an activation to its limit:
# ten times what rounding to single precision moves them by in all steps.
NEAREST = 1e-5


def initial_weights(model: dict, vocabulary: int) -> Params:
    """Random values for every parameter, short enough for 16 bits; norms and biases too, so that each one counts."""
    hidden, experts, width = model["hidden"], model["experts"], model["expert_hidden"]
    query, key = model["num_heads"] * model["head_dim"], model["num_kv_heads"] * model["head_dim"]
    params: Params = {}

    def draw(name: str, *shape: int, mean: float = 0.0, std: float = 0.15) -> None:
        params[name] = (torch.randn(*shape) * std + mean).bfloat16().float()

    draw("embedding.token.weight", vocabulary, hidden)
    for layer in (f"layers.{number}" for number in range(model["num_layers"])):
        draw(f"{layer}.attention_norm.weight", hidden, mean=1.0, std=0.1)
        for part, outputs, inputs in [
            ("query", query, hidden), ("key", key, hidden), ("value", key, hidden), ("output", hidden, query)
        ]:
            draw(f"{layer}.attention.{part}.weight", outputs, inputs)
            draw(f"{layer}.attention.{part}.bias", outputs, std=0.05)
        draw(f"{layer}.ffn_norm.weight", hidden, mean=1.0, std=0.1)
        draw(f"{layer}.router.weight", experts, hidden, std=0.4)
        draw(f"{layer}.router.bias", experts, std=0.5)
        draw(f"{layer}.experts.gate_up.weight", experts, 2, width, hidden, std=0.5)
        draw(f"{layer}.experts.gate_up.bias", experts * 2 * width, std=0.5)
        draw(f"{layer}.experts.down.weight", experts, hidden, width, std=0.05)
        draw(f"{layer}.experts.down.bias", experts * hidden, std=0.3)
    draw("head.norm.weight", hidden, mean=1.0, std=0.1)
    draw("head.output.weight", vocabulary, hidden)
    return params


def in_one_document(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same text in which every token sees all before it: the class has no documents."""
    place = torch.arange(data["tokens"].shape[-1]).expand_as(data["tokens"])
    return data | {"positions": place, "first_visible": torch.zeros_like(place)}


class Reference:
    """The class, and how near its choices and clamped values were to others."""

    def __init__(self, model: dict, vocabulary: int, dtype: torch.dtype) -> None:
        config = transformers.GptOssConfig(
            vocab_size=vocabulary, hidden_size=model["hidden"], num_hidden_layers=model["num_layers"],
            num_attention_heads=model["num_heads"], num_key_value_heads=model["num_kv_heads"], head_dim=model["head_dim"],
            intermediate_size=model["expert_hidden"], num_local_experts=model["experts"],
            num_experts_per_tok=model["experts_per_token"], rms_norm_eps=single(model["norm_epsilon"]),
            layer_types=["full_attention"] * model["num_layers"], max_position_embeddings=model["context"],
            rope_parameters={"rope_type": "default", "rope_theta": model["rotary_base"]}, pad_token_id=None,
        )
        config._attn_implementation, config._experts_implementation = "eager", "eager"
        # Norms that keep the type of their input: the library's round to single precision.
        modeling_gpt_oss.GptOssRMSNorm.forward = lambda norm, x: norm.weight * (
            x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        )
        self.module = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
        self.nearest, self.clamped, self.loads = [], 0, torch.zeros(model["experts"], dtype=torch.long)
        for module in self.module.modules():
            if isinstance(module, modeling_gpt_oss.GptOssTopKRouter):
                module.register_forward_hook(self.note_choice)
            elif isinstance(module, modeling_gpt_oss.GptOssExperts):
                self.note_inputs(module)

    def note_choice(self, router: torch.nn.Module, _: tuple, found: tuple) -> None:
        logits = found[0].detach().sort(dim=-1, descending=True).values
        self.nearest.append((logits[:, router.top_k - 1] - logits[:, router.top_k]).min().item())
        self.loads += torch.bincount(found[2].flatten(), minlength=len(self.loads))

    def note_inputs(self, experts: torch.nn.Module) -> None:
        apply_gate = experts._apply_gate

        def noted(gate_up: torch.Tensor) -> torch.Tensor:
            self.nearest.append((gate_up.detach().abs() - experts.limit).abs().min().item())
            gate, up = gate_up.detach()[..., ::2], gate_up.detach()[..., 1::2]
            self.clamped += ((gate > experts.limit).sum() + (up.abs() > experts.limit).sum()).item()
            return apply_gate(gate_up)

        experts._apply_gate = noted

    def logits(self, params: Params, model: dict, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """`[B, S, V]`."""
        own = as_named(params, model)
        return torch.func.functional_call(self.module, own, kwargs={"input_ids": batch["tokens"], "use_cache": False}).logits


def as_named(params: Params, model: dict) -> Params:
    """Parameters under the names and in the forms of the class."""
    experts, width, hidden = model["experts"], model["expert_hidden"], model["hidden"]
    own = {
        "model.embed_tokens.weight": params["embedding.token.weight"],
        "model.norm.weight": params["head.norm.weight"],
        "lm_head.weight": params["head.output.weight"],
    }
    for number in range(model["num_layers"]):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        own[f"{theirs}.input_layernorm.weight"] = params[f"{ours}.attention_norm.weight"]
        own[f"{theirs}.post_attention_layernorm.weight"] = params[f"{ours}.ffn_norm.weight"]
        for part, name in [("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")]:
            for kind in ("weight", "bias"):
                own[f"{theirs}.self_attn.{name}.{kind}"] = params[f"{ours}.attention.{part}.{kind}"]
        weight = params[f"{ours}.router.weight"]
        own[f"{theirs}.self_attn.sinks"] = torch.full((model["num_heads"],), NO_SINK, dtype=weight.dtype)
        own[f"{theirs}.mlp.router.weight"] = weight
        own[f"{theirs}.mlp.router.bias"] = params[f"{ours}.router.bias"]
        # Columns of gates and values take turns, and inputs are rows.
        gate_up = params[f"{ours}.experts.gate_up.weight"].permute(0, 3, 2, 1).reshape(experts, hidden, 2 * width)
        own[f"{theirs}.mlp.experts.gate_up_proj"] = gate_up
        bias = params[f"{ours}.experts.gate_up.bias"].view(experts, 2, width).transpose(1, 2)
        own[f"{theirs}.mlp.experts.gate_up_proj_bias"] = bias.reshape(experts, 2 * width)
        own[f"{theirs}.mlp.experts.down_proj"] = params[f"{ours}.experts.down.weight"].transpose(1, 2)
        own[f"{theirs}.mlp.experts.down_proj_bias"] = params[f"{ours}.experts.down.bias"].view(experts, hidden)
    return own
