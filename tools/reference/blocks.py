"""Words of sums as tensor cores add products in blocks, from exact fractions.

    python tools/reference/blocks.py > crates/kernels/cpu/tests/blocks/words.txt

A line: the format of the factors, the sum before, sixteen factors a, sixteen factors b, the sum after one block of 16
(25 fraction bits, exponents from -133 on), and that after two blocks of 8 (24 bits, from -132 on), all as hexadecimal
words. The definition is in docs/numerics.md, "Products in blocks".
"""

import random
from fractions import Fraction

FIELDS = {"bf16": (8, 7), "fp16": (5, 10), "fp32": (8, 23)}
NAN, INFINITY, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000
BLOCKS = {16: (25, -133), 8: (24, -132)}
SEED = 20261124


def decode(word, name):
    """Value and exponent of a word; a string in place of both for infinities and NaN."""
    exponent_bits, fraction_bits = FIELDS[name]
    field = word >> fraction_bits & (1 << exponent_bits) - 1
    fraction = word & (1 << fraction_bits) - 1
    sign = -1 if word >> exponent_bits + fraction_bits else 1
    if field == (1 << exponent_bits) - 1:
        return "nan" if fraction else ("-inf" if sign < 0 else "inf")
    exponent = max(field, 1) - ((1 << exponent_bits - 1) - 1)
    magnitude = fraction + (1 << fraction_bits if field else 0)
    return sign * magnitude * Fraction(2) ** (exponent - fraction_bits), exponent


def product(a, b):
    """The product of two decoded factors, with its exponent."""
    if "nan" in (a, b):
        return "nan"
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] * b[0], a[1] + b[1]
    signs = [(factor[0] > 0) - (factor[0] < 0) if isinstance(factor, tuple) else 1 - 2 * (factor[0] == "-") for factor in (a, b)]
    return {1: "inf", 0: "nan", -1: "-inf"}[signs[0] * signs[1]]


def cut(value, exponent):
    """Whole multiples of 2^exponent, toward zero."""
    whole = abs(value) / Fraction(2) ** exponent
    return (whole.numerator // whole.denominator) * (1 if value > 0 else -1)


def single(value):
    """The word of a value, cut off toward zero."""
    if value == 0:
        return 0
    sign, size = (SIGN if value < 0 else 0), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    if exponent > 127:
        return sign | INFINITY
    digits = cut(size, max(exponent - 23, -149))
    if digits == 0:
        return 0
    return sign | (digits if exponent < -126 else exponent + 127 << 23 | digits & 0x7FFFFF)


def add(word, a, b, name, steps):
    """The word of a sum after a block of products."""
    fraction_bits, least = BLOCKS[steps]
    terms = [product(decode(x, name), decode(y, name)) for x, y in zip(a, b)] + [decode(word, "fp32")]
    if "nan" in terms or {"inf", "-inf"} <= {term for term in terms if isinstance(term, str)}:
        return NAN
    if "inf" in terms or "-inf" in terms:
        return INFINITY if "inf" in terms else SIGN | INFINITY
    unit = max([least] + [exponent for value, exponent in terms if value != 0]) - fraction_bits
    return single(sum(cut(value, unit) for value, _ in terms) * Fraction(2) ** unit)


def add_all(word, a, b, name, steps):
    """The same over as many blocks as there are."""
    for first in range(0, len(a), steps):
        word = add(word, a[first : first + steps], b[first : first + steps], name, steps)
    return word


def words(draw, name, exponents):
    """Sixteen words with exponent fields in a range."""
    exponent_bits, fraction_bits = FIELDS[name]
    bits = lambda: draw.getrandbits(1) << exponent_bits + fraction_bits | draw.getrandbits(fraction_bits)
    return [bits() | draw.randrange(*exponents) << fraction_bits for _ in range(16)]


def main():
    draw = random.Random(SEED)
    ranges = {
        "bf16": [(119, 131), (87, 167), (0, 255), (0, 66), (0, 1), (52, 72), (200, 255)],
        "fp16": [(10, 20), (0, 31), (0, 8), (0, 1), (24, 31)],
    }
    for name, exponents in ranges.items():
        for range_of_a in exponents:
            for sums in ((0, 1), range_of_a if name == "bf16" else (100, 140), (0, 255)):
                a, b = words(draw, name, range_of_a), words(draw, name, draw.choice([range_of_a, exponents[0]]))
                word = words(draw, "fp32", sums)[0] if draw.randrange(4) else 0
                print_line(name, word, a, b)
    one, zeros = {"bf16": 0x3F80, "fp16": 0x3C00}, [0] * 15
    for name, unit in one.items():
        infinite, nan = (0x7F80, 0x7FC0) if name == "bf16" else (0x7C00, 0x7E00)
        least, negative = 1, 0x8000
        for word, x, y in [
            (SIGN, 0, negative),
            (0, least, unit),
            (0, least, least),
            (0, nan, unit),
            (0, infinite, unit),
            (0, infinite, negative | unit),
            (0, infinite, 0),
            (SIGN | INFINITY, infinite, unit),
            (INFINITY, unit, unit),
            (0x7FC00001, unit, unit),
            (0x7F7FFFFF, unit, unit),
            (SIGN | 1, unit, 0),
            (0x3F800000, unit, negative | unit),
        ]:
            print_line(name, word, [x] + zeros, [y] + zeros)


def print_line(name, word, a, b):
    texts = ["".join(f"{factor:04x}" for factor in factors) for factors in (a, b)]
    print(name, f"{word:08x}", *texts, *(f"{add_all(word, a, b, name, steps):08x}" for steps in BLOCKS))


if __name__ == "__main__":
    main()
