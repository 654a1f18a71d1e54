from __future__ import annotations

import ipaddress
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.errors import DeniedError
from coilclaw.policy.hosts import is_address_allowed, is_public, judge_url, parse_url
from coilclaw.policy.settings import SecuritySettings

AUTHORITIES = (
    st.text(st.sampled_from(list("aZ0129.:@[]%\\/?#xX-_ \n\u3002\uff0e\u00df*"))) | st.text()
)
IPS = st.ip_addresses()


def allowing(*entries: str) -> SecuritySettings:
    return SecuritySettings("/w", rules=cast(Any, None), allowed_domains=entries)


@given(AUTHORITIES, st.text(), st.sampled_from(["http", "https", "HTTP", "ftp"]))
def test_what_is_parsed_can_be_sent_and_parses_to_itself(
    authority: str, rest: str, scheme: str
) -> None:
    try:
        address = parse_url(f"{scheme}://{authority}/{rest}")
    except DeniedError:
        return
    sent = f"GET {address.target} HTTP/1.1 {address.authority}"
    assert sent.isascii()
    assert sent.isprintable()
    assert address.target.count(" ") == 0
    assert not set(address.host) & set("@/\\?#% ")
    assert parse_url(str(address)) == address


@given(AUTHORITIES)
def test_nothing_is_allowed_that_is_not_listed(authority: str) -> None:
    finding = judge_url(f"https://{authority}", allowing("example.com"))
    assert finding.forbidden or parse_url(f"https://{authority}").host == "example.com"


@given(IPS)
def test_what_python_calls_private_is_never_public(ip: Any) -> None:
    if ip.is_private or ip.is_multicast or ip.is_loopback or ip.is_link_local or ip.is_unspecified:
        assert not is_public(str(ip))
    if is_public(str(ip)):
        assert ip.is_global
        assert getattr(ip, "ipv4_mapped", None) is None


@given(IPS)
def test_a_listed_address_is_allowed_and_its_neighbour_is_not(ip: Any) -> None:
    settings = allowing(str(ip))
    assert is_address_allowed(str(ip), "any.example", settings)
    neighbour = ipaddress.ip_address(int(ip) ^ 1) if ip.version == 4 else ip.__class__(int(ip) ^ 1)
    assert is_address_allowed(str(neighbour), "any.example", settings) is is_public(str(neighbour))
