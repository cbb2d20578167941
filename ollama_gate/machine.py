"""What this machine has, and what it lets the gate have: looked at once, at start."""

import os
import resource
from pathlib import Path

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Memory that this process's machine or control group has, in bytes; the smaller of the two."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in limits:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(physical, int(text))
    return physical


def allow_open_files(enough: int = 65536) -> int:
    """Let this process have so many files and connections open, as far as the hard limit goes; returns how many it may.

    The soft limit of a shell or a service is often 1024, for the sake of programs that use select(2); every stream
    takes two descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # what there is has to do
        return soft
    return wanted
