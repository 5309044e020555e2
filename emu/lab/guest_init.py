"""First process of the lab kernel: prepare a usable Linux, run one command, report how it ended, switch off.

The host's tree is the root; what must not leak to or from the host (/run, /tmp, /dev/shm) is memory instead. Output
goes to files of the run's own folder, written through at once, so that the host sees it live and no slow reader there
can ever make virtual time pass (a full pipe or terminal could). Stand-alone: guest.py copies it into the run's folder.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import traceback

HOST_RUN = "/proc/self/cwd"                 # the run's folder as the host resolves it: the kernel process works there
RUN = "/run/railbed-lab"                    # the same folder as the guest sees it
IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS = 0x1, 0x8913, 0x8914        # linux/if.h, linux/sockios.h
RB_POWER_OFF = 0x4321FEDC                   # linux/reboot.h
ETH_P_ALL, SOL_PACKET, PACKET_FANOUT, PACKET_FANOUT_HASH = 3, 263, 18, 0     # linux/if_packet.h
MNT_DETACH = 2                              # sys/mount.h
MEMORY_FOLDERS = ("/run", "/tmp", "/dev/shm")
_libc = ctypes.CDLL(None, use_errno=True)


def mount(kind: str, target: str, options: str = "") -> None:
    """mount(2) of a file system without a device."""
    if _libc.mount(b"none", target.encode(), kind.encode(), 0, options.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind}: {os.strerror(code)}", target)


def mount_system() -> None:
    """The kernel's own file systems and fresh memory folders, over the host's."""
    mount("devtmpfs", "/dev")
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("bpf", "/sys/fs/bpf")
    os.mkdir("/dev/pts")
    os.mkdir("/dev/shm")
    mount("devpts", "/dev/pts", "ptmxmode=0666,mode=0620")
    for folder in MEMORY_FOLDERS:
        mount("tmpfs", folder, "mode=1777" if folder != "/run" else "mode=0755")
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        os.symlink(target, f"/dev/{name}")


def mount_host(path: str, at: str) -> None:
    """Show a folder of the host at `at`, also where a memory folder hides it."""
    os.makedirs(at, exist_ok=True)
    mount("hostfs", at, path)


def loopback_up() -> None:
    """127.0.0.1 and ::1, as on any booted machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", request)[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def draw_hash_secret() -> None:
    """Make the kernel draw the secret of its flow hash now, which it would do at the first packet that fq or ECMP hashes: in
    the midst of the first measurement, whose random numbers would then differ from those of the second.

    A fanout group that chooses by hash asks for it. Source: net/packet/af_packet.c, __skb_get_hash_symmetric().
    """
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as group:
        group.bind(("lo", ETH_P_ALL))
        group.setsockopt(SOL_PACKET, PACKET_FANOUT, PACKET_FANOUT_HASH << 16 | 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", ("127.0.0.1", 9))


def deliver_at_once() -> None:
    """All packets that are there are delivered before time goes on. By default a burst of more than 640 frames is left to
    ksoftirqd, which here may not run before the next tick of the kernel: everything stands still for up to 10 ms.

    Source: kernel/softirq.c (MAX_SOFTIRQ_RESTART rounds), net/core/dev.c (net_rx_action; dev_weight frames a round).
    """
    for knob in ("dev_weight", "netdev_budget"):
        write(f"/proc/sys/net/core/{knob}", "1000000")


def stop_when_memory_ends() -> None:
    """A program that asks for more than there is gets an error; a kernel that runs out panics, so that the host reports it.

    Handing out more memory than there is would end in a kernel that reads the same files again and again, for minutes.
    """
    for knob, value in (("panic_on_oom", "1"), ("overcommit_memory", "2"), ("overcommit_ratio", "90")):
        write(f"/proc/sys/vm/{knob}", value)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def output(name: str) -> int:
    """An output file of the run's folder: O_SYNC, or the host would see the text when the file is closed."""
    return os.open(f"{RUN}/{name}", os.O_WRONLY | os.O_APPEND | os.O_SYNC)


def start(spec: dict, stdout: int, stderr: int) -> int:
    """Fork the command into its own session; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        os.write(2, f"railbed lab: cannot start {spec['argv'][0]!r} in {spec['cwd']}: {error.strerror}\n".encode())
    os._exit(127)


def wait_for(command: int) -> int:
    """Reap every orphan until the command itself ends; its exit code, 128 + signal as a shell counts."""
    while True:
        pid, status = os.wait()
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> None:
    """All of it; the exit code is the last thing written, so that its absence means the guest failed."""
    mount_system()
    mount_host(HOST_RUN, RUN)
    stdout, stderr, result = (output(name) for name in ("stdout", "stderr", "exit"))
    try:
        with open(f"{RUN}/spec.json") as file:
            spec = json.load(file)
        _libc.umount2(RUN.encode(), MNT_DETACH)
        for path in spec["host_folders"]:
            mount_host(path, path)
        socket.sethostname(spec["hostname"])
        loopback_up()
        draw_hash_secret()
        deliver_at_once()
        stop_when_memory_ends()
        code = wait_for(start(spec, stdout, stderr))
        os.sync()
        os.write(result, str(code).encode())
    except Exception:
        os.write(stderr, traceback.format_exc().encode())
    finally:
        _libc.reboot(RB_POWER_OFF)


if __name__ == "__main__":
    main()
