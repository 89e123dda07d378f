"""Model files of CRFsuite, written as it writes them, and mutations of them."""

import random
import struct

# numbers that are put in the place of others
_ODD = (
    0, 1, 2, 3, 12, 20, 24, 48, 255, 256, 2072, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31,
    2**32 - 48, 2**32 - 8, 2**32 - 1, 0x3FF00000, 0x7FF00000, 0xFFF00000)


def model_file(labels, attributes, state, transitions, *, order="<", encoding="utf-8",
               shuffled=None):
    """The bytes of a file, and where in it things are.

    Hash tables are left empty: no reader of all names needs them.

    Parameters
    ----------
    labels, attributes : list of str or bytes
    state : list of (attribute, label, weight), as numbers
    transitions : list of (label, label, weight)
    order : {"<", ">"}
        Byte order of the databases.
    shuffled : random.Random, default=None
        The order of records, of references and of weights of one type is drawn by it.
    """
    features = [(1, *each) for each in transitions] + [(0, *each) for each in state]
    if shuffled is not None:
        shuffled.shuffle(features)
    places = {"FEAT": 48}
    content = struct.pack("<4s2I", b"FEAT", 12 + 20 * len(features), len(features))
    content += b"".join(struct.pack("<3Id", *feature) for feature in features)
    for what, names in (("labels", labels), ("attributes", attributes)):
        places[what] = 48 + len(content)
        content += _database(names, order, encoding, shuffled)
    for tag, kind, n, extra in (
            (b"LFRF", 1, len(labels), 2), (b"AFRF", 0, len(attributes), 0)):
        content += b"\0" * (-len(content) % 4)
        places[tag.decode()] = start = 48 + len(content)
        at, offsets, lists = start + 12 + 4 * (n + extra), [], bytearray()
        of_sources = [[] for _ in range(n)]
        for k, feature in enumerate(features):
            if feature[0] == kind:
                of_sources[feature[1]].append(k)
        for own in of_sources:
            if shuffled is not None:
                shuffled.shuffle(own)
            offsets.append(at + len(lists))
            lists += struct.pack(f"<{1 + len(own)}I", len(own), *own)
        offsets += [0] * extra
        content += struct.pack("<4s2I", tag, 12 + 4 * len(offsets) + len(lists), len(offsets))
        content += struct.pack(f"<{len(offsets)}I", *offsets) + lists
    header = struct.pack(
        "<4sI4s9I", b"lCRF", 48 + len(content), b"FOMC", 100, 0, len(labels), len(attributes),
        *places.values())
    return header + content, places


def _database(names, order, encoding, shuffled):
    numbers = list(range(len(names)))
    if shuffled is not None:
        shuffled.shuffle(numbers)
    records, places = bytearray(), [0] * len(names)
    for number in numbers:
        name = names[number]
        name = (name if isinstance(name, bytes) else name.encode(encoding)) + b"\0"
        places[number] = 24 + 2048 + len(records)
        records += struct.pack(order + "2I", number, len(name)) + name
    end = 24 + 2048 + len(records)
    return struct.pack(
        order + "4s5I", b"CQDB", end + 4 * len(names), 0, 0x62445371, len(names),
        end if names else 0) + b"\0" * 2048 + records + struct.pack(
        f"{order}{len(names)}I", *places)


def patched(content, offset, value, format="<I"):
    """The file with another number in it."""
    content = bytearray(content)
    struct.pack_into(format, content, offset, value)
    return bytes(content)


def mutated(content, seed):
    """The file with one to five changes, mostly where a reader looks, and often the right size."""
    rng = random.Random(seed)
    length = len(content)
    starts = [s for s in struct.unpack_from("<12I", content)[7:]]
    looked_at = [(0, 60), (starts[0], starts[1])]
    for start, end in zip(starts[1:3], starts[2:4]):
        looked_at += [(start, start + 24), (start + 2072, start + 2300), (end - 40, end)]
    looked_at.append((starts[3], length))
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        low, high = rng.choice(looked_at) if rng.random() < 0.8 else (0, length)
        at = max(0, min(rng.randrange(low, max(low + 1, min(high, length))), len(content) - 1))
        word = at - at % 4
        kind = rng.randrange(8)
        if kind == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            content[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in content[at : at + 1])
        elif kind == 2:
            content[word : word + 4] = struct.pack("<I", rng.choice(_ODD))
        elif kind == 3 and word + 4 <= len(content):
            number, = struct.unpack_from("<I", content, word)
            step = rng.choice((-8, -4, -1, 1, 4, 8))
            content[word : word + 4] = struct.pack("<I", (number + step) % 2**32)
        elif kind == 4:
            del content[at : at + rng.choice((1, 4, 8, 100))]
        elif kind == 5:
            content[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
        elif kind == 6:
            other, n = rng.randrange(len(content) + 1), rng.choice((4, 8, 20, 64))
            content[at : at + n] = content[other : other + n]
        else:
            content[word : word + 4] = struct.pack("<I", rng.randrange(length))
    if rng.random() < 0.7 and len(content) >= 8:
        content[4:8] = struct.pack("<I", len(content))
    return bytes(content)
