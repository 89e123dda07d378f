"""Model files of CRFsuite: their contents, checked in full, and taggers of them.

A file has a header and five chunks, with their places in the header. ``FEAT`` has the weights. Two
databases ``CQDB`` have the names of labels and of attributes. ``LFRF`` and ``AFRF`` list the
weights of each label and attribute. Numbers are little-endian, except in databases, which name
their byte order.
"""

from __future__ import annotations

import codecs
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.base.array_files import MAGIC as OUR_MAGIC
from fastm4n.base.array_files import MAGIC_OF_CRFSUITE as MAGIC
from fastm4n.base.array_files import ModelFileError
from fastm4n.base.claims import GRANTED, TIMES
from fastm4n.crfsuite._records import weights_of_records
from fastm4n.data._tokens import Names, names_of_records
from fastm4n.data._vectorizer import SequenceVectorizer
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.features._rows import n_pair_rows
from fastm4n.outputs import row_stride
from fastm4n.tasks.chain_weights import Transitions, WeightsOfPairs

if TYPE_CHECKING:
    from fastm4n.base.types import StrPath

__all__ = ["CRFsuiteModel", "load_model", "read_crfsuite_model"]

MODEL_TYPE, VERSION = b"FOMC", 100
# magic, size of the file, type, version; features (0 in most files), labels, attributes; and where
# FEAT, the two databases, LFRF and AFRF begin
_HEADER = struct.Struct("<4sI4s9I")
_PLACES = {"FEAT": 28, "CQDB of labels": 32, "CQDB of attributes": 36, "LFRF": 40, "AFRF": 44}
# tag, size, number of items
_CHUNK = struct.Struct("<4s2I")
# tag, size, flags, byte order, length and place of the array of records
_DATABASE = struct.Struct("4s5I")
_FEATURE = np.dtype([("type", "<u4"), ("source", "<u4"), ("target", "<u4"), ("weight", "<f8")])
_STATE, _TRANSITION = 0, 1
# mark of the byte order in a database
_BYTE_ORDER = 0x62445371
# start of its records, after the header and the places of 256 hash tables
_RECORDS = _DATABASE.size + 256 * 8
# bytes of a record before its name: the number, and the length of the name with its final NUL
_BEFORE_NAME = 8
# places in files have 32 bits
_MOST_BYTES = 2**32 - 1

# number of a tagger's tables of pairs of labels
_TABLES = 3
_MOST_LABELS = 65535
# in an array of strings, which all take the memory of the longest
_MOST_CHARACTERS = 1 << 22

_REMEDY = "Take another copy of the file, copied as binary, or train it again."


class CRFsuiteModel(NamedTuple):
    """Contents of a model file of CRFsuite.

    Attributes
    ----------
    labels, attributes : list of str
        In the order of the file. Labels are in the order of the training data.
    starts : int32 array of shape (n_attributes + 1,)
        Attribute a has the weights ``starts[a]`` to ``starts[a + 1] - 1``.
    state_labels : uint16 array
        The label of each weight of an attribute, increasing within the attribute.
    state_weights : float64 array
    sources, targets : int array
        Labels of the transitions with weights.
    transition_weights : float64 array
    """

    labels: list[str]
    attributes: list[str]
    starts: np.ndarray
    state_labels: np.ndarray
    state_weights: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    transition_weights: np.ndarray


def read_crfsuite_model(
    source: StrPath | bytes | bytearray | memoryview, *, encoding: str = "utf-8",
) -> CRFsuiteModel:
    """Read a model file of CRFsuite, and check all of it.

    Parameters
    ----------
    source : str, path, or bytes-like
        The file, or its bytes.
    encoding : str, default="utf-8"
        Encoding of the names of labels and attributes.

    Returns
    -------
    model : CRFsuiteModel

    Raises
    ------
    ModelFileError
        If the file is damaged, cut off, of another version or no model. The message has the file,
        the chunk and the byte. Sizes are checked against the length of the file before memory is
        taken.
    OSError
        If the file cannot be read.
    """
    model = _read(source, encoding)
    return model._replace(labels=_strings(model.labels), attributes=_strings(model.attributes))


def _strings(names):
    return names.strings() if isinstance(names, Names) else names


def _read(source, encoding):
    """The model, whose names may be `Names`."""
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"encoding={encoding!r:.80} is unknown: {error}.") from error
    name, content = _content(source)
    try:
        return _Reader(name, content, encoding).read()
    except MemoryError as error:
        raise ModelFileError(f"{name} is too large for the memory there is.") from error


def _content(source):
    """Name and bytes of the file."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        content = memoryview(source).cast("B")
        name = "The model"
        _check_header(name, content[: _HEADER.size], len(content))
        return name, content
    path = Path(source)
    # a pipe would block, and a device has no end
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{path} is not a regular file.")
    with open(path, "rb") as file:
        start = file.read(_HEADER.size)
        _check_header(path, start, found.st_size)
        file.seek(0)
        return path, file.read(found.st_size)


def _check_header(name, start, length):
    """Refuse other files before reading all of them."""
    start = bytes(start)
    magic, model_type = start[:4], start[8:12]
    if not length:
        raise ModelFileError(f"{name} is empty.")
    if start.startswith(OUR_MAGIC):
        raise ModelFileError(
            f"{name} is a model of fastm4n, not of CRFsuite: load it by fastm4n.load_model.")
    for packed, by in ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz")):
        if start.startswith(packed):
            raise ModelFileError(f"{name} is compressed by {by}: unpack it first.")
    if magic != MAGIC[: len(magic)]:
        raise ModelFileError(
            f"{name} is not a model of CRFsuite: it begins with {magic!r}, not with {MAGIC!r}.")
    if len(start) < _HEADER.size:
        raise ModelFileError(
            f"{name} is cut off: it has {length} bytes, and the header alone has {_HEADER.size}. "
            f"{_REMEDY}")
    version = _HEADER.unpack(start)[3]
    if model_type != MODEL_TYPE:
        raise ModelFileError(
            f"{name} has a model of type {model_type!r}, at byte 8. Only models of chains, "
            f"{MODEL_TYPE!r}, can be read.")
    if version != VERSION:
        raise ModelFileError(
            f"{name} is of format version {version}, at byte 12. Only version {VERSION} can be "
            "read. Train the model by CRFsuite 0.12 or python-crfsuite 0.9.")
    if length > _MOST_BYTES:
        raise ModelFileError(
            f"{name} has {length} bytes. A model of CRFsuite has at most {_MOST_BYTES}.")


class _Reader:
    """Reader of one file, for `read_crfsuite_model`."""

    def __init__(self, name, content, encoding):
        self.name, self.content, self.encoding = name, content, encoding
        self.length = len(content)

    def read(self):
        (_, length, _, _, n_features, n_labels, n_attributes, features, labels, attributes,
         label_references, attribute_references) = _HEADER.unpack(
            bytes(self.content[: _HEADER.size]))
        if self.length < length:
            raise ModelFileError(
                f"{self.name} is cut off: it has {self.length} bytes of {length}. {_REMEDY}")
        if self.length > length:
            raise self.damaged(
                "the header", 4, f"the end of the file should be at byte {length}, but "
                f"{self.length - length} more follow")
        if n_labels == 0:
            raise self.damaged("the header", 20, "there are no labels")
        table = 8 * _TABLES * n_labels**2
        if n_labels > _MOST_LABELS or table > max(GRANTED, TIMES * self.length):
            raise ModelFileError(
                f"{self.name} has {n_labels} labels, at byte 20 of the header: tables of all pairs "
                f"would take {table} bytes, out of proportion to the file. Train a model with "
                "fewer labels.")
        weights = self.weights(
            features, attribute_references, label_references, n_features, n_attributes, n_labels)
        label_names = self.names("labels", labels, n_labels)
        names = self.names("attributes", attributes, n_attributes)
        return CRFsuiteModel(label_names, names, *weights)

    def weights(self, offset, attributes, labels, n_told, n_attributes, n_labels):
        """The weights of a `CRFsuiteModel`, from where FEAT, AFRF and LFRF begin."""
        start, n = self.start_of_features(offset, n_told)
        chunks = []
        for tag, begin, n_items, n_most, what in (
                ("AFRF", attributes, n_attributes, n_attributes, "attribute"),
                # two more labels, of the ends of a sequence, are counted and refer to nothing
                ("LFRF", labels, n_labels, n_labels + 2, "label")):
            size = self.size_of_references(tag, begin, n_items, n_most, what)
            chunks.append((self.array(tag, begin, size, np.uint8), begin))
        found = weights_of_records(
            self.array("FEAT", start, n * _FEATURE.itemsize, np.uint8), chunks, n_attributes,
            n_labels)
        if found is not None:
            return found
        records = self.features(start, n, n_labels, n_attributes)
        is_state = records["type"] == _STATE
        state = self.by_source(start, records, np.flatnonzero(is_state), n_labels)
        transitions = self.by_source(start, records, np.flatnonzero(~is_state), n_labels)
        self.references("LFRF", labels, records, transitions, n_labels, "label")
        self.references("AFRF", attributes, records, state, n_attributes, "attribute")
        counts = np.bincount(records["source"][state], minlength=n_attributes)
        return (
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            records["target"][state].astype(np.uint16), records["weight"][state],
            *(records[part][transitions] for part in ("source", "target", "weight")))

    # ----------------------------------------------------------------------------- errors

    def damaged(self, chunk, offset, what):
        return ModelFileError(
            f"{self.name} is damaged in {chunk}, at byte {offset}: {what}. {_REMEDY}")

    def array(self, chunk, offset, n, dtype="<u4"):
        """An array of n numbers at `offset`, refused if the file ends before."""
        end = offset + n * np.dtype(dtype).itemsize
        if end > self.length:
            raise self.damaged(
                chunk, offset, f"{n} numbers would end at byte {end}, behind the end of the file, "
                f"{self.length}")
        return np.frombuffer(self.content, dtype, n, offset)

    def chunk(self, tag, offset):
        """Size and number of items of a chunk, checked against the file."""
        self.check_start(tag, offset, _CHUNK.size)
        found, size, n = _CHUNK.unpack_from(self.content, offset)
        if found != tag.encode():
            raise self.damaged(tag, offset, f"{found!r} is not the name of the chunk")
        if not _CHUNK.size <= size <= self.length - offset:
            raise self.damaged(
                tag, offset + 4, f"the chunk should have {size} bytes, but the file has "
                f"{self.length - offset} from there on")
        return size, n

    def check_start(self, chunk, offset, size):
        if not _HEADER.size <= offset <= self.length - size:
            raise self.damaged(
                "the header", _PLACES[chunk], f"{chunk} cannot begin at byte {offset} of "
                f"{self.length}")

    # --------------------------------------------------------------------------- weights

    def start_of_features(self, offset, n_told):
        """Where the records of weights begin, and how many there are."""
        size, n = self.chunk("FEAT", offset)
        if size != _CHUNK.size + n * _FEATURE.itemsize or n_told not in (0, n):
            raise self.damaged(
                "FEAT", offset + 4, f"{n} weights, of {_FEATURE.itemsize} bytes, do not make a "
                f"chunk of {size} bytes" if n_told in (0, n) else
                f"there are {n} weights, and {n_told} by the header")
        return offset + _CHUNK.size, n

    def features(self, start, n, n_labels, n_attributes):
        """The records of all weights, checked one by one."""
        records = self.array("FEAT", start, n, _FEATURE)

        def check(right, what, field):
            if not right.all():
                i = int(np.argmin(right))
                raise self.damaged(
                    "FEAT", start + i * _FEATURE.itemsize + _FEATURE.fields[field][1],
                    what.format(i, records[i][field]))

        kinds, sources = records["type"], records["source"]
        check(kinds <= _TRANSITION, "weight {} is of type {}, not 0 of attributes or 1 of "
              "transitions", "type")
        bounds = np.where(kinds == _STATE, np.uint32(n_attributes), np.uint32(n_labels))
        check(sources < bounds, "weight {} is of attribute or label {}, which does not exist",
              "source")
        check(records["target"] < n_labels, "weight {} is of label {}, which does not exist",
              "target")
        check(np.isfinite(records["weight"]), "weight {} must be finite, got {}", "weight")
        return records

    def by_source(self, start, records, which, n_labels):
        """The records `which`, all of one type, by source and then by target."""
        key = records["source"][which].astype(np.int64) * n_labels + records["target"][which]
        steps = np.diff(key)
        if (steps > 0).all():
            return which
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(np.diff(key[order]) == 0)
        if twice.size:
            first, second = which[order[twice[0] : twice[0] + 2]].tolist()
            raise self.damaged(
                "FEAT", start + second * _FEATURE.itemsize,
                f"weight {second} repeats weight {first}")
        return which[order]

    def size_of_references(self, tag, offset, n, n_most, what):
        """Bytes of a chunk that lists the weights of n labels or attributes."""
        size, n_told = self.chunk(tag, offset)
        if not n <= n_told <= n_most:
            raise self.damaged(
                tag, offset + 8, f"{n_told} items do not fit {n} {what}s")
        if _CHUNK.size + 4 * n > size:
            raise self.damaged(
                tag, offset + 4, f"a chunk of {size} bytes cannot have {n} {what}s")
        return size

    def references(self, tag, offset, records, which, n, what):
        """Check that each label, or attribute, refers to exactly its weights."""
        n_words = self.chunk(tag, offset)[0] // 4
        words = self.array(tag, offset, n_words)
        places = words[3 : 3 + n].astype(np.int64) - offset
        bad = (places < _CHUNK.size) | (places % 4 != 0) | (places // 4 >= n_words)
        if bad.any():
            i = int(np.argmax(bad))
            raise self.damaged(
                tag, offset + _CHUNK.size + 4 * i, f"{what} {i} has its weights at byte "
                f"{places[i] + offset}, outside the chunk")
        places //= 4
        counts = words[places].astype(np.int64)
        bad = counts > n_words - 1 - places
        if bad.any() or counts.sum() != which.size:
            i = int(np.argmax(bad)) if bad.any() else 0
            raise self.damaged(
                tag, offset + 4 * int(places[i]) if n else offset,
                f"{what} {i} has {counts[i]} weights, for which the chunk has no room"
                if bad.any() else
                f"{what}s refer to {counts.sum()} weights in all, but have {which.size}")
        ends = np.cumsum(counts)
        at = np.arange(which.size) + np.repeat(places + 1 - (ends - counts), counts)
        found = words[at]
        if np.array_equal(found, which):
            return
        # in another order: each once, and under its own
        wrong = found >= len(records)
        if not wrong.any():
            wrong = records["source"][found] != np.repeat(np.arange(n), counts)
            wrong |= (records["type"][found] == _STATE) != (tag == "AFRF")
        if not wrong.any():
            order = np.argsort(found, kind="stable")
            wrong[order[1:]] = np.diff(found[order]) == 0
        if wrong.any():
            i = int(np.argmax(wrong))
            raise self.damaged(
                tag, offset + 4 * int(at[i]), f"weight {found[i]} is repeated, or is none of "
                f"{what} {np.searchsorted(ends, i, side='right')}")

    # ----------------------------------------------------------------------------- names

    def names(self, what, offset, n):
        """The names in a database by their numbers, from its array of records.

        The hash tables, which find numbers by names, are not read.
        """
        chunk = f"CQDB of {what}"
        self.check_start(chunk, offset, _RECORDS)
        order, head = self.database(chunk, offset)
        size, n_records, array = head
        if not n:
            return []
        if n_records < n or not _RECORDS <= array <= size - 4 * n:
            raise self.damaged(
                chunk, offset + 16, f"the array of {n_records} records at byte {offset + array} "
                f"does not fit {n} names in a chunk of {size} bytes")
        places = self.array(chunk, offset + array, n, order + "u4").astype(np.int64)
        bad = (places < _RECORDS) | (places > size - _BEFORE_NAME)
        if bad.any():
            i = int(np.argmax(bad))
            raise self.damaged(
                chunk, offset + array + 4 * i, f"number {i} has its record at byte "
                f"{offset + places[i]}, outside the records")
        content = self.array(chunk, offset, size, np.uint8)
        if order == "<" and self.is_of_ascii():
            found = names_of_records(content, self.array(chunk, offset + array, n))
            if found is not None:
                return found
        by_place = None
        if not (np.diff(places) > 0).all():
            by_place = np.argsort(places, kind="stable")
            places = places[by_place]
        # records lie anywhere: a number begins at each byte
        anywhere = np.ndarray(size - 3, order + "u4", content, strides=(1,))
        numbers, lengths = (anywhere[places + at].astype(np.int64) for at in (0, 4))
        expected = np.arange(n) if by_place is None else by_place
        ends = places + _BEFORE_NAME + lengths
        limits = np.append(places[1:], size)
        for bad, say in (
                (numbers != expected, lambda i: f"the record of number {expected[i]} has "
                 f"number {numbers[i]}"),
                (lengths < 1, lambda i: f"name {expected[i]} does not end"),
                (ends > limits, lambda i: f"name {expected[i]}, of {lengths[i]} bytes, "
                 f"overlaps byte {offset + limits[i]}"),
        ):
            if bad.any():
                i = int(np.argmax(bad))
                raise self.damaged(chunk, offset + int(places[i]), say(i))
        names = self.decoded(
            chunk, what, offset, content[: ends[-1]], places + _BEFORE_NAME, ends)
        if by_place is not None:
            sorted_names, names = names, [None] * n
            for i, name in zip(by_place.tolist(), sorted_names, strict=True):
                names[i] = name
        if len(set(names)) < n:
            seen = set()
            twice = next(name for name in names if name in seen or seen.add(name))
            raise self.damaged(chunk, offset, f"the name {twice!r:.80} occurs twice")
        return names

    def is_of_ascii(self):
        """Whether bytes below 128 are ASCII in the encoding."""
        try:
            return bytes(range(128)).decode("ascii").encode(self.encoding) == bytes(range(128))
        except (LookupError, UnicodeError):
            return False

    def database(self, chunk, offset):
        """Byte order and size of a database, and length and place of its array of records."""
        for order in "<>":
            head = struct.unpack_from(order + _DATABASE.format, self.content, offset)
            tag, size, _, byte_order, n_records, array = head
            if tag != b"CQDB":
                raise self.damaged(chunk, offset, f"{tag!r} is not the name of the chunk")
            if byte_order != _BYTE_ORDER:
                continue
            if not _RECORDS <= size <= self.length - offset:
                raise self.damaged(
                    chunk, offset + 4, f"it should have {size} bytes, but the file has "
                    f"{self.length - offset} from there on")
            return order, (size, n_records, array)
        raise self.damaged(chunk, offset + 12, "its byte order is unknown")

    def decoded(self, chunk, what, offset, content, starts, ends):
        """Names as strings, from bytes `starts` to `ends` - 1, which end with NUL."""
        # 1 within names, which do not overlap and are at least 8 bytes apart
        steps = np.zeros(content.size + 1, dtype=np.int8)
        steps[starts] = 1
        steps[ends] -= 1
        text = content[np.cumsum(steps[:-1], dtype=np.int8, out=steps[:-1]).view(bool)]
        del steps
        nuls = np.flatnonzero(text == 0)
        lasts = np.cumsum(ends - starts) - 1
        if not np.array_equal(nuls, lasts):
            i = int(np.searchsorted(lasts, nuls[0])) if nuls.size else 0
            if nuls.size >= lasts.size:
                i = int(np.argmax(nuls[: lasts.size] != lasts))
            raise self.damaged(
                chunk, offset + int(starts[i]), "a name does not have its only NUL at its end")
        text = text.tobytes()
        try:
            names = text.decode(self.encoding).split("\0")
        except UnicodeDecodeError as error:
            i = int(np.searchsorted(lasts, error.start))
            raise ModelFileError(
                f"{self.name} has, in {chunk}, at byte {offset + int(starts[i])}, the name "
                f"{bytes(content[starts[i] : ends[i] - 1])!r:.80}, which is not {self.encoding}. "
                f"Pass the encoding of the {what}, such as encoding='latin-1'.") from error
        except (LookupError, UnicodeError) as error:
            raise ValueError(f"encoding={self.encoding!r}: {error}.") from error
        if len(names) != lasts.size + 1:
            raise ValueError(
                f"encoding={self.encoding!r} does not separate the names of {chunk}. Pass an "
                "encoding that contains ASCII.")
        names.pop()
        return names


def load_model(
    path: StrPath | bytes | bytearray | memoryview, *, encoding: str = "utf-8",
) -> SequenceTagger:
    """Load a model file of CRFsuite as a fitted tagger.

    Any training algorithm of CRFsuite and python-crfsuite may have written the file. The input of
    the tagger is the same as for CRFsuite, lists of dicts or of strings for each sequence, and so
    are the predicted labels and marginals. `fastm4n.save_model` saves the tagger.

    Parameters
    ----------
    path : str, path, or bytes-like
        The file, or its bytes.
    encoding : str, default="utf-8"
        Encoding of the names of labels and attributes: UTF-8 for python-crfsuite, the encoding of
        the data for the command line of CRFsuite.

    Returns
    -------
    tagger : SequenceTagger
        A tagger with surrogate "log", and a `vectorizer_` with the attributes of the model.
        `classes_` and columns are in the order of the file. Unknown attributes are ignored.
        Intercepts and weights of ends, which CRFsuite lacks, are zero. Without a record of the
        training there is no `alpha_`, `history_` or `duality_gap_`.

    Raises
    ------
    fastm4n.models.ModelFileError
        If the file is damaged, cut off, of another version, or no model of CRFsuite. The message
        has the file, the chunk and the byte. Nothing in a file is executed. Loading takes about
        ten times the length of the file in memory. Tables of all pairs of labels may take another
        64 MiB, or 16 times the length if that is more.
    OSError
        If the file cannot be read.

    See Also
    --------
    fastm4n.load_model : Loads the files of `fastm4n.save_model`.

    Examples
    --------
    A model with three attributes, from bytes instead of a file:

    >>> import base64, zlib
    >>> from fastm4n.crfsuite import load_model
    >>> packed = (
    ...     "eNrLcQ5ySxFkYHDz93VOYYAAJiBmBmIDIO4B4gMcDAw8QDUmIHWujiExQDEWIGaEqofRDAwP7Bkw"
    ...     "wAd7mBpGNDEmFLEL9s6BLk4mHBBeYbBLEkheh4NhFIyCUTAKRsEoGAUjFIDaAi7g1gKI5ccgAWwX"
    ...     "KAExqM3ghdRmALVb7EbbDKNgFIyCUTAKRsGIBWxAXG5VkpEKbjdAeCn56eAWBAjngVsRakAMGXXw"
    ...     "cQty02CAjG1oCDIwGAgizGJEMtcRqA40NgJqa/gA1YQAcYwgYowD1kphhKoBAO2rG3s=")
    >>> tagger = load_model(zlib.decompress(base64.b64decode(packed)))
    >>> tagger.classes_.tolist(), tagger.vectorizer_.feature_names_
    (['D', 'N'], ['w:the', 'w:dog', 'n'])
    >>> sentence = [{"w": "the"}, {"w": "dog", "n": 2.0}]
    >>> tagger.predict([sentence])[0].tolist()
    ['D', 'N']
    >>> tagger.predict_marginals([sentence])[0].round(3)
    array([[0.806, 0.194],
           [0.131, 0.869]])
    >>> hasattr(tagger, "duality_gap_")
    False
    """
    model = _read(path, encoding)
    labels, names = _strings(model.labels), model.attributes
    R = len(labels)
    tagger = SequenceTagger(
        "log", states="observed", fit_intercept=False, transitions=Transitions(start_end=False))
    vectorizer = SequenceVectorizer()
    vectorizer._learn(names if isinstance(names, Names) else Names(names))
    # weights of attributes, end to end, and behind them rows of intercept, ends and transitions
    stride, n = row_stride(R), model.state_weights.size
    behind = n_pair_rows(n, stride)
    rows = np.zeros((behind + 3 + R, stride))
    rows.reshape(-1)[:n] = model.state_weights
    rows[behind + 3 + model.sources, model.targets] = model.transition_weights
    vars(tagger).update(
        n_features_in_=len(names), classes_=_classes(labels),
        _cost_held=(tagger.cost, R), vectorizer_=vectorizer,
        _of_pairs=WeightsOfPairs(
            rows, (model.starts, model.state_labels), None, None, R, 0))
    return tagger


def _classes(labels):
    """The labels as an array, of objects if strings of equal length would take much memory."""
    if max(map(len, labels)) * len(labels) <= _MOST_CHARACTERS:
        return np.array(labels)
    classes = np.empty(len(labels), dtype=object)
    classes[:] = labels
    return classes
