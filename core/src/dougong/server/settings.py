"""How a server behaves, as its operator asked; plain data."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from dougong.errors import ConfigError
from dougong.server.openai.tool_formats import check_tool_format

MAX_ID_LENGTH = 128  # characters of an X-Request-Id


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Wishes of whoever runs a server.

    Attributes:
        host: Address to listen at.
        port: 0: any free one.
        model_names: What clients may call the model; the first one is shown. Never empty.
        api_keys: Any of them opens every route but ``/health`` and the status page's files; empty:
            all is open.
        cors_origins: Origins whose pages may read answers; empty: none.
        max_body_bytes: Of one request.
        max_live_sequences: Answers running and waiting together; more are told to come later.
        drain_timeout_s: How long open answers may go on once the server was told to stop.
        allow_lora_updates: Clients may load adapters from this machine's disk, and unload them.
        tool_call_parser: How the model writes calls of tools; ``None``: as its template shows.
        dead_engine_grace_s: How long a server tells of its dead engine before it ends.

    Raises:
        ConfigError: A number is out of range, or there is no name; all problems together.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_names: tuple[str, ...]
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 2 * 2**20
    max_live_sequences: int = 4096
    drain_timeout_s: float = 60.0
    dead_engine_grace_s: float = 10.0
    allow_lora_updates: bool = False
    tool_call_parser: str | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        check_tool_format(self.tool_call_parser)
        rules = (
            (0 <= self.port < 2**16, f"port={self.port}; it takes 0 (any) to 65535."),
            (bool(self.model_names) and all(self.model_names), "a model name is empty."),
            (all(self.api_keys), "an API key is empty, which would be no key at all."),
            (self.max_body_bytes >= 1024, "max_body_bytes is below 1024."),
            (self.max_live_sequences >= 1, "max_live_sequences is below 1."),
            (self.drain_timeout_s >= 0, "drain_timeout is below 0."),
            (self.dead_engine_grace_s >= 0, "dead_engine_grace is below 0."),
        )
        if problems := tuple(text for holds, text in rules if not holds):
            raise ConfigError("The server cannot be run as asked:", problems)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
