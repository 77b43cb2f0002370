"""The plugin API: everything a platform implements, and everything it may name.

Import from here, from ``dougong.ops`` and from ``dougong.reference``; nothing else of the core is
published. Importing it does not import torch.
"""

from __future__ import annotations

from dougong.contracts.attention import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionPhase,
    AttentionRequest,
    CommonAttentionMetadata,
    MLAImpl,
)
from dougong.contracts.capabilities import Capabilities, Claims, DeviceFacts, QuantizationSupport
from dougong.contracts.claims_file import read_claims, read_families
from dougong.contracts.communicator import Communicator, DeadlinePhase, GroupKind, GroupOptions
from dougong.contracts.conditions import (
    AtLeast,
    AtMost,
    Between,
    BindRequest,
    Constraint,
    MultipleOf,
    Needs,
    OneOf,
    Property,
    TokenRange,
    Unmet,
    token_bounds,
)
from dougong.contracts.config_view import ConfigChange, ConfigView
from dougong.contracts.device import (
    DeviceRuntime,
    Event,
    MemoryInfo,
    MemoryPools,
    Profiler,
    Stream,
)
from dougong.contracts.device_mask import read_device_mask
from dougong.contracts.graph import GraphLevel, GraphRunner, GraphSupport
from dougong.contracts.hooks import ModelRegistration, StepStats, hookimpl
from dougong.contracts.kv_cache import (
    KVBuffer,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    dtype_bytes,
)
from dougong.contracts.layers import LinearMethod, LoRAWrapper, MoEBackend
from dougong.contracts.lora import LoRAPair, LoRAWeights, LoRAWorker
from dougong.contracts.platform import Platform
from dougong.contracts.plugin import Available, DeviceInfo, NotHere, PlatformPlugin, ProbeAnswer
from dougong.contracts.rank_plan import (
    AttentionAssignment,
    GraphAssignment,
    LoRAAssignment,
    OpAssignment,
    OpPiece,
    RankPlan,
    StoredWeights,
)
from dougong.contracts.registration import Mark, Registration, RegistrationKind
from dougong.contracts.support import Fault, KernelReport, Support
from dougong.contracts.version import CONTRACT_VERSION
from dougong.contracts.worker import (
    GrammarMask,
    IntermediateTensors,
    LoadReport,
    StepHandle,
    Worker,
    WorkerContext,
    WorkerState,
)
from dougong.errors import (
    CommunicatorTimeout,
    ConfigError,
    DeviceError,
    DeviceLost,
    ImplementationError,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
    PluginError,
    RequestError,
    UnsupportedError,
)
from dougong.messages.pooling import PoolingMethod, PoolingParams, PoolingSpec
from dougong.messages.request import SamplingParams
from dougong.messages.step import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    TokenLogprobs,
)
from dougong.messages.structured_output import StructuredOutput

__all__ = [
    "CONTRACT_VERSION",
    "AtLeast",
    "AtMost",
    "AttentionAssignment",
    "AttentionBackend",
    "AttentionImpl",
    "AttentionLimits",
    "AttentionMetadataBuilder",
    "AttentionPhase",
    "AttentionRequest",
    "Available",
    "Between",
    "BindRequest",
    "CachedRequestData",
    "Capabilities",
    "Claims",
    "CommonAttentionMetadata",
    "Communicator",
    "CommunicatorTimeout",
    "ConfigChange",
    "ConfigError",
    "ConfigView",
    "Constraint",
    "DeadlinePhase",
    "DeviceError",
    "DeviceFacts",
    "DeviceInfo",
    "DeviceLost",
    "DeviceRuntime",
    "Event",
    "Fault",
    "GrammarMask",
    "GraphAssignment",
    "GraphLevel",
    "GraphRunner",
    "GraphSupport",
    "GroupKind",
    "GroupOptions",
    "ImplementationError",
    "IntermediateTensors",
    "KVBuffer",
    "KVCacheConfig",
    "KVCacheGroup",
    "KVCacheSpec",
    "KVLayout",
    "KernelFault",
    "KernelReport",
    "LinearMethod",
    "LoRAAssignment",
    "LoRAPair",
    "LoRAWeights",
    "LoRAWorker",
    "LoRAWrapper",
    "LoadReport",
    "MLAImpl",
    "Mark",
    "MemoryInfo",
    "MemoryPools",
    "MoEBackend",
    "ModelRegistration",
    "ModelRunnerOutput",
    "MultipleOf",
    "Needs",
    "NewRequestData",
    "NotHere",
    "OneOf",
    "OpAssignment",
    "OpPiece",
    "OutOfDeviceMemory",
    "PeerLost",
    "Platform",
    "PlatformPlugin",
    "PluginError",
    "PoolingMethod",
    "PoolingParams",
    "PoolingSpec",
    "ProbeAnswer",
    "Profiler",
    "Property",
    "QuantizationSupport",
    "RankPlan",
    "Registration",
    "RegistrationKind",
    "RequestError",
    "SamplingParams",
    "SchedulerOutput",
    "StepHandle",
    "StepStats",
    "StoredWeights",
    "Stream",
    "StructuredOutput",
    "Support",
    "TokenLogprobs",
    "TokenRange",
    "Unmet",
    "UnsupportedError",
    "Worker",
    "WorkerContext",
    "WorkerState",
    "dtype_bytes",
    "hookimpl",
    "read_claims",
    "read_device_mask",
    "read_families",
    "token_bounds",
]
