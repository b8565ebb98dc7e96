"""Text for pages and figures: escaping, and numbers as a person writes them."""

import html
import math
import re

#: Characters that neither XML nor UTF-8 can hold.
_IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: The longest name that fits into a legend.
_LONGEST = 44


def plain(text: str) -> str:
    """The text without characters that no document can hold."""
    return _IMPOSSIBLE.sub("", text)


def escape(text: str) -> str:
    """The text as HTML, in an element or in a quoted attribute."""
    return html.escape(plain(text), quote=True)


def short(text: str) -> str:
    """The text on one line, cut where a legend has no more room for it."""
    line = " ".join(plain(text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"


def number(value: float, digits: int = 3) -> str:
    """The value to a few significant digits, with a true minus sign.

    >>> number(-1234.5678), number(0.25), number(3e50), number(1e-8)
    ('−1235', '0.25', '3×10⁵⁰', '10⁻⁸')
    """
    if not math.isfinite(value):
        return str(value).replace("-", "−").replace("inf", "∞")
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        power = power_of_ten(int(exponent))
        return f"{mantissa}×{power}".replace("-", "−").removeprefix("1×").replace("−1×", "−")
    if abs(value) >= 10**digits:
        return f"{value:.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def power_of_ten(exponent: int) -> str:
    """10 to the exponent, without markup.

    >>> power_of_ten(-3)
    '10⁻³'
    """
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def count(n: int, noun: str) -> str:
    """The number with its noun.

    >>> count(1, "iteration"), count(2, "iteration")
    ('1 iteration', '2 iterations')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listing(parts: list[str]) -> str:
    """The parts as one sentence would have them.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)
