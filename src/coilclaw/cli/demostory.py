"""The story of ``coilclaw demo run``: a repository, what the models answer, what the workers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

SENTENCE: Final = "Take the discount off the total, and show prices with two decimals."

FILES: Final = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# Shop\n",
    "shop/__init__.py": "",
    "shop/price.py": "def total(prices, discount=0):\n    return sum(prices)\n",
    "shop/receipt.py": 'def line(name, price):\n    return f"{name} {price}"\n',
    "deploy/production.txt": "not for agents\n",
    "tests/__init__.py": "",
    "tests/test_price.py": (
        "import unittest\n\nfrom shop.price import total\n\n\n"
        "class Price(unittest.TestCase):\n"
        "    def test_the_discount_is_taken_off(self):\n"
        "        self.assertEqual(total([4, 6], 3), 7)\n"
    ),
    "tests/test_receipt.py": (
        "import unittest\n\nfrom shop.receipt import line\n\n\n"
        "class Receipt(unittest.TestCase):\n"
        "    def test_two_decimals(self):\n"
        '        self.assertEqual(line("tea", 2.5), "tea 2.50")\n'
    ),
}

_RIGHT_PRICE: Final = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
_WRONG_PRICE: Final = "def total(prices, discount=0):\n    return sum(prices) + discount\n"
_RECEIPT: Final = 'def line(name, price):\n    return f"{name} {price:.2f}"\n'
RESULT: Final = {"shop/price.py": _RIGHT_PRICE, "shop/receipt.py": _RECEIPT}
"""What the files must be in the end."""


def _test(name: str) -> Json:
    return {
        "name": name,
        "cmd": f"python3 -m unittest tests.test_{name}",
        "must_pass": True,
        "timeout_sec": 60,
    }


def _task(name: str, spec: str) -> Json:
    return {
        "name": name,
        "role": "WORKER",
        "spec": spec,
        "allowed_paths": [f"shop/{name}.py"],
        "acceptance_tests": [_test(name)],
        "tool_permissions": {
            "filesystem": "workspace-write",
            "shell": "never",
            "network": "deny",
            "mcp_tools": [],
        },
        "locks": [],
    }


PLAN: Final[Json] = {
    "spec": "total() subtracts the discount, and line() shows a price with two decimals.",
    "split": True,
    "allowed_paths": ["shop/price.py", "shop/receipt.py"],
    "forbidden_actions": [],
    "acceptance_tests": [_test("price"), _test("receipt")],
    "required_outputs": [{"name": "patch", "type": "patch", "acceptance": "The tests pass."}],
    "policy_pack": "high",
    "timeout_sec": 120,
    "max_retries": 2,
    "summary": "Two small independent changes.",
    "risks": [],
}
"""What the PM answers."""

SPLIT: Final[Json] = {
    "tasks": [
        _task("price", "Make total() subtract the discount."),
        _task("receipt", "Make line() show the price with two decimals."),
    ],
    "summary": "One task a file, so that both can be worked on at once.",
    "risks": [],
}
"""What the Tech Lead answers."""

SCRIPT: Final[Json] = {
    "tasks": {
        "*-price": [
            [{"write": {"shop/price.py": _WRONG_PRICE}}, {"text": "total() knows the discount."}],
            [{"write": {"shop/price.py": _RIGHT_PRICE}}, {"text": "The sign is right now."}],
            [{"write": {"shop/price.py": _RIGHT_PRICE}}, {"text": "The sign is right now."}],
        ],
        "*-receipt": [
            [
                {"write": {"shop/receipt.py": _RECEIPT}},
                {"write": {"deploy/production.txt": "released by the agent\n"}},
                {"text": "Done, and released."},
            ],
            [{"write": {"shop/receipt.py": _RECEIPT}}, {"text": "Only the receipt this time."}],
        ],
    }
}
"""What the workers do, one turn an attempt: the second one goes further than it may."""
