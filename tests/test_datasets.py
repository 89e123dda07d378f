"""Readers: what they read, and that they name the file and the line of what they cannot read."""

import bz2
import gzip
import io
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from reader_cases import RANKINGS, SVMLIGHT, text

from fastm4n.data._sequences import Sequences
from fastm4n.data._vectorizer import SequenceVectorizer
from fastm4n.datasets import (
    chunking_attributes,
    load_conll,
    load_conllu,
    load_crfsuite,
    load_csv,
    load_label_ranking,
    load_svm_hmm,
    load_svm_rank,
    load_svmlight,
    load_svmlight_sequences,
    window_attributes,
)

CONLL = "the DT B-NP\ncat NN I-NP\n\nänd CC O\n"
CONLLU = """\
# sent_id = 1
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVB\t_\t2\taux\t_\t_
2\tnot\tnot\tPART\tRB\t_\t0\troot\t_\t_
2.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_

1\tänd\tand\tCCONJ\tCC\t_\t0\troot\t_\t_
"""
CRFSUITE = "B-NP\tw=the\tbos\nI-NP\tw=cat\n\nO\tw=änd\n"


def load_ranking_columns(path):
    """What the reader gives, with names."""
    return dict(zip("Xy", load_label_ranking(path)))


def load_svmlight_rows(path):
    X, y = load_svmlight(path)
    return {"X": X.toarray(), "y": y}


LOADERS = {
    "conll": (load_conll, CONLL),
    "conllu": (load_conllu, CONLLU),
    "crfsuite": (load_crfsuite, CRFSUITE),
    "csv": (load_csv, "u,kind\n1,änd\n-2e-1,x\n"),
    "svmlight": (load_svmlight_sequences, SVMLIGHT),
    "svm-hmm": (load_svm_hmm, "NOUN qid:3 1:0.5 3:1 # änd\nvérb qid:3 2:-1e-1\n\nX qid:1 1:1\n"),
    "svm-rank": (load_svm_rank, SVMLIGHT),
    "svmlight rows": (load_svmlight_rows, "1 1:0.5 3:1 # änd\n2 2:-1e-1\n"),
    "rankings": (load_ranking_columns, RANKINGS),
}


@pytest.fixture(params=LOADERS)
def loader(request):
    return LOADERS[request.param]


def plain(data):
    """A Bunch as lists, to be compared."""
    return {
        key: [getattr(rows, "toarray", lambda r=rows: r)().tolist() for rows in value]
        if isinstance(value, Sequences)
        else np.asarray(value).tolist() if isinstance(value, np.ndarray) else value
        for key, value in data.items()
    }


# ----------------------------------------------------------------------------- all readers


def test_every_kind_of_file(loader, tmp_path):
    load, content = loader
    expected = plain(load(text(content)))
    data = content.encode()
    (tmp_path / "plain").write_bytes(data)
    for name, compress in (("gz", gzip), ("bz2", bz2), ("xz", lzma)):
        (tmp_path / f"data.{name}").write_bytes(compress.compress(data))
        (tmp_path / f"{name} under another name").write_bytes(compress.compress(data))
        assert plain(load(io.BytesIO(compress.compress(data)))) == expected
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    (tmp_path / "no last newline").write_bytes(data.rstrip())
    (tmp_path / "blank lines").write_bytes(b"\n\n" + data.replace(b"\n\n", b"\n \n\n") + b"\n\n")
    for path in tmp_path.iterdir():
        for source in (path, str(path)):
            assert plain(load(source)) == expected, path
        with open(path, "rb") as file:
            assert plain(load(file)) == expected
            assert not file.closed and file.read() == b""
    for source in (io.BytesIO(data), io.BytesIO(gzip.compress(data))):
        assert plain(load(source)) == expected
        assert not source.closed
    with open(tmp_path / "plain", encoding="utf-8") as file:
        assert plain(load(file)) == expected
        assert not file.closed
    with gzip.open(tmp_path / "data.gz", "rt", encoding="utf-8") as file:
        assert plain(load(file)) == expected
    with gzip.open(tmp_path / "data.gz") as file:
        assert plain(load(file)) == expected


def test_a_file_that_is_no_text(loader, tmp_path):
    load, content = loader
    path = tmp_path / "file"
    first, _, rest = content.encode().partition(b"\n")
    for junk, message in [
        (b"", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"\n \n", "has no (tokens|words|examples|documents)"),
        (first + b"\n\xe4nd" + rest, r"line 2: byte 1 of the line, b'\\xe4', is not UTF-8"),
        (content.encode("utf-16"), "line 1: byte 1 of the line, b'.xff', is not UTF-8"),
        (first + b"\x00\n" + rest, "line 1: .* no text file"),
        (bytes(range(256)) * 10, "line 1: "),
        (bz2.compress(content.encode())[:-5], "the bzip2 data is damaged or was cut off"),
        (bz2.compress(content.encode())[:20] + b"junk" * 20, "the bzip2 data is damaged"),
        (lzma.compress(content.encode())[:-5], "the xz data is damaged or was cut off"),
        (lzma.compress(content.encode())[:40] + b"junk" * 20, "the xz data is damaged"),
        (gzip.compress(content.encode())[:-5], "the gzip data is damaged or was cut off"),
        (gzip.compress(content.encode())[:-12], "the gzip data is damaged or was cut off"),
        (b"\x1f\x8b" + content.encode(), "the gzip data is damaged or was cut off"),
        (gzip.compress(content.encode())[:30] + b"junk" * 9, "the gzip data is damaged"),
        (gzip.compress(content.encode())[:10] + b"\xff" * 20, "the gzip data is damaged"),
    ]:
        path.write_bytes(junk)
        with pytest.raises(ValueError, match=message) as caught:
            load(path)
        assert str(caught.value).startswith(str(path))
        with open(path, "rb") as file, pytest.raises(ValueError, match=message) as caught:
            load(file)
        assert str(caught.value).startswith(str(path))
        with pytest.raises(ValueError, match=f"^<BytesIO>.*{message}"):
            load(io.BytesIO(junk))
    path.write_bytes(content.encode("latin-1"))
    with open(path, encoding="utf-8") as file:
        with pytest.raises(ValueError, match="after line 0: not text in utf-8"):
            load(file)


def test_no_file(loader, tmp_path):
    load, _ = loader
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    for source in (3, None, ["a"], b"a"):
        with pytest.raises(TypeError, match="must be a path or a file object"):
            load(source)


# ----------------------------------------------------------------------------------- conll


def test_conll():
    data = load_conll(text(CONLL))
    assert data.tokens == [[("the", "DT"), ("cat", "NN")], [("änd", "CC")]]
    assert data.labels == [["B-NP", "I-NP"], ["O"]]
    assert data.columns is None


@pytest.mark.parametrize(
    ("arguments", "tokens", "labels", "columns"),
    [
        ({"label_column": 0}, ("DT", "B-NP"), "the", None),
        ({"label_column": -2}, ("the", "B-NP"), "DT", None),
        ({"label_column": None}, ("the", "DT", "B-NP"), None, None),
        ({"columns": ["w", "pos", "y"]}, ("the", "DT"), "B-NP", ["w", "pos"]),
        ({"columns": ("w", "pos", "y"), "label_column": "pos"}, ("the", "B-NP"), "DT", ["w", "y"]),
        ({"columns": ["w", "pos", "y"], "label_column": None}, ("the", "DT", "B-NP"), None,
         ["w", "pos", "y"]),
    ],
)
def test_conll_columns(arguments, tokens, labels, columns):
    data = load_conll(text(CONLL), **arguments)
    assert data.tokens[0][0] == tokens
    assert data.columns == columns
    assert (data.labels if labels is None else data.labels[0][0]) == labels


def test_conll_separators():
    # any run of spaces and tabs, but no other white space of Unicode: words hold it
    lines = " a\u00a0b \t  X\t\nc\u3000d\x85\u2028e Y  \n"
    data = load_conll(text(lines))
    assert data.tokens == [[("a\u00a0b",), ("c\u3000d\x85\u2028e",)]]
    assert data.labels == [["X", "Y"]]
    data = load_conll(text("a b\t\tX\n \t \nc\td\tY\n"), delimiter="\t")
    assert data.tokens == [[("a b", "")], [("c", "d")]]
    data = load_conll(text("a|b|X\n"), delimiter="|")
    assert data.tokens == [[("a", "b")]]


def test_conll_comments_and_documents():
    lines = "-DOCSTART- -X- O\n\n# 1 a\na X\n-DOCSTART-\nb Y\n#b Z\n"
    with pytest.raises(ValueError, match="line 4: 2 column.* instead of 3"):
        load_conll(text(lines))
    data = load_conll(text(lines), comment="# ")
    assert data.tokens == [[("a",)], [("b",), ("#b",)]]
    data = load_conll(text("-DOCSTART- O\n\na X\n"), skip_docstart=False)
    assert data.tokens == [[("-DOCSTART-",)], [("a",)]]


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ("a b X\n\nc Y\n", {}, r"<StringIO>, line 3: 2 column\(s\) instead of 3: 'c Y'"),
        ("a b X\na b c X\n", {}, r"line 2: 4 column\(s\) instead of 3"),
        ("\n\na\tb X\n", {"delimiter": "\t", "columns": ["w", "p", "y"]}, "line 3: 2 column"),
        ("a X\n", {"columns": ["w", "pos", "y"]}, r"line 1: 2 column\(s\) instead of 3"),
        ("\nX\n", {}, "line 2: 1 column instead of tokens and labels: 'X'"),
        ("a X\n", {"label_column": 2}, "no label_column=2: there are 2 columns"),
        ("a X\n", {"label_column": -3}, "no label_column=-3: there are 2 columns"),
        ("a X\n", {"label_column": "y"}, "needs columns, their names"),
        ("a X\n", {"label_column": "z", "columns": ["w", "y"]}, "'z' is not among the columns"),
        ("a X\n", {"delimiter": ""}, "delimiter must be None or a string"),
        ("a X\n", {"comment": ""}, "comment must be None or a string"),
        ("-DOCSTART-\n", {}, "<StringIO> has no tokens"),
    ],
)
def test_conll_errors(lines, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_conll(text(lines), **arguments)


@pytest.mark.parametrize("arguments", [{"label_column": 1.0}, {"label_column": True},
                                       {"columns": "wy"}])
def test_conll_types(arguments):
    with pytest.raises(TypeError, match="label_column must be|columns must be"):
        load_conll(text("a X\n"), **arguments)


def test_conll2000(data_folder):
    expected = {"train": (8936, 211_727, 22), "test": (2012, 47_377, 19)}
    for part, (sentences, tokens, labels) in expected.items():
        data = load_conll(data_folder / "conll2000" / f"{part}.txt.gz")
        assert len(data.tokens) == len(data.labels) == sentences
        assert list(map(len, data.tokens)) == list(map(len, data.labels))
        assert sum(map(len, data.labels)) == tokens
        assert len({label for sequence in data.labels for label in sequence}) == labels
        assert {len(token) for sentence in data.tokens for token in sentence} == {2}
    data = load_conll(data_folder / "pos" / "tweebank_v1-train.conll.gz", label_column=3)
    assert len(data.tokens) == 717 and sum(map(len, data.labels)) == 9310
    assert data.tokens[0][1][1] == "@ieatpussy4pizza" and data.labels[0][:3] == ["~", "@", "~"]


# ---------------------------------------------------------------------------------- conllu


def test_conllu():
    data = load_conllu(text(CONLLU))
    assert data.tokens == [["do", "not"], ["änd"]]
    assert data.labels == [["AUX", "PART"], ["CCONJ"]]
    data = load_conllu(text(CONLLU), fields=["FORM", "ID"], label="DEPREL")
    assert data.tokens == [[("do", "1"), ("not", "2")], [("änd", "1")]]
    assert data.labels == [["aux", "root"], ["root"]]
    assert load_conllu(text(CONLLU), label=None).labels is None


def test_conllu_forms_with_spaces():
    line = "1\ta b\u00a0c\t_\tX\t_\t_\t0\troot\t_\t_\n"
    assert load_conllu(text(line)).tokens == [["a b\u00a0c"]]


def conllu_lines(*ids):
    return "".join(f"{i}\tw\t_\tX\t_\t_\t0\troot\t_\t_\n" if i else "\n" for i in ids)


def test_conllu_ids_in_order():
    data = load_conllu(text(conllu_lines("0.1", 1, "1.1", "1.2", "2-3", 2, "2.1", 3, "4-4", 4, "",
                                         1)))
    assert data.tokens == [["w"] * 4, ["w"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (conllu_lines("1" * 5000), "line 1: the ID .* is not of the form"),
        (conllu_lines(1, 3), "line 2: the ID 3 follows word 1"),
        (conllu_lines(1, 2, 1), "line 3: the ID 1 follows word 2, .*a blank line"),
        (conllu_lines(2), "line 1: the ID 2 follows word 0"),
        (conllu_lines("0"), "line 1: the ID 0 follows word 0"),
        (conllu_lines(1, "2.1"), "line 2: the ID 2.1 follows word 1"),
        (conllu_lines(1, "1-2"), "line 2: the ID 1-2 follows word 1"),
        (conllu_lines("1-2", 1, "2-3"), "line 3: the multiword token 2-3 is empty or overlaps"),
        (conllu_lines(1, 2, "3-2"), "line 3: the multiword token 3-2 is empty or overlaps"),
        (conllu_lines("1-3", 1, 2, "", 1), "line 4: the sentence ends at word 2, .* goes to 3"),
        (conllu_lines("1-2", 1), "line 2: the sentence ends at word 1"),
        (conllu_lines("1a"), "line 1: the ID '1a' is not of the form"),
        (conllu_lines("-1"), "line 1: the ID '-1' is not of the form"),
        (conllu_lines("_"), "line 1: the ID '_' is not of the form"),
        (conllu_lines(1) + "2 w _ X _ _ 0 root _ _\n", r"line 2: 1 column\(s\) instead of 10"),
        (conllu_lines(1)[:-1] + "\t_\n", r"line 1: 11 column\(s\)"),
        ("# text\n\n", "<StringIO> has no words"),
    ],
)
def test_conllu_errors(lines, message):
    with pytest.raises(ValueError, match=message):
        load_conllu(text(lines))


@pytest.mark.parametrize("arguments", [{"fields": "form"}, {"fields": ["FORM", "POS"]},
                                       {"label": "TAG"}])
def test_conllu_fields(arguments):
    with pytest.raises(ValueError, match="fields and label must be among"):
        load_conllu(text(CONLLU), **arguments)


def test_tamil(data_folder):
    sentences, tags = [], set()
    for part in ("train", "dev", "test"):
        data = load_conllu(data_folder / "pos" / f"ta_ttb-ud-{part}.conllu.gz")
        sentences += data.tokens
        tags.update(label for labels in data.labels for label in labels)
    words = [word for sentence in sentences for word in sentence]
    assert (len(sentences), len(words), len(set(words)), len(tags)) == (600, 9581, 3584, 14)


# -------------------------------------------------------------------------------- crfsuite


def test_crfsuite():
    data = load_crfsuite(text(CRFSUITE))
    assert data.sequences == [[["w=the", "bos"], ["w=cat"]], [["w=änd"]]]
    assert data.labels == [["B-NP", "I-NP"], ["O"]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("O\ta:2\tb", {"a": 2.0, "b": 1.0}),
        ("O\ta:-1.5e1\ta:2\ta", {"a": -12.0}),
        ("O\ta:", {"a": 1.0}),
        (r"O" "\t" r"a\:b:2" "\t" r"c\\:3" "\t" r"\::4", {"a:b": 2.0, "c\\": 3.0, ":": 4.0}),
        (r"O" "\t" r"a\:b" "\t" r"c\\" "\t" r"\d" "\t" "e\\", ["a:b", "c\\", r"\d", "e\\"]),
        ("O\t\ta\t\tb\t", ["a", "b"]),
        ("O\ta b\t#c", ["a b", "#c"]),
        ("O", []),
    ],
)
def test_crfsuite_attributes(line, expected):
    data = load_crfsuite(text(line + "\n"))
    assert data.sequences == [[expected]]
    assert data.labels == [["O"]]


def test_crfsuite_tokens_are_of_one_kind():
    data = load_crfsuite(text("O\ta\ta\n\nO\tb\n" + r"O" "\tc:2\n" + "O\td\\:\n"))
    assert data.sequences == [[{"a": 2.0}], [{"b": 1.0}, {"c": 2.0}, {"d:": 1.0}]]


def test_crfsuite_labels_are_escaped_too():
    assert load_crfsuite(text(r"a\:b\\" "\tw\n")).labels == [["a:b\\"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("O\ta\n\tb\n", "<StringIO>, line 2: there is no label"),
        ("O\ta\nO\tb:c\n", "line 2: the weight 'c' of the attribute 'b:c' is not a finite number"),
        ("O\tb:nan\n", "line 1: the weight 'nan'"),
        ("O\tb:inf\n", "line 1: the weight 'inf'"),
        ("O\tb:1_0\n", "line 1: the weight '1_0'"),
        ("O\thttp://x:1\n", "line 1: the attribute 'http://x:1' has two colons"),
        ("O\t:2\n", "line 1: the attribute ':2' has no name"),
        ("O:1\tb\n", "line 1: the label 'O' has a weight"),
    ],
)
def test_crfsuite_errors(lines, message):
    with pytest.raises(ValueError, match=message):
        load_crfsuite(text(lines))


def test_crfsuite_file_of_the_chunking_example(data_folder):
    data = load_conll(data_folder / "conll2000" / "test.txt.gz")
    attributes = [chunking_attributes(*zip(*sentence)) for sentence in data.tokens[:300]]
    lines = []
    for labels, tokens in zip(data.labels[:300], attributes, strict=True):
        for label, names in zip(labels, tokens):
            escaped = [name.replace("\\", "\\\\").replace(":", "\\:") for name in names]
            lines.append("\t".join([label, *escaped]))
        lines.append("")
    read = load_crfsuite(io.BytesIO("\n".join(lines).encode()))
    assert any(":" in name for tokens in read.sequences for names in tokens for name in names)
    assert read.sequences == attributes and read.labels == data.labels[:300]


# ----------------------------------------------------------------------- chunking attributes


def test_chunking_attributes():
    attributes = chunking_attributes(["A", "b", "c", ":"], ["P", "Q", "R", ":"])
    assert attributes[1] == [
        "w[-1]=A", "w[0]=b", "w[1]=c", "w[2]=:", "w[-1]|w[0]=A|b", "w[0]|w[1]=b|c",
        "pos[-1]=P", "pos[0]=Q", "pos[1]=R", "pos[2]=:",
        "pos[-1]|pos[0]=P|Q", "pos[0]|pos[1]=Q|R", "pos[1]|pos[2]=R|:",
        "pos[-1]|pos[0]|pos[1]=P|Q|R", "pos[0]|pos[1]|pos[2]=Q|R|:",
    ]
    assert attributes[0][-1] == "__BOS__" and attributes[3][-1] == "__EOS__"
    assert attributes[3][:2] == ["w[-2]=b", "w[-1]=c"]
    assert "pos[-2]|pos[-1]|pos[0]=Q|R|:" in attributes[3]
    assert "pos[-2]|pos[-1]=P|Q" in attributes[2]


@pytest.mark.parametrize("n", range(8))
def test_chunking_attributes_of_short_sentences(n):
    words, tags = [f"w{t}" for t in range(n)], tuple(f"p{t}" for t in range(n))
    attributes = chunking_attributes(words, tags)
    assert len(attributes) == n
    windows = {"w": [(-2, -2), (-1, -1), (0, 0), (1, 1), (2, 2), (-1, 0), (0, 1)]}
    windows["pos"] = windows["w"] + [(-2, -1), (1, 2), (-2, 0), (-1, 1), (0, 2)]
    for t, names in enumerate(attributes):
        expected = ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == n - 1)
        for field, values in (("w", words), ("pos", tags)):
            for first, last in windows[field]:
                if t + first >= 0 and t + last < n:
                    offsets = range(first, last + 1)
                    expected.append(
                        "|".join(f"{field}[{o}]" for o in offsets) + "="
                        + "|".join(values[t + o] for o in offsets)
                    )
        assert Counter(names) == Counter(expected)


def test_chunking_attributes_need_a_tag_for_each_word():
    with pytest.raises(ValueError, match="2 words and 1 tags"):
        chunking_attributes(["a", "b"], ["A"])


def test_what_is_read_goes_into_the_vectorizer(tmp_path):
    path = tmp_path / "data.crf"
    path.write_text(CRFSUITE, "utf-8")
    data = load_crfsuite(Path(path))
    X = SequenceVectorizer().fit_transform(data.sequences)
    assert X.lengths.tolist() == [2, 1] and X.values.shape == (3, 4)
    assert Sequences.from_list(data.labels).lengths.tolist() == [2, 1]


def test_window_attributes():
    rows = [("The", "DT"), ("X-2", "NN"), ("A", "X")]
    first, middle, last = window_attributes(rows, window=1)
    assert first == [
        "0[0]=The", "1[0]=DT", "0[1]=X-2", "1[1]=NN", "lower=the", "begin=t", "begin=th",
        "begin=the", "end=e", "end=he", "end=the", "capital", "__BOS__",
    ]
    assert {"0[-1]=The", "0[1]=A", "1[-1]=DT", "capitals", "digit", "hyphen"} <= set(middle)
    assert not {"__BOS__", "__EOS__"} & set(middle)
    assert last[-2:] == ["capital", "__EOS__"] and "capitals" not in last
    assert window_attributes(["a"], window=0) == [
        ["0[0]=a", "lower=a", "begin=a", "end=a", "__BOS__", "__EOS__"]]
    assert window_attributes([]) == []
    assert sum("[2]=" in name for name in window_attributes(["a", "b", "c"])[0]) == 1
    rows = SequenceVectorizer().fit_transform([window_attributes(["a", "b"])])
    assert rows.n_tokens == 2
