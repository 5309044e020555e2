"""Ask a running lab kernel what it is doing, through UML's management console.

Wire format: struct mconsole_request and mconsole_reply of arch/um/drivers/mconsole.h, datagrams both ways.
Asks for registers (sysrq `p`), not for all tasks (`t`): printing the stack of a sleeping kernel thread panics 6.1.
"""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path

MAGIC, VERSION, MAX_DATA = 0xCAFEBABE, 2, 512
REPLY_HEADER = struct.Struct("=III")        # error, more to come, length
ANSWER_S = 0.5                              # a kernel that answers does so within a millisecond
TRIES = 3                                   # the first request can lie unseen until the next one raises its signal
IDLE = "swapper"


def running_tasks(folder: Path) -> str:
    """In words, what was on the CPU; `folder` is the kernel's uml_dir/umid."""
    found = re.search(r"comm: (.+?) (?:Not t|T)ainted", ask(folder / "mconsole", "sysrq p"))
    if found is None:
        return "the kernel did not answer"
    if found[1] == IDLE:
        return "nothing was running, every process waits for something that does not come"
    return f"{found[1]} was running (time moves only when nothing runs: a loop that waits for the clock never ends)"


def ask(console: Path, request: str) -> str:
    """The kernel's answer to one request, "" when there is none."""
    own = console.with_name("asker")
    data = request.encode()
    datagram = struct.pack(f"=III{MAX_DATA}s", MAGIC, VERSION, len(data), data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(ANSWER_S)
        try:
            channel.bind(str(own))
            answers = (_exchange(channel, datagram, str(console)) for _ in range(TRIES))
            return next((answer for answer in answers if answer), "")
        except OSError:                     # no console: the kernel has not come so far, or is gone
            return ""
        finally:
            own.unlink(missing_ok=True)


def _exchange(channel: socket.socket, datagram: bytes, console: str) -> str:
    channel.sendto(datagram, console)
    text, more = "", True
    try:
        while more:
            reply = channel.recv(REPLY_HEADER.size + MAX_DATA)
            _error, more, length = REPLY_HEADER.unpack_from(reply)
            text += reply[REPLY_HEADER.size:REPLY_HEADER.size + length].decode(errors="replace").rstrip("\0")
    except TimeoutError:
        pass
    return text
