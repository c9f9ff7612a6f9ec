"""The architectures and image/audio projectors that the linked llama.cpp implements, and what is special about some of them.

A file that names anything else is refused before native code sees it. Source: `src/llama-arch.cpp` (`LLM_ARCH_NAMES`,
`llm_arch_is_recurrent`) and `tools/mtmd/clip-impl.h` as vendored by llama-cpp-python 0.3.36: read them again whenever that
version changes.
"""

# Of files that hold a projector; it is no language model.
PROJECTOR_ARCHITECTURE = "clip"

_ARCHITECTURES = """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom chameleon
    chatglm codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32
    deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon
    falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next
    gpt-oss gpt2 gptj gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text
    hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3
    kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2 maple mellum
    mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige
    nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr
    pangu-embedded phi2 phi3 phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35
    qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss
    smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder talkie wavtokenizer-dec xverse
"""
ARCHITECTURES = frozenset(_ARCHITECTURES.split())

# These have no attention heads: `head_count` is 0.
RECURRENT_ARCHITECTURES = frozenset({"arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"})

# These turn text into vectors even when the file says nothing about pooling.
_EMBEDDING_ARCHITECTURES = """
    bert eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert nomic-bert
    nomic-bert-moe t5encoder
"""
EMBEDDING_ARCHITECTURES = frozenset(_EMBEDDING_ARCHITECTURES.split())

_PROJECTORS = """
    adapter cogvlm deepseek4v deepseekocr deepseekocr2 dots3note_a dots3note_v dots_ocr exaone4_5 gemma3 gemma3na
    gemma3nv gemma4a gemma4ua gemma4uv gemma4v glm4v glm5v glma granite4_vision granite_speech hunyuanvl idefics3
    internvl janus_pro kimik25 kimivl ldp ldpv2 lfm2 lfm2a lightonocr ling3vl llama4 meralion mimo_audio mimovl
    minicpmv4_6 minimax_m3 mlp muse-glimmer musicflamingo nemotron_v2_vl paddleocr parakeet phi4 pixtral
    pockettts_gen pockettts_spkenc qwen2.5o qwen2.5vl_merger qwen2a qwen2vl_merger qwen3a qwen3tts_gen
    qwen3tts_spkenc qwen3vl_merger resampler step3vl ultravox voxtral yasa2 youtuvl
"""
PROJECTORS = frozenset(_PROJECTORS.split())
