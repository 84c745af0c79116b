"""Makes a trace.dat of version 6 small: drops the kernel's symbols, the texts of trace_printk and the formats of events
in systems other than those named. Usage: shrink_trace_dat.py IN OUT SYSTEM..."""
import struct
import sys

source, target, *keep = sys.argv[1:]
data = open(source, "rb").read()
at = 0


def take(count):
    global at
    at += count
    return data[at - count : at]


def text():
    return take(data.index(b"\0", at) + 1 - at)


def number(kind):
    return struct.unpack("<" + kind, take(struct.calcsize("<" + kind)))[0]


out = take(10) + text() + take(2)
page = number("I")
out += struct.pack("<I", page)
for _ in range(2):  # header_page, header_event
    out += text()
    size = number("Q")
    out += struct.pack("<Q", size) + take(size)
count = number("I")
for _ in range(count):  # ftrace's own events
    take(number("Q"))
out += struct.pack("<I", 0)
systems = []
for _ in range(number("I")):
    name, formats = text(), []
    for _ in range(number("I")):
        formats.append(take(number("Q")))
    if name[:-1].decode() in keep:
        systems.append((name, formats))
out += struct.pack("<I", len(systems))
for name, formats in systems:
    out += name + struct.pack("<I", len(formats))
    for body in formats:
        out += struct.pack("<Q", len(body)) + body
for _ in range(2):  # symbols, texts of trace_printk
    take(number("I"))
    out += struct.pack("<I", 0)
size = number("Q")
out += struct.pack("<Q", size) + take(size)
cpus = number("I")
out += struct.pack("<I", cpus)
assert take(10) == b"options  \0"
out += b"options  \0"
while True:
    kind = number("H")
    out += struct.pack("<H", kind)
    if kind == 0:
        break
    size = number("I")
    out += struct.pack("<I", size) + take(size)
assert take(10) == b"flyrecord\0"
out += b"flyrecord\0"
places = [(number("Q"), number("Q")) for _ in range(cpus)]
# trace-cmd before 3.0 has the clock behind the table, with its size.
clock = struct.unpack("<Q", data[at : at + 8])[0]
clock = data[at : at + 8 + clock] if 0 < clock <= 4096 and at + 8 + clock <= places[0][0] else b""
offset = -(-(len(out) + 16 * cpus + len(clock)) // page) * page
for _, size in places:
    out += struct.pack("<QQ", offset, size)
    offset += size
out += clock + bytes(-len(out + clock) % page)
for place, size in places:
    out += data[place : place + size]
open(target, "wb").write(out)
