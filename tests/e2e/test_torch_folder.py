"""A Hugging Face folder through the command line, with more words in the model than its tokenizer has tokens."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.e2e.gateway_process import Server, serving

TOKENS, WORDS, HIDDEN, WIDE, HEADS, LAYERS = 258, 320, 64, 128, 2, 2
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def write_tokenizer(folder: Path) -> None:
    """Every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    assert tokenizer.get_vocab_size() == TOKENS
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_weights(folder: Path) -> None:
    """Random ones; the words that stand for no token are the likeliest by far."""
    random = torch.Generator().manual_seed(1)
    shapes = {"model.embed_tokens.weight": (WORDS, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (WORDS, HIDDEN)}
    for i in range(LAYERS):
        layer = {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (HIDDEN, HIDDEN),
            "self_attn.v_proj": (HIDDEN, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (WIDE, HIDDEN),
            "mlp.up_proj": (WIDE, HIDDEN),
            "mlp.down_proj": (HIDDEN, WIDE),
        }
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    tensors = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    tensors["lm_head.weight"][TOKENS:] *= 100
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")


@pytest.fixture(scope="module")
def folder_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models") / "Tiny-Llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer(folder)
    write_weights(folder)
    with serving(tmp_path_factory.mktemp("folder"), "--model", str(folder)) as gateway:
        gateway.wait_until_ready()
        yield gateway


def test_folder_is_served_under_its_name(folder_server: Server) -> None:
    [model] = folder_server.http.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny-llama", 256)
    [token, *_] = folder_server.http.post("/tokenize", json={"content": "A"}).json()["tokens"]
    assert folder_server.http.post("/detokenize", json={"tokens": [token]}).json()["content"] == "A"


@pytest.mark.parametrize("temperature", [0, 2])
def test_words_that_stand_for_no_token_are_neither_chosen_nor_shown(folder_server: Server, temperature: float) -> None:
    answer = folder_server.chat(max_tokens=40, temperature=temperature, logprobs=True, top_logprobs=20, ignore_eos=True)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    scored = choice["logprobs"]["content"]
    assert len(scored) == 40
    assert len(choice["message"]["content"]) > 20, "tokens without text were chosen"
    for token in scored:
        tops = token["top_logprobs"]
        assert len(tops) == 20
        assert sum(not top["bytes"] for top in tops) <= 2, "only <s> and </s> have no text"
        # As if the model had no such words: else next to nothing would be left for the others.
        assert tops[0]["logprob"] > -20


def test_prompt_is_scored_over_the_tokens_alone(folder_server: Server) -> None:
    body = {"prompt": "Tiny", "echo": True, "max_tokens": 0, "logprobs": 5}
    scores = folder_server.http.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert "".join(scores["tokens"]) == "Tiny"
    assert all(max(top.values()) > -20 for top in scores["top_logprobs"][1:])


def test_words_that_stand_for_no_token_change_nothing_where_a_client_names_them(folder_server: Server) -> None:
    options = {"prompt": "Tiny", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    first = folder_server.http.post("/v1/completions", json=options).json()["choices"][0]["text"]
    biased = folder_server.http.post("/v1/completions", json=options | {"logit_bias": {str(TOKENS): 100}})
    assert biased.json()["choices"][0]["text"] == first
    named = {"prompt": [65, TOKENS, TOKENS + 1], "repetition_penalty": 1.5, "echo": True, "logprobs": 1}
    answer = folder_server.http.post("/v1/completions", json=options | named)
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert folder_server.metric("baton_engine_crashes_total") == 0
