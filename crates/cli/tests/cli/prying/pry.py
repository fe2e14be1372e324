"""Tries to access everything that is not this job's own, and prints what it got."""

import ctypes
import json
import os
import signal
import socket
import sys
import urllib.parse

state, pids = sys.argv[1], [int(pid) for pid in sys.argv[2:]]
secret = b"only-the-" + b"victim-knows"
libc = ctypes.CDLL(None, use_errno=True)
got = []


def tries(what, call):
    """Records a call that works, because none should."""
    try:
        result = call()
    except OSError:
        return
    if result:
        got.append([what, str(result)[:200]])


def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def files_of(path):
    """The open files. Where all jobs are one user, a job may count those of its first process, and no more."""
    return [os.readlink(os.path.join(path, number)) for number in os.listdir(path)]


def called(name, *arguments):
    """Whether the system call was allowed: 0, or a count."""
    return getattr(libc, name)(*arguments) >= 0


# Nothing below may harm the machine if a part of the sandbox is missing.
if os.getuid() == 0:
    sys.exit("this test must not run as root")

# What the job must not see at all.
for path in (state, "/run/muster/given", "/run/muster/given/secret", "/node/journal"):
    tries(f"sees {path}", lambda path=path: os.path.exists(path))
tries("looks into its node's folder", lambda: os.listdir("/node"))
for folder in ("/run", "/var", "/root", "/home", "/srv", "/mnt", "/dev/shm", "/tmp"):
    for place, _, files in os.walk(folder):
        for file in files:
            path = os.path.join(place, file)
            if os.path.isfile(path) and not os.path.islink(path):
                tries(f"finds the victim's words in {path}", lambda path=path: secret in read(path))
                tries(f"may write to {path}", lambda path=path: os.access(path, os.W_OK) and open(path, "ab"))

# Other processes, by every interface.
for pid in filter(str.isdigit, os.listdir("/proc")):
    for file in ("environ", "cmdline"):
        tries(f"reads {file} of {pid}", lambda pid=pid, file=file: secret in read(f"/proc/{pid}/{file}"))
for pid in [1, *pids]:
    for file in ("environ", "mem", "root/etc/hostname", "fd"):
        path = f"/proc/{pid}/{file}"
        tries(f"opens {path}", lambda path=path: files_of(path) if path.endswith("fd") else open(path, "rb"))
    tries(f"traces {pid}", lambda pid=pid: called("ptrace", 16, pid, 0, 0))
    buffer = ctypes.create_string_buffer(8)
    part = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    tries(f"reads memory of {pid}", lambda pid=pid, part=part: called("process_vm_readv", pid, part, 1, part, 1, 0))
for pid in pids:
    tries(f"signals {pid}", lambda pid=pid: os.kill(pid, 0) is None)

# The sandbox itself.
tries("makes namespaces", lambda: called("unshare", 0x10000000))
tries("mounts", lambda: called("mount", b"none", b"/tmp", b"tmpfs", 0, 0))
tries("becomes root", lambda: called("setuid", 0))
tries("renames its node", lambda: called("sethostname", b"mine", 4))
for place, _, files in os.walk("/sys/fs/cgroup"):
    for file in files:
        path = os.path.join(place, file)
        tries(f"may write to {path}", lambda path=path: os.access(path, os.W_OK))

# Sockets that no network namespace separates: of the machine, of its kernel, and those that other rules miss.
def opens(*kind):
    with socket.socket(*kind):
        return True


for family in sorted(set(range(64)) - {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        tries(f"opens a socket of family {family}", lambda family=family, kind=kind: opens(family, kind))
for protocol in range(1, 32):
    kind = (socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    tries(f"talks to the kernel by netlink {protocol}", lambda kind=kind: opens(*kind))
for family in (socket.AF_INET, socket.AF_INET6):
    tries("opens MPTCP", lambda family=family: opens(family, socket.SOCK_STREAM, 262))
    tries("opens SCTP", lambda family=family: opens(family, socket.SOCK_STREAM, 132))

# What the neighbour on this node listens on: its loopback, an abstract name, and every address that it may have.
def connects(family, address):
    with socket.socket(family) as caller:
        caller.settimeout(0.3)
        caller.connect(address)
        return True


own = urllib.parse.urlsplit(os.environ["MSI_ENDPOINT"])
if not connects(socket.AF_INET, (own.hostname, own.port)):
    sys.exit("the server cannot be reached")
for host in ("127.0.0.1", *(f"10.0.2.{last}" for last in range(100, 105))):
    for port in (23456, 23457):
        tries(f"connects to {host}:{port}", lambda address=(host, port): connects(socket.AF_INET, address))
tries("connects by a name without a file", lambda: connects(socket.AF_UNIX, "\0only-the-" + "victim-listens"))
tries("sees the name", lambda: b"only-the-" + b"victim-listens" in read("/proc/net/unix"))

# Its first process accepts no signal from inside. Last, everything it can reach except itself, if nothing was found.
if not got:
    tries("ends its own first process", lambda: os.kill(1, signal.SIGKILL))
    tries("ends every process", lambda: os.kill(-1, signal.SIGKILL))
print("got:" + json.dumps(got), flush=True)
