from __future__ import annotations

from typing import Any, cast

import pytest

from coilclaw.kernel.effects import Risk
from coilclaw.kernel.errors import DeniedError
from coilclaw.policy.hosts import (
    WebAddress,
    find_entry_problem,
    is_address_allowed,
    is_public,
    judge_url,
    parse_url,
)
from coilclaw.policy.judgement import PolicyFinding
from coilclaw.policy.settings import SecuritySettings


def allowing(*entries: str) -> SecuritySettings:
    return SecuritySettings("/w", rules=cast(Any, None), allowed_domains=entries)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://example.com/", "http.scheme"),
        ("file:///etc/passwd", "http.scheme"),
        ("gopher://example.com/", "http.scheme"),
        ("example.com", "http.url"),
        ("//example.com", "http.url"),
        ("", "http.url"),
        ("https://user@example.com/", "http.credentials"),
        ("https://user:word@example.com/", "http.credentials"),
        ("https://example.com@evil.org/", "http.credentials"),
        ("https:///path", "http.host"),
        ("https://example.com:/", "http.host"),
        ("https://example.com:0/", "http.host"),
        ("https://example.com:65536/", "http.host"),
        ("https://example.com:80x/", "http.host"),
        ("https://example.com:\u0664\u0664\u0663/", "http.host"),
        ("https://exam%70le.com/", "http.host"),
        ("https://example..com/", "http.host"),
        ("https://-example.com/", "http.host"),
        ("https://[::1/", "http.host"),
        ("https://[::1]x/", "http.host"),
        ("https://[127.0.0.1]/", "http.host"),
        ("https://[fe80::1%25eth0]/", "http.host"),
        ("http://2130706433/", "http.host"),
        ("http://0177.0.0.1/", "http.host"),
        ("http://0x7f.0.0.1/", "http.host"),
        ("http://0x7f000001/", "http.host"),
        ("http://127.1/", "http.host"),
        ("http://127.0.0.1./x", "http.domain"),
        ("http://\uff11\uff12\uff17.0.0.1/", "http.host"),
        ("http://127\u30020\u30020\u30021/", "http.host"),
        ("https://example.com/a b", "http.url"),
        ("https://example.com/\r\nHost: evil.org", "http.url"),
        ("https://example.com/\tx", "http.url"),
        ("https://example.com\\@evil.org/", "http.url"),
        ("https://example.com/\u2028", "http.url"),
        ("https://example.com/\ud800", "http.url"),
        ("https://example.com/" + "a" * 4000, "http.url"),
        ("https://" + "a" * 64 + ".com/", "http.host"),
    ],
)
def test_a_url_that_nobody_should_ask_for_is_forbidden(url: str, rule: str) -> None:
    finding = judge_url(url, allowing("example.com", "evil.org"))
    assert (finding.rule, finding.risk, finding.forbidden) == (rule, Risk.HIGH, True)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "https://sub.example.com/"),
        ("example.com", "https://notexample.com/"),
        ("example.com", "https://example.com.evil.org/"),
        ("example.com", "https://example.com:8443/"),
        ("example.com", "http://example.com:443/"),
        ("*.example.com", "https://example.com/"),
        ("*.example.com", "https://evilexample.com/"),
        ("example.com:8443", "https://example.com/"),
        ("example.com", "https://ex\u0430mple.com/"),  # a Cyrillic letter
        ("10.0.0.0/8", "http://11.0.0.1/"),
        ("127.0.0.1", "http://127.0.0.2/"),
        ("127.0.0.1", "http://localhost/"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
        ("*:8080", "https://example.com/"),
    ],
)
def test_what_is_not_listed_is_forbidden(entry: str, url: str) -> None:
    finding = judge_url(url, allowing(entry))
    assert (finding.rule, finding.forbidden) == ("http.domain", True)
    assert "security.allowed_domains" in finding.reason


def test_with_an_empty_list_everything_is_forbidden() -> None:
    assert judge_url("https://example.com/", allowing()) == PolicyFinding(
        Risk.HIGH,
        "http.domain",
        "example.com is not listed in security.allowed_domains, which is empty",
        forbidden=True,
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[fd00:ec2::254]/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://localhost/",
        "http://printer.local/",
        "http://metadata.google.internal/",
        "http://intranet/",
    ],
)
def test_a_star_means_public_hosts_only(url: str) -> None:
    finding = judge_url(url, allowing("*"))
    assert (finding.rule, finding.forbidden) == ("http.address", True)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "https://example.com/a?b#c"),
        ("example.com", "http://EXAMPLE.com./"),
        ("EXAMPLE.COM.", "https://example.com/"),
        ("example.com", "https://example.com:443/"),
        ("*.example.com", "https://a.b.example.com/"),
        ("example.com:8443", "https://example.com:8443/"),
        ("example.com:*", "https://example.com:1/"),
        ("b\u00fccher.example", "https://xn--bcher-kva.example/"),
        ("xn--bcher-kva.example", "https://B\u00dcCHER.example/"),
        ("127.0.0.1", "http://127.0.0.1/"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("[::1]:8080", "http://[::1]:8080/"),
        ("::1", "http://[0:0:0:0:0:0:0:1]/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("fd00::/8", "http://[fd00::1]/"),
        ("*", "https://example.com/"),
        ("*", "https://93.184.215.14/"),
        ("localhost:3000", "http://localhost:3000/x"),
    ],
)
def test_what_is_listed_is_of_low_risk(entry: str, url: str) -> None:
    finding = judge_url(url, allowing(entry))
    assert (finding.risk, finding.rule, finding.forbidden) == (Risk.LOW, "http.allowed", False)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("168.63.129.16", "::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8"),
        *("64:ff9b::808:808", "64:ff9b:1::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1"),
        *("fd00::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "100::1"),
        *("", "localhost", "2130706433", "0x7f.1"),
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_public(address)
    assert not is_address_allowed(address, "example.com", allowing("example.com", "*"))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:4860::8888"],
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_public(address)
    assert is_address_allowed(address, "example.com", allowing("example.com"))


@pytest.mark.parametrize(
    ("entries", "host", "address", "port", "allowed"),
    [
        (("localhost",), "localhost", "127.0.0.1", 80, True),
        (("localhost",), "localhost", "::1", 80, True),
        (("localhost",), "localhost", "10.0.0.1", 80, False),
        (("localhost", "evil.org"), "evil.org", "127.0.0.1", 80, False),
        (("localhost:3000",), "localhost", "127.0.0.1", 3000, True),
        (("localhost:3000", "localhost"), "localhost", "10.0.0.1", 3000, False),
        (("127.0.0.1:8080", "*"), "evil.org", "127.0.0.1", 80, False),
        (("127.0.0.1:8080", "*"), "evil.org", "127.0.0.1", 8080, True),
        (("intranet.corp", "10.0.0.0/8"), "intranet.corp", "10.9.8.7", 80, True),
        (("intranet.corp", "10.0.0.0/8"), "intranet.corp", "192.168.0.1", 80, False),
        (("127.0.0.1",), "127.0.0.1", "127.0.0.1", 80, True),
        (("127.0.0.1",), "127.0.0.1", "::ffff:127.0.0.1", 80, False),
        (("64:ff9b::/96",), "v4.example", "64:ff9b::808:808", 80, True),
    ],
)
def test_a_private_address_has_to_be_listed_itself(
    entries: tuple[str, ...], host: str, address: str, port: int, allowed: bool
) -> None:
    assert is_address_allowed(address, host, allowing(*entries), port=port) is allowed


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("HTTPS://Example.COM", WebAddress("https", "example.com", 443, "/")),
        ("http://example.com?q=1#f", WebAddress("http", "example.com", 80, "/?q=1")),
        ("http://[2606:4700::1111]:81/x", WebAddress("http", "2606:4700::1111", 81, "/x")),
        ("http://a.b/\u00e4?\u00f6=<>", WebAddress("http", "a.b", 80, "/%C3%A4?%C3%B6=%3C%3E")),
        ("http://a.b/%2e%2E/../c", WebAddress("http", "a.b", 80, "/%2e%2E/../c")),
    ],
)
def test_a_url_is_taken_apart(url: str, parsed: WebAddress) -> None:
    assert parse_url(url) == parsed
    assert parse_url(str(parsed)) == parsed


def test_the_host_header_names_an_unusual_port_only() -> None:
    assert parse_url("http://[::1]:8080/").authority == "[::1]:8080"
    assert parse_url("https://example.com:443/").authority == "example.com"


@pytest.mark.parametrize(
    "entry",
    ["", "exa mple.com", "10.0.0.1/8", "a.b:x", "[::1", "*.", "*x.com", "https://a.b", "0x7f.1"],
)
def test_an_entry_that_means_nothing_is_named_and_allows_nothing(entry: str) -> None:
    assert find_entry_problem(entry) is not None
    assert judge_url("https://example.com/", allowing(entry)).forbidden


@pytest.mark.parametrize("entry", ["*", "*:*", "a.b", "a.b:1", "*.a.b", "10.0.0.0/8", "[::1]:80"])
def test_an_entry_that_means_something_has_no_problem(entry: str) -> None:
    assert find_entry_problem(entry) is None


def test_an_error_does_not_repeat_a_password() -> None:
    with pytest.raises(DeniedError) as raised:
        parse_url("https://me:hunter2@example.com/")
    assert "hunter2" not in str(raised.value)
