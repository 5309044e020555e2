"""Transformers by name, with what their traffic and their compute time depend on: shapes, parameters, FLOPs.

Every number of a shape is the published configuration's; parameters and FLOPs follow from it. A matrix multiplication costs
2 FLOPs per weight and token, causal attention s·heads·(qk + v) per token (2 · half of the s × s scores, once for QK, once for
AV); the backward pass costs twice the forward pass. Norms, activations and the embedding's look-up are not counted.

    llama3-70b    70,553,706,496 parameters     Llama 3 paper (arXiv 2407.21783) table 3, config.json of Meta-Llama-3-70B
    deepseek-v3   671,026,419,200 parameters    DeepSeek-V3 report (arXiv 2412.19437) section 4.2, config.json; without the
                                                module for multi-token prediction

Not modelled of DeepSeek-V3: DualPipe, the limit of 4 servers a token (each rank sends to all of its experts), uneven experts
(emu/collectives/moe.py has those).
Source of the FLOP rule: Megatron-LM (arXiv 2104.04473) section 5.1, without its recomputation, attention causal.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import unknown

BF16_BYTES, FP8_BYTES = 2, 1
BACKWARD = 2  # FLOPs of the backward pass over those of the forward pass
GATED_MATRICES = 3  # SwiGLU: gate, up, down


@dataclass(frozen=True, kw_only=True)
class Experts:
    """In every layer after the first `dense_layers`: each token goes to `top_k` of `count` experts and to all `shared` ones.

    Bytes of one value of a token on its way to the experts (dispatch) and back (combine).
    """

    count: int
    top_k: int
    shared: int
    ffn: int
    dense_layers: int
    dispatch_bytes: int = BF16_BYTES
    combine_bytes: int = BF16_BYTES


@dataclass(frozen=True, kw_only=True)
class Model:
    """`attention_weights`, `small_weights`: of one layer, in its matrices and in its norms. qk_dim, v_dim: of one head.

    The embedding and the output head have a matrix each (untied).
    """

    name: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    qk_dim: int
    v_dim: int
    ffn: int
    attention_weights: int
    small_weights: int
    experts: Experts | None = None

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer >= self.experts.dense_layers

    @property
    def embedding_params(self) -> int:
        """The embedding, or the output head without the last norm."""
        return self.vocab * self.hidden

    def dense_params(self, layer: int) -> int:
        """Parameters of a layer that every data-parallel rank has: all but those of the experts a token chooses from."""
        params = self.attention_weights + self.small_weights
        if not self.has_experts(layer):
            return params + GATED_MATRICES * self.hidden * self.ffn
        router = self.experts.count * (self.hidden + 1)  # and a bias for each expert, which balances their load
        return params + router + self.experts.shared * self.expert_params

    @property
    def expert_params(self) -> int:
        """Parameters of one expert; 0 for a dense model."""
        return GATED_MATRICES * self.hidden * self.experts.ffn if self.experts else 0

    def routed_params(self, layer: int) -> int:
        """Parameters of a layer's experts, which expert parallelism spreads."""
        return self.experts.count * self.expert_params if self.has_experts(layer) else 0

    @property
    def params(self) -> int:
        layers = sum(self.dense_params(layer) + self.routed_params(layer) for layer in range(self.layers))
        return layers + 2 * self.embedding_params + self.hidden

    def attention_flops(self, tokens: int, sequence: int) -> int:
        """Forward FLOPs of one layer's attention for `tokens` in sequences of `sequence`."""
        return tokens * (2 * self.attention_weights + sequence * self.heads * (self.qk_dim + self.v_dim))

    def ffn_flops(self, tokens: int, layer: int) -> int:
        """Forward FLOPs of one layer's feed-forward part: its matrices, or the experts that the tokens go to."""
        if not self.has_experts(layer):
            return tokens * 2 * GATED_MATRICES * self.hidden * self.ffn
        per_token = (self.experts.top_k + self.experts.shared) * self.expert_params + self.experts.count * self.hidden
        return tokens * 2 * per_token

    def head_flops(self, tokens: int) -> int:
        """Forward FLOPs of the output head."""
        return tokens * 2 * self.embedding_params


def grouped_query(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Weights of query, key, value and output where several queries share a key and a value (arXiv 2305.13245)."""
    return hidden * head_dim * (2 * heads + 2 * kv_heads)


def latent(*, hidden: int, heads: int, q_rank: int, kv_rank: int, nope_dim: int, rope_dim: int, v_dim: int) -> int:
    """Weights of multi-head latent attention (arXiv 2405.04434): queries, keys and values by way of a narrow layer."""
    queries = hidden * q_rank + q_rank * heads * (nope_dim + rope_dim)
    keys_values = hidden * (kv_rank + rope_dim) + kv_rank * heads * (nope_dim + v_dim)
    return queries + keys_values + heads * v_dim * hidden


LLAMA3_70B = Model(
    name="llama3-70b", layers=80, hidden=8192, vocab=128_256, heads=64, qk_dim=128, v_dim=128, ffn=28_672,
    attention_weights=grouped_query(8192, 64, 8, 128), small_weights=2 * 8192,
)
DEEPSEEK_V3 = Model(
    name="deepseek-v3", layers=61, hidden=7168, vocab=129_280, heads=128, qk_dim=128 + 64, v_dim=128, ffn=18_432,
    attention_weights=latent(
        hidden=7168, heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128
    ),
    small_weights=2 * 7168 + 1536 + 512,
    experts=Experts(
        count=256, top_k=8, shared=1, ffn=2048, dense_layers=3, dispatch_bytes=FP8_BYTES, combine_bytes=BF16_BYTES
    ),
)
MODELS = {model.name: model for model in (LLAMA3_70B, DEEPSEEK_V3)}


def model_named(name: str) -> Model:
    """UsageError: no such model."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]
