"""Language models of transformers: small, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tests.gpu.zoo.world import Draw, Model, words

LENGTH = 12
# What most configurations have, by the names that most of them know it by.
SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
DECODER = {"num_key_value_heads": 2, "head_dim": 8}
# Sequence-to-sequence models name the sizes of both halves.
HALVES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 1,
    "encoder_layerdrop": 0.0,  # the host draws which layers are dropped
    "decoder_layerdrop": 0.0,
}


def _mask(_generator: torch.Generator, rows: int) -> Any:
    """Return which words there are: the first row is shorter."""
    mask = torch.ones(rows, LENGTH, dtype=torch.long)
    mask[0, -3:] = 0
    return mask


TEXT = {"input_ids": words(LENGTH)}
PADDED = {**TEXT, "attention_mask": _mask}
TRANSLATED = {**PADDED, "decoder_input_ids": words(7)}


def from_config(
    name: str, arguments: Mapping[str, Draw], *, compiles: bool = False, **sizes: Any
) -> Model:
    """Return a model of transformers by the name of its class, with these and the common sizes.

    A size that is None is left to the configuration.
    """

    def make() -> Any:
        import transformers

        kind = getattr(transformers, name)
        given = {size: value for size, value in (SIZES | sizes).items() if value is not None}
        return kind(kind.config_class(**given))

    return Model(make, arguments, compiles)


ENCODERS = {
    "BERT": from_config("BertForMaskedLM", PADDED, compiles=True),
    "BERT, for classes": from_config("BertForSequenceClassification", TEXT),
    "RoBERTa": from_config("RobertaModel", PADDED),
    "ALBERT": from_config("AlbertModel", PADDED, embedding_size=16),
    "DistilBERT": from_config(
        "DistilBertModel", PADDED, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    ),
    "ELECTRA": from_config("ElectraForPreTraining", PADDED, embedding_size=16),
    "DeBERTa-v2": from_config(
        "DebertaV2Model", PADDED, relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    "MPNet": from_config("MPNetModel", PADDED),
    "ModernBERT": from_config("ModernBertModel", PADDED, local_attention=4),
    "FNet": from_config("FNetModel", TEXT),
    "XLNet": from_config("XLNetModel", TEXT, d_inner=64, d_head=8, max_position_embeddings=None),
    "ConvBERT": from_config("ConvBertModel", PADDED, embedding_size=32),
    "SqueezeBERT": from_config("SqueezeBertModel", PADDED, embedding_size=32),
}

DECODERS = {
    "GPT-2": from_config("GPT2LMHeadModel", TEXT, compiles=True),
    "GPT-Neo": from_config(
        "GPTNeoForCausalLM", TEXT, attention_types=[[["global", "local"], 1]], window_size=4
    ),
    "GPT-NeoX": from_config("GPTNeoXForCausalLM", TEXT),
    "GPT-J": from_config("GPTJForCausalLM", TEXT, rotary_dim=4),
    "OPT": from_config("OPTForCausalLM", PADDED, ffn_dim=64, word_embed_proj_dim=32),
    "Bloom": from_config("BloomForCausalLM", PADDED),
    "Llama": from_config("LlamaForCausalLM", TEXT, compiles=True, **DECODER),
    "Mistral, sliding window": from_config(
        "MistralForCausalLM", PADDED, sliding_window=4, **DECODER
    ),
    "Qwen2": from_config("Qwen2ForCausalLM", PADDED, **DECODER),
    "Qwen3": from_config("Qwen3ForCausalLM", TEXT, **DECODER),
    "Gemma2": from_config(
        "Gemma2ForCausalLM", TEXT, sliding_window=4, query_pre_attn_scalar=8, **DECODER
    ),
    "Phi": from_config("PhiForCausalLM", TEXT, num_key_value_heads=2),
    "Phi-3": from_config("Phi3ForCausalLM", TEXT, num_key_value_heads=2),
    "Falcon": from_config("FalconForCausalLM", TEXT),
    "StableLM": from_config("StableLmForCausalLM", TEXT, num_key_value_heads=2),
    "OLMo2": from_config("Olmo2ForCausalLM", TEXT, num_key_value_heads=2),
    "Mixtral": from_config(
        "MixtralForCausalLM", TEXT, num_local_experts=4, num_experts_per_tok=2, **DECODER
    ),
    "Qwen2-MoE": from_config(
        "Qwen2MoeForCausalLM",
        TEXT,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        **DECODER,
    ),
    "Mamba, slow path": from_config("MambaForCausalLM", TEXT, state_size=8),
    # It would divide its weights in place in evaluation mode.
    "RWKV": from_config(
        "RwkvForCausalLM", TEXT, attention_hidden_size=32, context_length=32, rescale_every=0
    ),
}

TRANSLATORS = {
    "T5": from_config(
        "T5ForConditionalGeneration",
        TRANSLATED,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    "BART": from_config("BartForConditionalGeneration", TRANSLATED, **HALVES),
    "Pegasus": from_config("PegasusForConditionalGeneration", TRANSLATED, **HALVES),
    "Marian": from_config("MarianMTModel", TRANSLATED, **HALVES),
    "M2M-100": from_config("M2M100ForConditionalGeneration", TRANSLATED, **HALVES),
}
