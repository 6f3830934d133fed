#!/usr/bin/env python3
"""A slow cable between two network namespaces, where the kernel has no netem: a tap device in each, and this program, which carries the
packets of one to the other after a delay. Runs until it is killed; prints `ready` when both devices have their addresses. Needs root.

    tools/slow_cable.py NAMESPACE ADDRESS/24 NAMESPACE ADDRESS/24 MILLISECONDS
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
LARGEST = 9000


def tap(namespace, address):
    """A tap device in a namespace, up and with an address, as a file of packets."""
    with open(f"/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    packets = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(packets, TUNSETIFF, struct.pack("16sH", b"slow", IFF_TAP | IFF_NO_PI))
    for command in (f"addr add {address} dev slow", f"link set slow mtu {LARGEST}", "link set slow up"):
        subprocess.run(["ip", *command.split()], check=True)
    return packets


def main():
    delay = float(sys.argv[5]) / 1e3
    ends = [tap(*sys.argv[1:3]), tap(*sys.argv[3:5])]
    print("ready", flush=True)
    underway = collections.deque()
    while True:
        wait = max(0.0, underway[0][0] - time.monotonic()) if underway else None
        for end in select.select(ends, [], [], wait)[0]:
            other = ends[1 - ends.index(end)]
            try:
                while True:
                    packet = os.read(end, LARGEST + 64)
                    underway.append((time.monotonic() + delay, other, packet))
            except BlockingIOError:
                pass
        while underway and underway[0][0] <= time.monotonic():
            _, end, packet = underway.popleft()
            try:
                os.write(end, packet)
            except OSError:
                # a cable may lose a packet
                pass


if __name__ == "__main__":
    main()
