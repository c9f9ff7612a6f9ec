"""From weights and settings to what computes: cache, model, scheduler, runner. Nothing here knows text, requests or threads."""

from dataclasses import dataclass
from time import monotonic

import torch

from backends.child.errors import LoadError
from backends.engine.config import EngineConfig
from backends.engine.kv.groups import KvGroup, layer_groups
from backends.engine.kv.manager import BlockManager
from backends.engine.model.rope import angle_table
from backends.engine.model.transformer import Transformer
from backends.engine.model.weights import ModelWeights
from backends.engine.precision.precisions import Precisions
from backends.engine.runner import Runner
from backends.engine.scheduling.limits import Limits
from backends.engine.scheduling.scheduler import Scheduler
from backends.engine.shape import ModelShape
from kernels.batch import AttentionShape, KvPool, LayerPlace
from kernels.ops import Device, Ops

_DEFAULT_CONTEXT = 4096
_LEAST_CONTEXT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One model, ready to compute.

    Args:
        limit: the most tokens that one request may use.
        pools: the memory of the cache, one for each group of layers.
        scheduler: plans the steps.
        runner: computes them.
    """

    limit: int
    model: Transformer
    pools: list[KvPool]
    scheduler: Scheduler
    runner: Runner

    @property
    def cache_tokens(self) -> int:
        """How many tokens the cache holds, for all sequences together."""
        return self.pools[0].cache.shape[0] * self.pools[0].block

    @property
    def cache_bytes(self) -> int:
        """What the cache takes."""
        return sum(pool.cache.nbytes + (0 if pool.scales is None else pool.scales.nbytes) for pool in self.pools)


def build_engine(
    shape: ModelShape,
    weights: ModelWeights,
    precisions: Precisions,
    config: EngineConfig,
    device: Device,
    tokens: int | None = None,
) -> Engine:
    """Put an engine around loaded weights. The cache is allocated here; weights may be shared by several engines.

    Args:
        precisions: those that the weights were loaded in.
        device: the one that they were made for.
        tokens: see `Transformer`.

    Raises:
        LoadError: settings do not fit the model or each other.
    """
    limit, dtype = request_limit(config, shape), activation_dtype(precisions, device)
    pools = _make_pools(shape, config, limit, dtype, device)
    ops = _make_ops(device, shape, weights, pools, limit, dtype)
    model = Transformer(shape, weights, ops, tokens)
    return Engine(
        limit=limit,
        model=model,
        pools=pools,
        scheduler=_make_scheduler(config, pools, precisions, limit),
        runner=Runner(model, pools, config.slots, limit, device),
    )


def _make_ops(
    device: Device, shape: ModelShape, weights: ModelWeights, pools: list[KvPool], limit: int, dtype: torch.dtype
) -> Ops:
    try:
        return device.ops(_attention(shape), pools, _places(shape, weights, limit, device), dtype)
    except ValueError as error:
        raise LoadError(str(error)) from error


def request_limit(config: EngineConfig, shape: ModelShape) -> int:
    """The most tokens that one request may use.

    Raises:
        LoadError: more are asked for than the model was trained for.
    """
    limit = config.context or min(shape.context, _DEFAULT_CONTEXT)
    if limit > shape.context:
        raise LoadError(f"context is {limit} tokens, the model was trained for {shape.context}")
    return limit


def activation_dtype(precisions: Precisions, device: Device) -> torch.dtype:
    """float32 only where all weights are: everything else computes in 16 bits between the products."""
    exact = precisions.decode == "fp32" and precisions.prefill in (None, "fp32")
    return torch.float32 if exact else device.half


def _make_pools(shape: ModelShape, config: EngineConfig, limit: int, dtype: torch.dtype, device: Device) -> list[KvPool]:
    """One pool of blocks for each group of layers, all of the same number of blocks."""
    kind = _cache_type(config, dtype, device)
    coded = kind in (torch.int8, torch.float8_e4m3fn)
    block = config.block or device.block
    per_token = 2 * len(shape.layers) * shape.kv_heads * (shape.head_dim * kind.itemsize + 4 * coded)
    tokens = config.kv_tokens
    if not tokens:
        tokens = limit * config.slots
        most = device.memory_for_cache()
        while tokens > _LEAST_CONTEXT and tokens * per_token > most:
            tokens //= 2
    blocks = max(1, tokens // block)
    pools = []
    for group in layer_groups(shape):
        size = (blocks, len(group.layers), 2, block, shape.kv_heads)
        scales = torch.zeros(size, device=device.place) if coded else None
        cache = torch.zeros(*size, shape.head_dim, dtype=kind, device=device.place)
        pools.append(KvPool(cache, scales, group.window))
    return pools


def _cache_type(config: EngineConfig, dtype: torch.dtype, device: Device) -> torch.dtype:
    kinds = {"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
    kind = dtype if config.kv == "auto" else kinds[config.kv]
    if kind == torch.float8_e4m3fn and not device.has_fp8:
        raise LoadError(f"kv is fp8, which {device.name} does not have")
    if kind not in (dtype, torch.int8, torch.float8_e4m3fn):
        wanted = "fp32" if dtype == torch.float32 else "bf16"
        raise LoadError(f"kv is {config.kv}, but with these precisions of the weights it must be {wanted} or int8")
    return kind


def _attention(shape: ModelShape) -> AttentionShape:
    return AttentionShape(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        scale=shape.query_scale,
        epsilon=shape.norm_eps,
        softcap=shape.attention_softcap,
        gelu=shape.activation == "gelu_tanh",
    )


def _places(shape: ModelShape, weights: ModelWeights, positions: int, device: Device) -> list[LayerPlace]:
    """Where each layer's keys are, and its table of angles; layers with the same rotation share one."""
    ropes = {layer.rope for layer in shape.layers}
    tables = {rope: angle_table(rope, shape.head_dim, positions).to(device.place) for rope in ropes}
    where = {layer: (g, index) for g, group in enumerate(layer_groups(shape)) for index, layer in enumerate(group.layers)}
    return [
        LayerPlace(pool=where[i][0], index=where[i][1], angles=tables[layer.rope], q_norm=norms.q, k_norm=norms.k)
        for i, (layer, norms) in enumerate(zip(shape.layers, weights.norms, strict=True))
    ]


def _make_scheduler(config: EngineConfig, pools: list[KvPool], precisions: Precisions, limit: int) -> Scheduler:
    limits = Limits(
        slots=config.slots,
        budget=config.step_tokens,
        chunk=config.prefill_chunk,
        context=limit,
        draft_below=config.draft_below if config.draft_tokens else 0,
    )
    groups = [KvGroup(window=pool.window, blocks=pool.cache.shape[0], block=pool.block) for pool in pools]
    return Scheduler(
        limits,
        BlockManager(groups, lineage=f"{precisions}"),
        monotonic,
        share_decoded=precisions.prefill is None,
        propose=lambda sequence: sequence.work.propose(sequence),
    )
