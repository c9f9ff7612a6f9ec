"""The types of GGUF: what a metadata value can be, and how the elements of a tensor are packed into blocks.

Pure tables. Sources: `ggml/include/ggml.h`, `ggml/src/ggml-common.h` and `include/llama.h` of llama.cpp as vendored by
llama-cpp-python 0.3.36, and the GGUF specification.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueType:
    """A metadata type: `size` in bytes (of a string: its length field alone), `code` for `struct` and `array`."""

    name: str
    size: int
    code: str


BOOL, STRING, ARRAY = 7, 8, 9

VALUE_TYPES: dict[int, ValueType] = {
    0: ValueType("u8", 1, "B"),
    1: ValueType("i8", 1, "b"),
    2: ValueType("u16", 2, "H"),
    3: ValueType("i16", 2, "h"),
    4: ValueType("u32", 4, "I"),
    5: ValueType("i32", 4, "i"),
    6: ValueType("f32", 4, "f"),
    BOOL: ValueType("bool", 1, "B"),
    STRING: ValueType("str", 8, ""),
    10: ValueType("u64", 8, "Q"),
    11: ValueType("i64", 8, "q"),
    12: ValueType("f64", 8, "d"),
}

INTEGERS = frozenset({"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"})


@dataclass(frozen=True, slots=True)
class GgmlType:
    """How tensor elements are stored: `block_size` consecutive elements of a row share `block_bytes` bytes."""

    id: int
    name: str
    block_size: int
    block_bytes: int

    def nbytes(self, elements: int) -> int:
        """Bytes of so many elements; they must fill whole blocks."""
        assert elements % self.block_size == 0
        return elements // self.block_size * self.block_bytes


GGML_TYPES: dict[int, GgmlType] = {
    kind.id: kind
    for kind in (
        GgmlType(0, "F32", 1, 4),
        GgmlType(1, "F16", 1, 2),
        GgmlType(2, "Q4_0", 32, 18),
        GgmlType(3, "Q4_1", 32, 20),
        GgmlType(6, "Q5_0", 32, 22),
        GgmlType(7, "Q5_1", 32, 24),
        GgmlType(8, "Q8_0", 32, 34),
        GgmlType(9, "Q8_1", 32, 36),
        GgmlType(10, "Q2_K", 256, 84),
        GgmlType(11, "Q3_K", 256, 110),
        GgmlType(12, "Q4_K", 256, 144),
        GgmlType(13, "Q5_K", 256, 176),
        GgmlType(14, "Q6_K", 256, 210),
        GgmlType(15, "Q8_K", 256, 292),
        GgmlType(16, "IQ2_XXS", 256, 66),
        GgmlType(17, "IQ2_XS", 256, 74),
        GgmlType(18, "IQ3_XXS", 256, 98),
        GgmlType(19, "IQ1_S", 256, 50),
        GgmlType(20, "IQ4_NL", 32, 18),
        GgmlType(21, "IQ3_S", 256, 110),
        GgmlType(22, "IQ2_S", 256, 82),
        GgmlType(23, "IQ4_XS", 256, 136),
        GgmlType(24, "I8", 1, 1),
        GgmlType(25, "I16", 1, 2),
        GgmlType(26, "I32", 1, 4),
        GgmlType(27, "I64", 1, 8),
        GgmlType(28, "F64", 1, 8),
        GgmlType(29, "IQ1_M", 256, 56),
        GgmlType(30, "BF16", 1, 2),
        GgmlType(34, "TQ1_0", 256, 54),
        GgmlType(35, "TQ2_0", 256, 66),
        GgmlType(39, "MXFP4", 32, 17),
        GgmlType(40, "NVFP4", 64, 36),
        GgmlType(41, "Q1_0", 128, 18),
        GgmlType(42, "Q2_0", 64, 18),
    )
}

# Ids that files of old versions carry; no engine reads them any more.
REMOVED_GGML_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

GGML_TYPES_BY_NAME: dict[str, GgmlType] = {kind.name: kind for kind in GGML_TYPES.values()}

# `general.file_type`: the recipe by which the tensors got their types.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
