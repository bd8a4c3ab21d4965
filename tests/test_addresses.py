"""What IP addresses are for: a row for each row of IANA's registries, and for each address that is known to be special.

https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
"""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, strategies as st

from tests.tables import by_outcome
from trio_mcp._addresses import Reach, is_loopback, reach

# The registries, in their order. Where they say that a network is globally reachable, it is, but for anycast addresses
# at which the nearest router of a network answers.
NETWORKS = {
    Reach.NEVER: """
        0.0.0.0/8 0.0.0.0/32 169.254.0.0/16 192.0.0.0/24 192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32
        192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.88.99.0/24 192.88.99.2/32 198.51.100.0/24 203.0.113.0/24
        240.0.0.0/4 255.255.255.255/32 ::/128 64:ff9b:1:1::/64 100::/64 100:0:0:1::/64 2001:1::1/128 2001:1::2/128
        2001:1::3/128 2001:2::/48 2001:10::/28 2001:db8::/32 3fff::/20 5f00::/16 fe80::/10
    """,
    Reach.PRIVATE: "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15 fc00::/7",
    Reach.LOOPBACK: "127.0.0.0/8 ::1/128",
    Reach.GLOBAL: """
        192.31.196.0/24 192.52.193.0/24 192.175.48.0/24 2001:3::/32 2001:4:112::/48 2001:20::/28 2001:30::/28
        2620:4f:8000::/48
    """,
}
# Other registries, and what none of them has.
OTHERS = {
    Reach.NEVER: "224.0.0.0/4 ff00::/8 fec0::/10 2001:1ff::/32 ::/96 ::5:0:0/96 4000::/3 e000::/8",
    Reach.GLOBAL: """
        1.0.0.0/8 9.0.0.0/8 11.0.0.0/8 100.0.0.0/10 100.128.0.0/9 126.0.0.0/8 128.0.0.0/8 169.253.0.0/16
        169.255.0.0/16 172.15.0.0/16 172.32.0.0/11 192.0.1.0/24 192.0.3.0/24 192.88.98.0/24 192.167.0.0/16
        192.169.0.0/16 198.17.0.0/16 198.20.0.0/16 223.0.0.0/8 2001:200::/23 2001:db9::/32 2400::/6 3ffe::/16
        3fff:1000::/20
    """,
}
METADATA = (
    "169.254.169.254 | 169.254.170.2 | fe80::a9fe:a9fe | fe80::a9fe:a9fe%eth0 | 100.100.100.200 | 168.63.129.16 | "
    "192.0.0.192 | fd00:c1::a9fe:a9fe | fd00:ec2::254 | fd00:ec2::23 | fd00:42::42 | fd20:ce::254"
)


@by_outcome("network", "expected", {reached: text.split() for reached, text in NETWORKS.items()})
def test_a_row_of_the_registries(network: str, expected: Reach) -> None:
    whole = ipaddress.ip_network(network)
    middle = whole.network_address + whole.num_addresses // 3
    found = {str(each): reach(str(each)) for each in (whole.network_address, middle, whole.broadcast_address)}
    assert found == dict.fromkeys(found, expected)


@by_outcome("network", "expected", {reached: text.split() for reached, text in OTHERS.items()})
def test_what_the_registries_do_not_have(network: str, expected: Reach) -> None:
    """Multicast, what is withdrawn, what is not allocated; and the neighbours of rows."""
    whole = ipaddress.ip_network(network)
    ends = {str(each): reach(str(each)) for each in (whole.network_address + 2, whole.broadcast_address)}
    assert ends == dict.fromkeys(ends, expected)


@by_outcome("address", "expected", {Reach.NEVER: METADATA})
def test_the_metadata_of_a_cloud_is_never_reached(address: str, expected: Reach) -> None:
    """Also those services that have an address of a private network, or a public one."""
    assert reach(address) is expected


def test_the_neighbours_of_metadata_are_of_their_network() -> None:
    assert {reach(each) for each in ("100.100.100.199", "fd00:ec1::254", "fd00:ec3::", "fd00:42::41")} == {
        Reach.PRIVATE
    }
    assert reach("168.63.129.17") is Reach.GLOBAL


WRAPPINGS = {
    "::ffff:0:0": 0,
    "64:ff9b::": 0,
    "64:ff9b:1::": 0,
    "2002::": 80,
}


@pytest.mark.parametrize("prefix", WRAPPINGS)
@given(value=st.integers(0, 2**32 - 1) | st.sampled_from([0x7F000001, 0x0A000001, 0xA9FEA9FE, 0x08080808, 0xC00000C0]))
def test_an_address_in_another_is_what_counts(prefix: str, value: int) -> None:
    inner = ipaddress.IPv4Address(value)
    outer = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | value << WRAPPINGS[prefix])
    assert reach(str(outer)) is reach(str(inner))


@given(client=st.integers(0, 2**32 - 1), server=st.integers(0, 2**64 - 1))
def test_the_client_of_teredo_is_what_counts(client: int, server: int) -> None:
    outer = ipaddress.IPv6Address(0x20010000 << 96 | server << 32 | client ^ 0xFFFFFFFF)
    assert reach(str(outer)) is reach(str(ipaddress.IPv4Address(client)))


@by_outcome(
    "host",
    "expected",
    {
        True: "127.0.0.1 | 127.255.255.254 | ::1 | ::ffff:127.0.0.1 | ::1%lo",
        False: "localhost | 128.0.0.1 | ::2 | 0.0.0.0 | :: | ::ffff:10.0.0.1 | example.com | 127.1 | 2130706433",
    },
)
def test_loopback(host: str, expected: bool) -> None:
    """An address, whatever Python thinks of it; names are for others to judge."""
    assert is_loopback(host) is expected
