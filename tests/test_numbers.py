"""Numbers as people type them: what is read, and that nothing else is."""

from __future__ import annotations

import pytest

from deniable import _numbers
from deniable._numbers import number, numbers, whole
from deniable.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("1,5", 1.5), (" 2 ", 2.0), (".5", 0.5), ("-3e-2", -0.03), ("1e300", 1e300)],
)
def test_numbers_with_a_point_or_a_comma(text: str, value: float) -> None:
    assert number("budget", text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100000", 100_000),
        ("100,000", 100_000),
        ("100 000", 100_000),
        ("100_000", 100_000),
        ("1e5", 100_000),
        ("-7", -7),
        ("9007199254740993", 9_007_199_254_740_993),  # no float has this value
        ("2.0", 2),
        ("10k", 10_000),
        ("2.5 K", 2500),
        ("1.5M", 1_500_000),
    ],
)
def test_whole_numbers_with_separators(text: str, value: int) -> None:
    assert whole("visitors", text) == value


BAD = ["", "-", "x", "nan", "inf", "-inf", "1e400", "9" * 41, "0x10", "١٢", "1;2", "1.5.2", "\x00"]


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused_and_not_repeated_at_length(text: str) -> None:
    for read in (number, whole, numbers):
        with pytest.raises(InvalidArgumentError, match="such as") as caught:
            read("visitors", text)
        assert caught.value.argument == "visitors"
        assert len(str(caught.value.value)) <= 40


def test_whole_numbers_are_whole() -> None:
    for text in ("2.5", "1e-1", "1e5.5"):
        with pytest.raises(InvalidArgumentError, match="whole number, such as 100000 or 1e5"):
            whole("visitors", text)


@pytest.mark.parametrize("text", ["k", "1kk", "1km", "10 mm", "1e3k"])
def test_only_a_number_has_thousands(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="100000 or 1e5"):
        whole("visitors", text)


def test_limits_are_told() -> None:
    assert whole("arms", "256", 2, 256) == 256
    assert number("budget", "0", 0, 40) == 0
    with pytest.raises(InvalidArgumentError, match="a whole number from 2 to 256"):
        whole("arms", "257", 2, 256)
    with pytest.raises(InvalidArgumentError, match="a number from 0 to 40"):
        number("budget", "-0.001", 0, 40)
    with pytest.raises(
        InvalidArgumentError, match=r"numbers from 0\.001 to 40, separated by commas"
    ):
        numbers("arm_budgets", "1,0", 0.001, 40)


@pytest.mark.parametrize("text", ["1,000", "12,500", "+1,000,000"])
def test_a_thousand_is_not_one(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="without a comma"):
        _numbers.number("budget", text)


@pytest.mark.parametrize(("text", "value"), [("1,5", 1.5), ("0,500", 0.5), ("1,25", 1.25)])
def test_a_decimal_comma_is_read(text: str, value: float) -> None:
    assert _numbers.number("budget", text) == value
