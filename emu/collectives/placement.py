"""Which rank is which GPU: rank r is GPU r mod g of server r div g, as launchers number them.

The NIC of GPU k of a server is on rail k. Two GPUs of one server talk over the scale-up domain, if there is one.
Source: Megatron's and NCCL's rank order; the reference article's section on attaching a server's NICs.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import UsageError

Rails = tuple[int, int]


@dataclass(frozen=True)
class Placement:
    """`ranks` GPUs, `gpus_per_server` in a server. scale_up=False: GPUs of one server talk over their NICs as well."""

    ranks: int
    gpus_per_server: int = 1
    scale_up: bool = True

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise UsageError(f"a collective over ranks={self.ranks}; want at least 2")
        if self.gpus_per_server < 1 or self.ranks % self.gpus_per_server:
            raise UsageError(
                f"ranks={self.ranks} do not fill servers of gpus_per_server={self.gpus_per_server}; "
                f"want a multiple, or one of {', '.join(str(g) for g in range(1, 17) if self.ranks % g == 0)} GPUs"
            )

    @property
    def servers(self) -> int:
        return self.ranks // self.gpus_per_server

    def server(self, rank: int) -> int:
        return rank // self.gpus_per_server

    def gpu(self, rank: int) -> int:
        """Number of the GPU in its server, which is the rail its own NIC is on."""
        return rank % self.gpus_per_server

    def rank(self, server: int, gpu: int) -> int:
        """`gpu` may run past the last one of the server: it goes round."""
        return server * self.gpus_per_server + gpu % self.gpus_per_server

    def members(self, server: int) -> range:
        return range(server * self.gpus_per_server, (server + 1) * self.gpus_per_server)

    def rails(self, source: int, target: int, through: int | None = None) -> Rails | None:
        """NICs (sender's, receiver's) between two ranks, or None where the scale-up domain carries it.

        Each uses its own NIC, unless both reach NIC `through` of their server over the scale-up domain.
        """
        if self.scale_up and self.server(source) == self.server(target):
            return None
        if through is not None and self.scale_up:
            return (through % self.gpus_per_server,) * 2
        return self.gpu(source), self.gpu(target)


def need_scale_up(placement: Placement, algorithm: str) -> None:
    """UsageError where the servers have no scale-up domain, without which `algorithm` cannot run."""
    if not placement.scale_up:
        raise UsageError(f"{algorithm} works inside the scale-up domain; want servers that have one (scale_up=True)")
