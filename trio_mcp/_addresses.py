"""Finds out where an IP address can be reached from, by IANA's registries of special-purpose addresses.

This module has a table of its own, because the verdict of `ipaddress` on some addresses differs between Python's patch
releases: the registries themselves have changed.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

__all__ = ["Reach", "is_loopback", "reach"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Reach(enum.IntEnum):
    """The places from which an address can be reached, the widest first."""

    GLOBAL = 0
    PRIVATE = 1
    """Home and company networks (RFC 1918, RFC 6598, unique local addresses), and addresses that some VPNs hand out."""
    LOOPBACK = 2
    NEVER = 3
    """Addresses that no URL should lead to: link-local, multicast, unspecified, reserved, and clouds' metadata."""


# The rows follow IANA's registries as of 2025: https://www.iana.org/assignments/iana-ipv4-special-registry and
# …/iana-ipv6-special-registry. If several networks contain an address, the smallest network decides. An address that no
# network contains is GLOBAL in IPv4, and NEVER in IPv6.
_TABLE: Final = {
    Reach.GLOBAL: """
        192.31.196.0/24     AS112 (RFC 7535)
        192.52.193.0/24     AMT (RFC 7450)
        192.175.48.0/24     AS112, delegated directly (RFC 7534)
        2000::/3            all of IPv6 that is allocated (RFC 4291)
        2001:3::/32         AMT (RFC 7450)
        2001:4:112::/48     AS112 (RFC 7535)
        2001:20::/28        ORCHIDv2 (RFC 7343)
        2001:30::/28        drones (RFC 9374)
        2620:4f:8000::/48   AS112, delegated directly (RFC 7534)
    """,
    Reach.PRIVATE: """
        10.0.0.0/8          private use (RFC 1918)
        100.64.0.0/10       shared by the customers of a provider (RFC 6598)
        172.16.0.0/12       private use (RFC 1918)
        192.168.0.0/16      private use (RFC 1918)
        198.18.0.0/15       benchmarks (RFC 2544); VPNs take addresses for names from it
        fc00::/7            unique local (RFC 4193)
    """,
    Reach.LOOPBACK: """
        127.0.0.0/8         loopback (RFC 1122)
        ::1/128             loopback (RFC 4291)
    """,
    Reach.NEVER: """
        0.0.0.0/8           this network (RFC 791)
        169.254.0.0/16      link-local (RFC 3927)
        192.0.0.0/24        protocols of the IETF (RFC 6890): also where the nearest PCP or TURN server responds
        192.0.2.0/24        documentation (RFC 5737)
        192.88.99.0/24      relays of 6to4, withdrawn (RFC 7526)
        198.51.100.0/24     documentation (RFC 5737)
        203.0.113.0/24      documentation (RFC 5737)
        224.0.0.0/4         multicast (RFC 5771)
        240.0.0.0/4         reserved, and the broadcast address (RFC 1112, RFC 8190)
        ::/128              unspecified (RFC 4291)
        64:ff9b:1::/48      translation within a network (RFC 8215), but for what is unwrapped below
        100::/64            discarded (RFC 6666)
        100:0:0:1::/64      dummy (RFC 9780)
        2001::/23           protocols of the IETF (RFC 2928), as above
        2001:2::/48         benchmarks (RFC 5180)
        2001:10::/28        ORCHID, withdrawn (RFC 4843)
        2001:db8::/32       documentation (RFC 3849)
        3fff::/20           documentation (RFC 9637)
        5f00::/16           segment routing (RFC 9602)
        fe80::/10           link-local (RFC 4291)
        fec0::/10           site-local, withdrawn (RFC 3879)
        ff00::/8            multicast (RFC 4291)
        100.100.100.200/32  metadata of Alibaba Cloud
        168.63.129.16/32    the platform of Azure
        fd00:c1::a9fe:a9fe/128  metadata of Oracle Cloud; over IPv4 it is in 192.0.0.0/24
        fd00:ec2::/32       metadata and more of AWS
        fd00:42::42/128     metadata of Scaleway
        fd20:ce::254/128    metadata of Google Cloud
    """,
}

# The addresses in these IPv6 networks contain an IPv4 address, to which their packets are forwarded: `64:ff9b::7f00:1`
# leads to 127.0.0.1 through a translator. Each network is listed with the number of bits that follow the IPv4 address,
# and with a number that is XORed with it: Teredo inverts the address.
_WRAPPED: Final = [
    (ipaddress.IPv6Network(network), shift, inverted)
    for network, shift, inverted in (
        ("::ffff:0:0/96", 0, 0),  # mapped (RFC 4291, section 2.5.5.2)
        ("64:ff9b::/96", 0, 0),  # NAT64 (RFC 6052, section 2.1)
        # NAT64 within a network (RFC 8215). Elsewhere in the /48, only that network itself knows where the IPv4 address
        # is.
        ("64:ff9b:1::/96", 0, 0),
        ("2002::/16", 80, 0),  # 6to4 (RFC 3056, section 2)
        ("2001::/32", 0, 0xFFFFFFFF),  # Teredo (RFC 4380, section 4)
    )
]


@functools.cache
def _networks() -> Sequence[tuple[_Network, Reach]]:
    """Return the table's rows, smallest networks first; they are parsed on first use, as that takes a millisecond."""
    rows = [(row.split()[0], found) for found, text in _TABLE.items() for row in text.strip().splitlines()]
    return sorted(
        ((ipaddress.ip_network(network), found) for network, found in rows), key=lambda each: -each[0].prefixlen
    )


def reach(address: str) -> Reach:
    """Return where an IP address can be reached from, unwrapping IPv4 in IPv6; `NEVER` for any other text."""
    try:
        found = _unwrapped(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return Reach.NEVER
    # `in` is also false if the address and the network belong to different versions of IP.
    containing = (reached for network, reached in _networks() if found in network)
    return next(containing, Reach.GLOBAL if found.version == 4 else Reach.NEVER)


def is_loopback(host: str) -> bool:
    """Return whether a host is an IP address that only this machine can reach."""
    return reach(host) is Reach.LOOPBACK


def _unwrapped(address: _Address) -> _Address:
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift, inverted in _WRAPPED:
            if address in network:
                return ipaddress.IPv4Address((int(address) >> shift & 0xFFFFFFFF) ^ inverted)
    return address
