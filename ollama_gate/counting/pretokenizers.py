r"""How each kind of byte-level vocabulary cuts text into words before BPE: llama.cpp's pre-tokenizers by name.

`PATTERNS` gives, for a `tokenizer.ggml.pre`, the patterns that are applied one after the other, each to every piece the
one before it left; what a pattern matches becomes a piece, and so does what lies between two matches. They say what
`src/llama-vocab.cpp:llm_tokenizer_bpe` and the hand-written splitters in `src/unicode.cpp` (b10488) do, in Oniguruma's
syntax. Three things need care:

* The engine's character classes are Unicode 15.1's, Oniguruma's are 16.0's; `NEWER` is taken out of every class.
* Where the engine compiles a pattern with std::regex, its `\p{S}` has no `~`, `$` is the end of the piece, and white
  space beyond ASCII is only ever `\s`, never part of a range.
* No pattern here may take quadratic time on any text; that is why a few use possessive quantifiers and lookbehinds.

A name that is not in `PATTERNS` must be refused, not guessed. Left out on purpose are `kimi-k2`, `afmoe`, `tiny_aya`,
`cohere2moe`, `superbpe`, `sarvam-moe` and `whitespace`: their engines do more than cut.
"""

NEWER = (
    r"\x{897}\x{1B4E}\x{1B4F}\x{1B7F}\x{1C89}\x{1C8A}\x{2427}-\x{2429}\x{31E4}\x{31E5}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}"
    r"\x{105C0}-\x{105F3}\x{10D40}-\x{10D8F}\x{10EC2}-\x{10EFC}\x{11380}-\x{113E2}\x{116D0}-\x{116E3}\x{11BC0}-\x{11BF9}"
    r"\x{11F5A}\x{13460}-\x{143FA}\x{16100}-\x{16139}\x{16D40}-\x{16D79}\x{18CFF}\x{1CC00}-\x{1CEB3}\x{1E5D0}-\x{1E5FF}"
    r"\x{1F8B2}-\x{1F8C1}\x{1FA89}-\x{1FA8F}\x{1FABE}\x{1FAC6}\x{1FADC}-\x{1FADF}\x{1FAE9}\x{1FBCB}-\x{1FBEF}"
)
"""Characters of Unicode 16.0 that the engine's tables (15.1) do not know."""

LETTER = rf"[\p{{L}}&&[^{NEWER}]]"
NUMBER = rf"[\p{{N}}&&[^{NEWER}]]"
MARK = rf"[\p{{M}}&&[^{NEWER}]]"
PUNCTUATION = rf"[\p{{P}}&&[^{NEWER}]]"
SYMBOL = rf"[\p{{S}}&&[^~{NEWER}]]"

CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LOWER_CONTRACTION = r"'s|'t|'re|'ve|'m|'ll|'d"
SPACE_RUNS = r"\s*[\r\n]+|\s+(?!\S)|\s+"

GPT2 = rf"{LOWER_CONTRACTION}| ?{LETTER}+| ?{NUMBER}+| ?[^\s{LETTER}{NUMBER}]+|\s+(?!\S)"


def _words(numbers: str, *, contraction: str = CONTRACTION, spaces: str = SPACE_RUNS) -> str:
    """Llama 3's shape: a contraction, a word with one leading mark, `numbers`, punctuation, white space."""
    return (
        rf"{contraction}|[^\r\n{LETTER}{NUMBER}]?{LETTER}+|{numbers}"
        rf"| ?[^\s{LETTER}{NUMBER}]+[\r\n]*|{spaces}"
    )


def _cased(letters: str, *, contraction: str, numbers: str) -> str:
    """GPT-4o's shape: words end where an upper-case ASCII letter follows a lower-case one."""
    lower, upper = rf"(?:(?={letters})[^A-Z])", rf"(?:(?={letters})[^a-z])"
    lead = rf"[^\r\n{LETTER}{NUMBER}]?"
    return (
        rf"{lead}{upper}*{lower}+{contraction}|{lead}{upper}+{lower}*{contraction}|{numbers}"
        rf"| ?[^\s{LETTER}{NUMBER}]+[\r\n/]*|{SPACE_RUNS}"
    )


GPT4O_CONTRACTION = CONTRACTION + "?"
DEEPSEEK_3 = (
    NUMBER + "{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    (
        rf"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{{|}}~][A-Za-z]+|[^\r\n{LETTER}{PUNCTUATION}{SYMBOL}]?[{LETTER}{MARK}]+"
        rf"| ?[{PUNCTUATION}{SYMBOL}]+[\r\n]*|{SPACE_RUNS}"
    ),
)
DEEPSEEK_CASED = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}"
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}"
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}"
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}"
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}"
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}"
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}"
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}"
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}"
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}"
)
DEEPSEEK_CJK = r"[一-龥ࠀ-一가-퟿&&[^\s]]+"
DIGIT_TRIPLES = "[0-9][0-9][0-9]"

PATTERNS: dict[str, tuple[str, ...]] = {}
"""`tokenizer.ggml.pre` → patterns. `gemma4` text is not byte-encoded; see `bpe.py`."""


def _known(names: str, *patterns: str) -> None:
    for name in names.split():
        PATTERNS[name] = patterns


_known("default", rf"[{PUNCTUATION}$+<=>^~|]+", GPT2, NUMBER + "+", DIGIT_TRIPLES)
_known(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe glm4 chatglm-bpe",
    _words(NUMBER + "{1,3}"),
)
_known(
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    _words(NUMBER),
)
_known(
    "qwen35",
    rf"{CONTRACTION}|[^\r\n{LETTER}{NUMBER}]?[{LETTER}{MARK}]+|{NUMBER}"
    rf"| ?[^\s{LETTER}{MARK}{NUMBER}]+[\r\n]*|{SPACE_RUNS}",
)
_known(
    "gpt-4o llama4 kanana2 talkie minimax-m2",
    _cased(LETTER, contraction=GPT4O_CONTRACTION, numbers=NUMBER + "{1,3}"),
)
_known(
    "granite-embed-multi-97m",
    _cased(f"[{LETTER}{MARK}]", contraction=GPT4O_CONTRACTION, numbers=NUMBER + "{1,3}"),
)
_known("tekken", _cased(LETTER, contraction="", numbers=NUMBER))
_known("deepseek-v3 hunyuan-dense joyai-llm", *DEEPSEEK_3)
_known(
    "deepseek-llm",
    r"[\r\n]",
    rf"\s?[{DEEPSEEK_CASED}]+",
    r"\s?[!-/:-~！-／：-～‘-‟、。]+",
    r"(?<!\s)\s++\z",
    DEEPSEEK_CJK,
    NUMBER + "+",
)
_known(
    "deepseek-coder",
    r"[\r\n]",
    rf"\s?{LETTER}+",
    rf"\s?{PUNCTUATION}+",
    DEEPSEEK_CJK,
    NUMBER,
)
_known("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", NUMBER, GPT2)
_known(
    "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
    "modern-bert exaone4 mpt olmo jais trillion granite-docling",
    GPT2,
)
_known("falcon", rf"[{PUNCTUATION}$+<=>^~|`]+", GPT2, DIGIT_TRIPLES)
_known("gemma4 granite-embed-multi-311m", r"[^\n]+|[\n]+")
_known("laguna", r"[^\n]+|[\n]+", _words(NUMBER))
_known("minicpm5", NUMBER + "{1,3}", _words(NUMBER + "+"))
_known(
    "seed-coder",
    rf"{CONTRACTION}|[^\r\n{LETTER}{NUMBER}]?{LETTER}+|{NUMBER}| ?[^\s{LETTER}{NUMBER}\r\n]+|{SPACE_RUNS}",
)
_known(
    "bailingmoe bailingmoe2 llada-moe",
    _words(
        NUMBER,
        contraction=r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
        spaces=r"\s*[\r\n]|\s+(?!\S)|\s+",
    ),
)
_known(
    "jais-2",
    _words(
        NUMBER + "{1,3}",
        spaces=r"\s*[\r\n]+|"
        + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
        + r"|\s{1,2}(?!\S)|\s",
    ),
)
_known(
    "youtu",
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
    rf"[^\r\n{LETTER}{NUMBER}]?[{LETTER}{MARK}]+{CONTRACTION}?|{NUMBER}| ?[^\s{LETTER}{NUMBER}]+[\r\n/]*|{SPACE_RUNS}",
)
_known("poro-chat bloom gpt3-finnish", " ?[^(\\s|.,!?…。，、।۔،)]+")
_known("viking", " ?[^(\\s|.,!?…。，、।۔،)]+", NUMBER)

RAW_TEXT = frozenset({"gemma4", "granite-embed-multi-311m"})
"""BPE over text with `▁` for space and `<0xNN>` for bytes, instead of GPT-2's byte alphabet."""

_AS_LLAMA_3 = frozenset(
    ["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken"]
)
"""Where llama.cpp does both: it ignores the merges of whole words, and adds BOS."""

IGNORE_MERGES = _AS_LLAMA_3 | {"youtu", "minicpm5", "granite-embed-multi-97m"}
"""A word that is in the vocabulary is that one token, whatever the merges say."""

BOS_BY_DEFAULT = _AS_LLAMA_3 | {"chameleon"}
"""A BOS token is added unless the file says otherwise."""

BOS_FORCED = RAW_TEXT
"""A BOS token is added even if the file says otherwise."""
