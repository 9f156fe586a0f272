"""Tokenizers of every model, trained in milliseconds on several scripts, and texts that are hard to tokenize."""

# Characters that look alike are part of the texts.
# ruff: noqa: RUF001

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    "The quick brown fox jumps over the lazy dog, and doesn't stop: 1,234.56 times!",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを 我が世誰ぞ 常ならむ",
    "视野无限广，窗外有蓝天",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "def f(x):\n\treturn x ** 2  # squares\n\n\nclass A:\n    pass\n",
]

TEXTS = [
    *LINES,
    "",
    " ",
    "   ",
    "\n",
    "a",
    "  leading and trailing  ",
    "tabs\tand\r\nlines\u2028and\u2029more\x0b\x0c\x85",
    "family 👩\u200d👩\u200d👧\u200d👦, flag 🇩🇪, skin 👍🏽, keycap 1️⃣",
    "combining e\u0301 and a\u030a\u0323, Viktor\u0301, \u0301alone",
    "שלום \u202ertl\u202c עולם",
    "control \x00\x01\x07\x1b[31m\x7f\ufeff\u200b\u00ad end",
    "fullwidth ＡＢＣ１２３ ligature ﬁ ﷺ ½ ① Ⅷ ſ ß İ ı ǅ",
    "don't can't I'LL we've he'd 'S 'ſ ’s",
    "private \ue000\U000f0000 unassigned \u0378 nonchar \ufffe last \U0010ffff",
    "<s> special </s> in the text, <mask> and [CLS] too <extra>",
    "x" * 5000,
    "ab" * 3000 + " " + "日本" * 1000,
    " " * 4000 + "end",
    "a  b   c    d     e\n\n \n  \n",
    "1234567890" * 50,
    "!?!?…—–-''\"\"``<>{}[]()//\\\\",
    "\u00a0\u2003\u3000spaces\u205f\u1680",
]

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level_bpe() -> Tokenizer:
    """Like GPT-2."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    made.train_from_iterator(LINES * 3, trainer)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def split_bpe(pattern: str) -> Tokenizer:
    """Byte-level, split by a pattern: like Llama 3 and GPT-4o."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
    )
    made.train_from_iterator(LINES * 3, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return made


def byte_fallback_bpe() -> Tokenizer:
    """Like Llama 2: spaces as ▁, unknown characters as bytes."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    made.train_from_iterator(LINES[:2] * 3, trainer)
    template = "<s> $A </s>"
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    return made


def wordpiece() -> Tokenizer:
    """Like BERT."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        LINES * 3, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def unigram() -> Tokenizer:
    """Like XLNet and T5."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False
    )
    made.train_from_iterator(LINES * 3, trainer)
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    made.add_tokens([AddedToken("<extra>", lstrip=True, rstrip=True), AddedToken("булок", single_word=True)])
    return made


def word_level() -> Tokenizer:
    """Words, digits one by one, after stripping accents."""
    made = Tokenizer(models.WordLevel(unk_token="?"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.UnicodeScripts(),
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    made.train_from_iterator(LINES * 3, trainers.WordLevelTrainer(special_tokens=["?", "[CLS]"], show_progress=False))
    made.enable_truncation(3)
    made.enable_padding(length=50)
    return made


TOKENIZERS = {
    "gpt2": byte_level_bpe,
    "gpt2-split": lambda: split_bpe(GPT2),
    "llama3": lambda: split_bpe(LLAMA3),
    "o200k": lambda: split_bpe(O200K),
    "llama2": byte_fallback_bpe,
    "bert": wordpiece,
    "t5": unigram,
    "words": word_level,
}


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of random characters of every plane, among words."""
    source = random.Random(seed)
    ranges = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF)]
    ranges += [(0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    words = [word for line in LINES for word in line.split(" ")]

    def piece() -> str:
        if source.random() < 0.5:
            return source.choice(words) + source.choice(["", " ", "  ", "\n"])
        low, high = source.choice(ranges)
        return chr(source.randint(low, high))

    return ["".join(piece() for _ in range(source.randint(0, 60))) for _ in range(count)]


def every_character() -> list[str]:
    """Texts with every assigned character, alone and among letters, digits and spaces.

    Assigned characters are in planes 0 to 3 and at the start of plane 14. All others are unassigned or private, which
    no tokenizer distinguishes: each 31st, and those at both ends of a plane.
    """
    assigned = {*range(0x40000), *range(0xE0000, 0xE0200)}
    ends = {plane + offset for plane in range(0, 0x110000, 0x10000) for offset in (0, 0xFFFD, 0xFFFE, 0xFFFF)}
    chosen = sorted(assigned | ends | {*range(0x40000, 0x110000, 31)})
    points = [point for point in chosen if not 0xD800 <= point <= 0xDFFF]
    return [
        " ".join(f"{chr(point)} a{chr(point)}1 {chr(point)}'s" for point in points[start : start + 512])
        for start in range(0, len(points), 512)
    ]


def write_all(folder: Path) -> dict[str, Path]:
    """Write every tokenizer to a file; returns the files by name."""
    files = {name: folder / f"{name}.json" for name in TOKENIZERS}
    for name, path in files.items():
        TOKENIZERS[name]().save(str(path))
    return files


def ids(
    tokenizer: Tokenizer,
    texts: list[str],
    *,
    max_length: int | None = None,
    truncation: str = "right",
    add_special_tokens: bool = True,
) -> list[list[int]]:
    """The tokens that the Python package gives."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_length is not None:
        tokenizer.enable_truncation(max_length, direction=truncation)
    return [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)]


DOCUMENTS = [*TEXTS, *random_texts(700, seed=3)]
GROUP_ROWS = 150


def write(path: Path, texts: Sequence[str | None], kind: pa.DataType | None = None) -> None:
    """Write texts, numbered, to a file of several row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": pa.array(texts, kind or pa.string()), "n": range(len(texts))})
    pq.write_table(table, path, row_group_size=GROUP_ROWS)
