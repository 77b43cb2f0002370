"""A platform: identity, capabilities, runtime; everything else has a working default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dougong.contracts.attention import AttentionRequest
from dougong.contracts.capabilities import Claims, DeviceFacts, QuantizationSupport
from dougong.contracts.config_view import ConfigChange, ConfigView
from dougong.contracts.device import DeviceRuntime
from dougong.contracts.support import Fault, KernelReport


class Platform(ABC):
    """A vendor's device family as the core uses it; made without arguments when it is chosen.

    The module imports without the vendor's runtime. `claims`, `facts` and the ``get_*`` methods are
    idempotent and free of side effects; one that raises is reported as the plugin's fault. Methods
    that name a class return an import string ``"package.module:Class"``.

    Attributes:
        name: As typed after ``--platform``; equals the descriptor's.
        device_type: torch's device type of its tensors.
        dispatch_key: torch's dispatch key of its kernels.
        dist_backend: Name of the torch.distributed backend; empty: none.
        visible_devices_env: Environment variable that masks devices; empty: none.
    """

    name: ClassVar[str]
    device_type: ClassVar[str]
    dispatch_key: ClassVar[str]
    dist_backend: ClassVar[str]
    visible_devices_env: ClassVar[str]

    @abstractmethod
    def claims(self, arch: str) -> Claims:
        """What a family can do; an unknown ``arch`` gets the claims that hold everywhere,
        with ``is_generic`` set."""

    def families(self) -> Sequence[str]:
        """Every ``arch`` that `claims` knows, for lists and messages; empty: not told."""
        return ()

    @abstractmethod
    def facts(self, device_index: int) -> DeviceFacts:
        """What one device measures. The core calls it in a short-lived child if
        `facts_open_context` is true.

        Raises:
            DeviceError: The device does not answer.
        """

    @property
    @abstractmethod
    def runtime(self) -> DeviceRuntime:
        """The one runtime of this instance."""

    @property
    def facts_open_context(self) -> bool:
        """Whether `facts` opens a device context, so that the parent must not call it."""
        return True

    def import_kernels(self) -> KernelReport:
        """Load kernel libraries, in each worker, after the device is set. A missing one is
        reported,
        not raised."""
        return KernelReport()

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """Values this platform needs or prefers, as data. The core applies them, never over a value
        the user set: that is an error naming both."""
        return ()

    def get_attn_backends(self) -> Mapping[str, str]:
        """Name → import string of every `AttentionBackend`, preferred first."""
        return {"reference/torch": "dougong.reference:ReferenceAttentionBackend"}

    def get_attn_backend_cls(self, request: AttentionRequest) -> str | None:
        """Name of the backend to use for one kind of layer; ``None``: the first that supports
        it."""
        return None

    def get_worker_cls(self) -> str:
        """The `Worker`."""
        return "dougong.reference:ReferenceWorker"

    def get_device_communicator_cls(self) -> str:
        """The `Communicator`."""
        return "dougong.reference:TorchCommunicator"

    def get_graph_runner_cls(self) -> str | None:
        """The `GraphRunner`; ``None``: no capture here."""
        return None

    def get_punica_wrapper(self) -> str | None:
        """The `LoRAWrapper`; ``None``: this platform computes no adapters, and a start that asks
        for them is refused. The core's own is plain torch, and may be captured."""
        return "dougong.reference:ReferenceLoRAWrapper"

    def get_supported_quantization(self) -> Sequence[QuantizationSupport]:
        """Weight formats this platform computes with; others are dequantized at load."""
        return ()

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Name a vendor exception in the core's terms; ``None``: not a device's fault."""
        return None
