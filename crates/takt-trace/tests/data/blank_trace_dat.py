"""Makes a trace.dat of version 7 small once it is packed: overwrites the kernel's symbols and the texts of trace_printk
with zeros. Usage: blank_trace_dat.py IN OUT"""
import struct
import sys

data = bytearray(open(sys.argv[1], "rb").read())
at = 10 + data[10:].index(b"\0") + 1 + 2 + 4
for _ in range(2):  # name and version of the compression
    at = data.index(b"\0", at) + 1
following = struct.unpack_from("<Q", data, at)[0]
while following:
    at = following + 16
    while True:
        kind, size = struct.unpack_from("<HI", data, at)
        at += 6
        if kind in (19, 20):
            section = struct.unpack_from("<Q", data, at)[0]
            length = struct.unpack_from("<Q", data, section + 8)[0]
            data[section + 16 : section + 16 + length] = bytes(length)
        if kind == 0:
            following = struct.unpack_from("<Q", data, at)[0]
            break
        at += size
open(sys.argv[2], "wb").write(data)
