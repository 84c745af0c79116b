"""Packs files that have much in common: a 64-bit length and the bytes of each, then zstd. Usage: pack.py FILE... | zstd -q --ultra -22 --long=27 >OUT"""
import struct
import sys

for name in sys.argv[1:]:
    data = open(name, "rb").read()
    sys.stdout.buffer.write(struct.pack("<Q", len(data)) + data)
