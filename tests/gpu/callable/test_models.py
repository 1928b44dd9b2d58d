"""Graphed models beside eager ones: kinds, precisions, autocast, allocators, other libraries."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays, run_torch_script

names = pytest.mark.parametrize("name", ["mlp", "convolutions", "attention", "embedding"])


@pytest.fixture
def models(torch: Any) -> Any:
    from tests.gpu.support import callable_models

    return callable_models


@names
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_gives_what_it_gives_eagerly(
    torch: Any, models: Any, name: str, dtype: str
) -> None:
    models.check_parity(name, getattr(torch, dtype))


@names
def test_static_results_are_those_of_the_call(models: Any, name: str) -> None:
    models.check_parity(name, outputs="static")


@names
@pytest.mark.parametrize("cache", [True, False])
def test_autocast_follows_the_weights_with_and_without_its_cache(
    torch: Any, models: Any, name: str, cache: bool
) -> None:
    module = models.make(name, trainable=True)  # autocast's cache takes no others

    def autocast() -> Any:
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cache)

    with torch.no_grad(), autocast():
        module(*models.inputs(name, 0))
        fast = gpuprof.make_graphed_callable(module, models.inputs(name, 0))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    noise = [torch.full((1 << 18,), float("nan"), device="cuda") for _ in range(16)]
    for step in range(3):
        with torch.no_grad(), autocast():
            given = models.inputs(name, step)
            models.check_same_seed(name, module, fast, given, step, computed=torch.bfloat16)
    assert_replays(fast, 3)
    del noise


def test_autocast_that_is_entered_later_gets_a_graph_of_its_own(torch: Any, models: Any) -> None:
    module = models.make("mlp")
    given = models.inputs("mlp", 1)
    fast = gpuprof.make_graphed_callable(module, models.inputs("mlp", 0))
    for _ in range(2):
        models.assert_same("mlp", fast(*given), module(*given))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = fast(*given)
            assert found.dtype == torch.bfloat16
            models.assert_same("mlp", found, module(*given))
    assert_replays(fast, 4, captures=2)


@pytest.mark.parametrize("converted", ["captured", "called"])
def test_channels_last_gives_what_it_gives_eagerly(torch: Any, models: Any, converted: str) -> None:
    module = models.make("convolutions").to(memory_format=torch.channels_last)
    sample = models.inputs("convolutions", 0)[0]
    if converted == "captured":
        sample = sample.to(memory_format=torch.channels_last)
    fast = gpuprof.make_graphed_callable(module, (sample,))
    for step in range(3):
        given = models.inputs("convolutions", step)[0].to(memory_format=torch.channels_last)
        models.assert_same("convolutions", fast(given), module(given))
    # An in-place ReLU on what may be a copy of the argument makes strides part of the key.
    captures = fast.stats().captures
    assert captures == 1 or (captures == 2 and converted == "called")
    assert_replays(fast, 3, captures=captures)


def test_a_result_in_channels_last_is_so_in_every_call(torch: Any, models: Any) -> None:
    module = models.make("convolutions")[0].to(memory_format=torch.channels_last)
    sample = models.inputs("convolutions", 0)[0].to(memory_format=torch.channels_last)
    fast = gpuprof.make_graphed_callable(module, (sample,))
    found = fast(sample)
    assert found.is_contiguous(memory_format=torch.channels_last)
    models.assert_same("convolutions", found, module(sample))
    assert_replays(fast, 1)


# How each allocator is asked for, and how torch says that it is in use.
ALLOCATORS = {
    "expandable_segments:True": (
        'any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())'
    ),
    "backend:cudaMallocAsync": 'torch.cuda.get_allocator_backend() == "cudaMallocAsync"',
}


@pytest.mark.parametrize("setting", ALLOCATORS)
def test_models_give_what_they_give_eagerly_under_other_allocators(
    torch: Any, setting: str
) -> None:
    run_torch_script(
        f"""
        from tests.gpu.support import callable_models as models
        kept = torch.zeros(1 << 20, device="cuda")
        assert {ALLOCATORS[setting]}
        for name in ("mlp", "convolutions", "attention", "embedding"):
            models.check_parity(name)
        models.check_kept_results(100)
        torch.cuda.synchronize()
        """,
        PYTORCH_ALLOC_CONF=setting,
        PYTORCH_CUDA_ALLOC_CONF=setting,  # its name before torch 2.10
    )


def test_a_module_is_left_as_it_is_and_its_hooks_run_at_capture(torch: Any, models: Any) -> None:
    module = models.make("mlp")
    ran = []

    def double(_module: Any, _given: Any, result: Any) -> Any:
        ran.append("after")
        return result * 2

    module.register_forward_pre_hook(lambda _module, _given: ran.append("before"))
    module[0].register_forward_hook(double)
    own = dict(vars(module))
    fast = gpuprof.make_graphed_callable(module, models.inputs("mlp", 0))
    captured = len(ran)
    assert "after" in ran
    found = [fast(*models.inputs("mlp", step)) for step in range(3)]
    assert len(ran) == captured
    assert vars(module).keys() == own.keys()
    assert "forward" not in vars(module)
    for step, result in enumerate(found):
        models.assert_same("mlp", result, module(*models.inputs("mlp", step)))
    assert_replays(fast, 3)


def test_a_compiled_function_is_captured(torch: Any) -> None:
    pytest.importorskip("triton", reason="torch.compile needs Triton")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("torch.compile needs a C compiler")

    @torch.compile
    def compiled(values: Any, scale: Any) -> Any:
        return torch.relu(values * scale).sum(dim=1) + 1

    scale = torch.rand(64, device="cuda")
    fast = gpuprof.make_graphed_callable(compiled, (torch.rand(16, 64, device="cuda"), scale))
    for _ in range(3):
        given = torch.randn(16, 64, device="cuda")
        torch.testing.assert_close(fast(given, scale), compiled(given, scale))
    assert_replays(fast, 3)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_transformers_model_gives_what_it_gives_eagerly(torch: Any, kind: str) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers, whose models are torch's, is not installed"
    )
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(
            vocab_size=128,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.GPT2Config(
            vocab_size=128,
            n_positions=64,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
        model = transformers.GPT2LMHeadModel(config)
    model = model.eval().to("cuda")
    given = [torch.randint(128, (2, 12), device="cuda") for _ in range(3)]
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(model, (given[0],), {"use_cache": False})
        for ids in given:
            found = fast(ids, use_cache=False)
            wanted = model(input_ids=ids, use_cache=False)
            assert type(found) is type(wanted)
            assert found.keys() == wanted.keys()
            torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-5, atol=1e-5)
    assert_replays(fast, 3)
