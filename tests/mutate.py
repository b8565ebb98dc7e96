"""Mutations of files: what disks, transfers, editors and people who mean harm do to them."""

import io
import json
import warnings
import zipfile

import numpy as np


def mutate_bytes(content, rng):
    """A flipped bit, an end cut off, bytes put in, taken out, repeated or set to zero."""
    kind, where = rng.integers(6), int(rng.integers(len(content)))
    width = int(rng.integers(1, 40))
    if kind == 0:
        flipped = bytes([content[where] ^ 1 << int(rng.integers(8))])
        return content[:where] + flipped + content[where + 1 :]
    if kind == 1:
        return content[:where]
    if kind == 2:
        return content[:where] + rng.bytes(width) + content[where:]
    if kind == 3:
        return content[:where] + content[where + width :]
    if kind == 4:
        return content[: where + width] + content[where:]
    return content[:where] + bytes(width) + content[where + width :]


def mutate_lines(content, rng):
    """Lines that are removed, repeated, exchanged, joined or emptied."""
    lines = content.splitlines(keepends=True)
    i, j = (int(k) for k in rng.integers(len(lines), size=2))
    kind = rng.integers(5)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 3:
        lines[i] = lines[i].rstrip(b"\n")
    else:
        lines[i] = b"\n"
    return b"".join(lines)


def members_of(payload):
    """The members of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members, compression=zipfile.ZIP_STORED):
    """The bytes of an archive with these members, which may be a list of pairs."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # about names that occur twice
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, data)
    return buffer.getvalue()


def array_bytes(array):
    """An array in NumPy's format."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


#: Values that take the place of others in JSON.
STRANGE = (
    None, True, -1, 0, 1, 3, 10**9, 10**400, 1e308, -0.5, float("nan"), float("inf"), "", "x", "pl",
    [], [[]], {}, {"a": 1}, "\0", "ä" * 300,
)  # fmt: skip


def _places(part):
    """The containers in JSON, each with each of its keys."""
    for key in part if isinstance(part, dict) else range(len(part)):
        yield part, key
        if isinstance(part[key], dict | list):
            yield from _places(part[key])


def mutate_json(value, rng):
    """JSON in which one value is another, or one key is missing, renamed or takes another's value."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    part, key = places[int(rng.integers(len(places)))]
    kind = rng.integers(5)
    if kind == 0:
        part[key] = STRANGE[int(rng.integers(len(STRANGE)))]
    elif kind == 1:
        del part[key]
    elif kind == 2 and isinstance(part, dict):
        part[f"{key}_"] = part.pop(key)
    elif kind == 3:
        other, name = places[int(rng.integers(len(places)))]
        part[key] = json.loads(json.dumps(other[name]))
    elif isinstance(part[key], str) and part[key]:
        text = mutate_bytes(part[key].encode(), rng)
        part[key] = text.decode(errors="replace")
    else:
        part[key] = STRANGE[int(rng.integers(len(STRANGE)))]
    return value


def mutate_array(data, rng):
    """An array with other values, another shape or type, or a header that promises more than it has."""
    array = np.load(io.BytesIO(data), allow_pickle=False)
    kind = rng.integers(8)
    if kind == 0 and array.dtype.kind == "f" and array.size:
        array = array.copy()
        odd = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, -5.0, 0.0])
        array.flat[int(rng.integers(array.size))] = odd
    elif kind == 1:
        array = array[:-1] if array.ndim else np.stack([array, array])
    elif kind == 2:
        array = np.concatenate([array, array]) if array.ndim else array[None]
    elif kind == 3 and array.dtype.kind in "biuf":
        array = array.astype(rng.choice(["f4", "i8", "U5", "S3", "c16", "?"]), casting="unsafe")
    elif kind == 4:
        array = array.T if array.ndim > 1 else array[:, None] if array.ndim else array
    elif kind == 5:
        array = np.zeros((0, *array.shape[1:]), array.dtype)
    else:
        header = array_bytes(array)
        start, end = header.index(b"(", 10), header.index(b")", 10)
        huge = b"(%d,)" % int(10 ** rng.integers(3, 18))
        return header[:start] + huge.ljust(end + 1 - start)[: end + 1 - start] + header[end + 1 :]
    return array_bytes(array)


def mutate_archive(payload, rng):
    """An archive with members that are missing, repeated, exchanged, compressed or changed."""
    members = members_of(payload)
    names = sorted(members)
    one, other = rng.choice(names, size=2)
    kind = rng.integers(8)
    if kind == 0:
        del members[one]
    elif kind == 1:
        return zipped([*members.items(), (f"{one}", members[other])])
    elif kind == 2:
        members[one], members[other] = members[other], members[one]
    elif kind == 3:
        return zipped(members, zipfile.ZIP_DEFLATED)
    elif kind == 4:
        members["more"] = bytes(100)
    elif kind == 5 and one.endswith(".npy"):
        members[one] = mutate_array(members[one], rng)
    else:
        schema = mutate_json(json.loads(members["schema.json"]), rng)
        members["schema.json"] = json.dumps(schema).encode()
    return zipped(members)
