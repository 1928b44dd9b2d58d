"""Models of images, sound and time series of transformers: small, with random weights."""

from __future__ import annotations

from typing import Any

from tests.gpu.zoo.language import HALVES, TEXT, from_config
from tests.gpu.zoo.world import Model, numbers, words

SIDE = 32
PATCHES = {"image_size": SIDE, "patch_size": 8}
STAGES = {"embed_dim": 16, "depths": [2, 2], "num_attention_heads": [2, 4], "window_size": 4}
# Masks of what is hidden in training are drawn by NumPy, and layers are dropped by the host.
SOUND: dict[str, Any] = {
    "conv_dim": [16, 16],
    "conv_stride": [5, 4],
    "conv_kernel": [10, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "apply_spec_augment": False,
    "layerdrop": 0.0,
}


IMAGE = {"pixel_values": numbers(3, SIDE, SIDE)}
LARGE_IMAGE = {"pixel_values": numbers(3, 2 * SIDE, 2 * SIDE)}  # it becomes 32 times smaller
WAVE = {"input_values": numbers(800)}
SPECTRUM = {"input_values": numbers(32, 16)}
TRANSCRIBED = {"input_features": numbers(16, 40), "decoder_input_ids": words(7)}
TWO_CHANNELS = {"past_values": numbers(32, 2)}


def _two(kind: str) -> Model:
    """Return a model of images and texts, with a tower for each."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "projection_dim": 16}
    text = {**sizes, "vocab_size": 96, "max_position_embeddings": 64}
    text |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    towers = {"text_config": text, "vision_config": {**sizes, **PATCHES}}
    return from_config(kind, {**TEXT, **IMAGE}, projection_dim=16, **towers)


def _detr() -> Any:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        **HALVES, backbone_config=backbone, num_queries=5, num_labels=4, use_cache=False
    )
    return transformers.DetrForObjectDetection(config)


def _mask2former() -> Any:
    import transformers

    backbone = transformers.SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    sizes = {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "num_queries": 5}
    sizes |= {"encoder_layers": 1, "decoder_layers": 2, "num_attention_heads": 2}
    sizes |= {"encoder_feedforward_dim": 32, "dim_feedforward": 32, "num_labels": 4}
    config = transformers.Mask2FormerConfig(backbone_config=backbone, **sizes)
    return transformers.Mask2FormerForUniversalSegmentation(config)


IMAGES = {
    "ViT": from_config("ViTModel", IMAGE, compiles=True, **PATCHES),
    "DeiT": from_config("DeiTForImageClassification", IMAGE, **PATCHES),
    "Swin": from_config("SwinModel", IMAGE, image_size=SIDE, patch_size=2, **STAGES),
    "Swin v2": from_config("Swinv2Model", IMAGE, image_size=SIDE, patch_size=2, **STAGES),
    "BEiT": from_config("BeitModel", IMAGE, **PATCHES),
    "ConvNeXt": from_config(
        "ConvNextModel", IMAGE, patch_size=2, num_stages=2, hidden_sizes=[16, 32], depths=[2, 2]
    ),
    "ConvNeXt v2": from_config(
        "ConvNextV2Model", IMAGE, patch_size=2, num_stages=2, hidden_sizes=[16, 32], depths=[2, 2]
    ),
    "DINOv2": from_config("Dinov2Model", IMAGE, mlp_ratio=2, **PATCHES),
    "PoolFormer": from_config(
        "PoolFormerModel", LARGE_IMAGE, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]
    ),
    "SegFormer": from_config(
        "SegformerForSemanticSegmentation",
        LARGE_IMAGE,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    ),
    "ResNet": from_config(
        "ResNetModel", IMAGE, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]
    ),
    "DETR": Model(_detr, IMAGE),
    "Mask2Former": Model(_mask2former, LARGE_IMAGE),
    "CLIP": _two("CLIPModel"),
    "SigLIP": _two("SiglipModel"),
}

SOUNDS = {
    "wav2vec2": from_config("Wav2Vec2Model", WAVE, **SOUND),
    "HuBERT": from_config("HubertModel", WAVE, **SOUND),
    "WavLM": from_config("WavLMModel", WAVE, **SOUND),
    "AST": from_config(
        "ASTModel",
        SPECTRUM,
        patch_size=8,
        frequency_stride=8,
        time_stride=8,
        max_length=32,
        num_mel_bins=16,
    ),
    "Whisper": from_config(
        "WhisperForConditionalGeneration",
        TRANSCRIBED,
        **HALVES,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=20,
    ),
}

SERIES = {
    "PatchTST": from_config(
        "PatchTSTForPrediction",
        TWO_CHANNELS,
        num_input_channels=2,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=32,
        ffn_dim=64,
        prediction_length=8,
    ),
}
