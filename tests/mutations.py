"""Ways to damage files: of bytes, of JSON, and of what is in archives, with checksums made anew.

All take a `random.Random`, whose draws cost less than NumPy's, and are functions of it alone.
"""

import contextlib
import copy
import hashlib
import io
import json
import re
import struct
import zipfile

import numpy as np

# what loops, sizes and signs are most often wrong for
INTEGERS = (
    0, 1, -1, 2, 3, 7, 16, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**47, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -128, -(2**31), -(2**63))
NUMBERS = (
    b"0", b"-0", b"1", b"-1", b"1e308", b"-1e308", b"1e309", b"1e-320", b"nan", b"-inf", b"inf",
    b"0x10", b"1_0", b"9" * 30, b"9" * 400, b"9" * 5000, b"2147483648", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"1.5", b".", b"", "٣".encode(), b"1e5000",
    b"1e9", b"1e18", b"99999999", b"100000000", b"1000000000", b"1000000000000")
# what headers may claim that there are of something
CLAIMS = (
    0, -1, 3, 1000, 10**6, 2**24, 10**8, 10**9, 2**31 - 1, 2**31, 2**32, 10**12, 2**47, 2**62, 2**63,
    2**64, 10**400, 2.0, 1e18, float("inf"), float("nan"), True, None, "3")
VALUES = (
    None, True, False, -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**48, 10**15, 10**400, 1.5, -0.0, 1e308, "",
    "x", "<f8", "|O", "<i4", "json", "\ud800", [], {}, [0], [1], [-1], [10**15], [0, 10**17], [[]],
    {"x": 1}, {"array": "x"}, {"list": 3}, {"scalar": ["float32", 1.0]}, "auto", "log", "max_min",
    "csr_matrix", 1e-300, [1, 2], [2, 3], 2.0, 10**9, 2**40, float("inf"), float("nan"), [float("inf")])
DTYPES = ("|b1", "|i1", "|u1", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_PREAMBLE = struct.Struct("<8sIQ32s")


# --------------------------------------------------------------------------------- bytes


def damaged(rng, content, other=b"", words=()):
    """Content with one to four changes of bytes; other is what pieces are taken from as well."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        _CHANGES[rng.randrange(len(_CHANGES))](rng, content, other, words)
    return bytes(content)


def _place(rng, content):
    return rng.randrange(len(content) + 1)


def _length(rng, content):
    """Mostly short."""
    return min(len(content), int(2 ** rng.uniform(0, 10)))


def _flip(rng, content, other, words):
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set(rng, content, other, words):
    if content:
        content[rng.randrange(len(content))] = rng.choice((0, 9, 10, 13, 32, 58, 127, 128, 255))


def _integer(rng, content, other, words):
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(INTEGERS) % (1 << 8 * size)
    at = _place(rng, content)
    content[at : at + size] = value.to_bytes(size, rng.choice(("little", "big")))


def _number(rng, content, other, words):
    found = list(_NUMBER.finditer(content))
    if found:
        match = rng.choice(found)
        content[match.start() : match.end()] = rng.choice(NUMBERS)


def _cut(rng, content, other, words):
    del content[_place(rng, content):]


def _remove(rng, content, other, words):
    at = _place(rng, content)
    del content[at : at + _length(rng, content)]


def _repeat(rng, content, other, words):
    at, n = _place(rng, content), _length(rng, content)
    content[at:at] = content[at : at + n] * rng.choice((1, 1, 2, 10))


def _move(rng, content, other, words):
    start, at = _place(rng, content), _place(rng, content)
    block = content[start : start + _length(rng, content)]
    content[at : at + rng.choice((0, len(block)))] = block


def _insert(rng, content, other, words):
    at = _place(rng, content)
    word = rng.choice(words) if words and rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 9))
    content[at : at + rng.choice((0, len(word)))] = word


def _splice(rng, content, other, words):
    content[_place(rng, content):] = other[_place(rng, other):]


_CHANGES = (
    _flip, _flip, _set, _integer, _integer, _number, _cut, _remove, _repeat, _move, _insert, _insert,
    _splice)


# ---------------------------------------------------------------------------------- JSON


def damage_json(rng, document):
    """Change, move or leave out one or two of the values of a document of JSON, in place."""
    for _ in range(rng.choice((1, 1, 2))):
        node, key = _place_in(rng, document)
        kind = rng.randrange(5)
        if kind == 0:
            del node[key]
        elif kind == 1 and type(node[key]) is int:
            node[key] += rng.choice((-1, 1, 2**31, -node[key]))
        elif kind == 2:
            other, from_key = _place_in(rng, document)
            node[key] = copy.deepcopy(other[from_key])
        elif kind == 3 and isinstance(node, dict):
            node[str(_place_in(rng, document)[1])] = node.pop(key)
        else:
            node[key] = copy.deepcopy(rng.choice(VALUES))


def claim(rng, document):
    """Have a count of a document of JSON claim something else, in all places or in some."""
    places = {}
    nodes = [document]
    for node in nodes:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if type(value) is int and key not in ("offset", "size", "crc32"):
                places.setdefault(value, []).append((node, key))
            elif isinstance(value, (dict, list)):
                nodes.append(value)
    if places:
        value, share = rng.choice(CLAIMS), rng.choice((1.0, 1.0, 0.5))
        for node, key in rng.choice(list(places.values())):
            if rng.random() < share:
                node[key] = value


def dumped(rng, document):
    """A document of JSON as bytes, now and then with lists in lists, or one list many times."""
    if rng.random() > 0.05:
        return json.dumps(document).encode()
    node, key = _place_in(rng, document)
    kept, node[key] = node[key], _MARK
    inner = json.dumps(kept).encode()
    depth = rng.choice((10, 300, 900, 970, 990, 10_000, 100_000))
    opens, closes = rng.choice((
        (b"[", b"]"), (b'{"list": [', b"]}"), (b'{"dict": [["x", ', b"]]}"), (b'{"x": ', b"}"),
        (b'{"penalty": ["L2", ', b"]}")))
    new = opens * depth + inner + closes * depth
    if rng.random() < 0.3:
        new = b"[" + b", ".join([inner] * rng.choice((2, 100, 3000))) + b"]"
    return json.dumps(document).encode().replace(json.dumps(_MARK).encode(), new)


_MARK = "where lists in lists go"


def _place_in(rng, node):
    """A container of a document, which is a dict and not empty, and a key of it: deep ones mostly.

    What a walk from the top comes to, which takes much less time than a list of all places.
    """
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        deep = [key for key in keys if node[key] and isinstance(node[key], (dict, list))]
        key = rng.choice(deep if deep and rng.random() < 0.9 else keys)
        if key not in deep or rng.random() < 0.1:
            return node, key
        node = node[key]


# --------------------------------------------------------------------------- model files


def damaged_arrays_file(rng, content, other):
    """A file of `fastm4n.models._files`, changed, its checksums mostly right."""
    if rng.random() < 0.1:
        return damaged(rng, content, other)
    document, values = _opened(content)
    kind = rng.random()
    if kind < 0.6:
        (damage_json if kind < 0.4 else claim)(rng, document)
        return _sealed(dumped(rng, document), values)
    parts = [
        part for entry in document["arrays"] for part in entry.values() if isinstance(part, dict)]
    for _ in range(rng.choice((1, 1, 2)) if parts else 0):
        part = rng.choice(parts)
        start, size = part["offset"], part["size"]
        changed = bytearray(values[start : start + size])
        _change_items(rng, changed, part["dtype"])
        values = values[:start] + bytes(changed) + values[start + size :]
        part["sha256"] = hashlib.sha256(changed).hexdigest()
        same = [dtype for dtype in DTYPES if dtype[2:] == part["dtype"][2:]]
        if same and rng.random() < 0.15:
            part["dtype"] = rng.choice(same)
    return _sealed(json.dumps(document).encode(), values)


def _change_items(rng, content, dtype):
    """Change some of the numbers of an array, in its own width."""
    if not content:
        return
    digits = dtype[2:]
    width = int(digits) if digits.isdigit() else 1
    width *= 4 if dtype[1:2] == "U" else 1
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(max(1, len(content) // width)) * width
        if dtype[1:2] == "f" and rng.random() < 0.7:
            value = struct.pack({2: "<e", 4: "<f", 8: "<d"}.get(width, "<d"), rng.choice((
                0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), -float("inf"), float("nan"), 6e4, 1e-7)))
        elif rng.random() < 0.5:
            value = (rng.choice(INTEGERS) % (1 << 8 * width)).to_bytes(width, "little")
        elif rng.random() < 0.5:
            value = bytes([content[at] ^ 1 << rng.randrange(8)])
        else:
            start = rng.randrange(max(1, len(content) // width)) * width
            value = content[start : start + width]
        content[at : at + len(value)] = value[: len(content) - at]


def _opened(content):
    length = _PREAMBLE.unpack(content[: _PREAMBLE.size])[2]
    end = _PREAMBLE.size + length
    return json.loads(content[_PREAMBLE.size : end]), content[end:]


def _sealed(header, values):
    digest = hashlib.sha256(header).digest()
    return _PREAMBLE.pack(b"\x93FASTM4N", 1, len(header), digest) + header + values


# ---------------------------------------------------------------------- npy, npz, folders


def damaged_npy(rng, content):
    """An npy file whose header, or whose numbers, are changed."""
    begin = 10 + int.from_bytes(content[8:10], "little")
    if rng.random() < 0.3:
        header = damaged(rng, content[10:begin], words=(
            b"'|O'", b"'<U9'", b"'<i8'", b"'<f4'", b"(0,)", b"(-1,)", b"(9,)", b"True",
            b"9223372036854775807", b"(2147483648, 2147483648)", b"(2, 3)"))
        return content[:8] + len(header).to_bytes(2, "little") + header + content[begin:]
    dtype = re.search(rb"'descr': '([^']*)'", content[:begin])
    if rng.random() < 0.3:
        return _retyped(rng, content)
    changed = bytearray(content[begin:])
    _change_items(rng, changed, dtype[1].decode() if dtype else "|u1")
    return content[:begin] + bytes(changed)


def _retyped(rng, content):
    """The same numbers in another dtype, some of them none of the old one."""
    try:
        array = np.load(io.BytesIO(content))
    except Exception:  # it was damaged before
        return content
    with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError, OverflowError):
        array = array.astype(rng.choice(("f8", "f4", "i8", "u8", "u1", "b1", "U3", "S3", ">i8")))
    if array.size:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice((
                *CLAIMS, *(float("inf"), float("nan")) * (len(CLAIMS) // 2)))
    if rng.random() < 0.3:
        array = array.reshape(rng.choice(((-1,), (-1, 1), (1, -1), (1, *array.shape))))
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def damaged_npz(rng, content, other):
    """An npz file with a member changed, renamed, left out or taken from another file."""
    if rng.random() < 0.15:
        return damaged(rng, content, other)
    members = _members(content)
    name = rng.choice(list(members))
    kind = rng.random()
    if kind < 0.05:
        del members[name]
    elif kind < 0.1:
        members[rng.choice(list(members))] = members.pop(name)
    elif kind < 0.25:
        members[name] = rng.choice(list(_members(other).values()))
    else:
        members[name] = damaged_npy(rng, members[name])
    file = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, method)
    return file.getvalue() if rng.random() < 0.9 else _with_sizes(rng, file.getvalue())


def _with_sizes(rng, content):
    """An archive that says of a member, here and in its directory, that it has another size."""
    content = bytearray(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = archive.infolist()
    part, at = rng.choice(parts), archive.start_dir
    for other in parts:
        if other is part:
            break
        at += 46 + len(other.orig_filename) + len(other.extra)
    size = rng.choice((0, 1, 1 << 20, 1 << 28, (1 << 32) - 2, part.compress_size))
    which = rng.choice((0, 4))  # compressed, or not
    for place in (part.header_offset + 18 + which, at + 20 + which):
        content[place : place + 4] = size.to_bytes(4, "little")
    return bytes(content)


def _members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def damaged_folder(rng, files):
    """Contents by name of a folder, with one or two of its files changed, lost or swapped."""
    files = dict(files)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(files))
        other = rng.choice(list(files))
        kind = rng.random()
        if kind < 0.1:
            files[name] = (
                files[other] if kind < 0.05 else damaged(rng, files[name], files[other]))
            break  # what it is now need not be JSON or npy
        if name.endswith(".json") or kind < 0.35:
            try:
                document = json.loads(files["meta.json"])
            except (ValueError, RecursionError):  # it was damaged before
                break
            rng.choice((damage_json, claim))(rng, document)
            files["meta.json"] = dumped(rng, document)
        else:
            files[name] = damaged_npy(rng, files[name])
    return files
