#!/usr/bin/env python3
"""Writes vectors_computed.json: packets for what vectors.json, captured, does not have.

Shares no code with the crate: struct and zlib.crc32 alone. Run it in this folder.
"""
import json
import struct
import zlib

V4 = (bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
V6 = (
    bytes.fromhex("20010db8000000000000000000000001"),
    bytes.fromhex("20010db8000000000000000000000002"),
)
SRC_PORT = 0xD2A5
UC = {
    0x20: ("UC_SEND_FIRST", 256, False),
    0x21: ("UC_SEND_MIDDLE", 256, False),
    0x22: ("UC_SEND_LAST", 17, False),
    0x23: ("UC_SEND_LAST_WITH_IMM", 18, True),
    0x24: ("UC_SEND_ONLY", 19, False),
    0x25: ("UC_SEND_ONLY_WITH_IMM", 0, True),
    0x26: ("UC_RDMA_WRITE_FIRST", 512, False),
    0x27: ("UC_RDMA_WRITE_MIDDLE", 512, False),
    0x28: ("UC_RDMA_WRITE_LAST", 1, False),
    0x29: ("UC_RDMA_WRITE_LAST_WITH_IMM", 2, True),
    0x2A: ("UC_RDMA_WRITE_ONLY", 3, False),
    0x2B: ("UC_RDMA_WRITE_ONLY_WITH_IMM", 4, True),
}
RETH = {0x26, 0x2A, 0x2B}


def bth(opcode, pad=0, tver=0, pkey=0xFFFF, qpn=0xABCDEF, psn=0xFEDCBA, ack=0, se=0):
    flags = se << 7 | 1 << 6 | pad << 4 | tver
    head = struct.pack(">BBHII", opcode, flags, pkey, qpn, psn | ack << 31)
    fields = dict(opcode=opcode, se=se, migreq=1, pad=pad, tver=tver, pkey=pkey)
    fields.update(fecn=0, becn=0, dest_qpn=qpn, ack_req=ack, psn=psn)
    return head, fields


def ip_udp(version, ip_id, udp_payload):
    udp = 8 + len(udp_payload)
    if version == 4:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + udp, ip_id, 0x4000, 64, 17, 0)
        ip += V4[0] + V4[1]
        words = struct.unpack(">10H", ip)
        total = sum(words)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:]
    else:
        ip = struct.pack(">IHBB", 6 << 28, udp, 17, 64) + V6[0] + V6[1]
    return ip + struct.pack(">HHHH", SRC_PORT, 4791, udp, 0) + udp_payload


def icrc(packet):
    """CRC of a packet without its ICRC, whose lengths already count it."""
    b = bytearray(packet)
    if b[0] >> 4 == 4:
        masked, udp = [1, 8, 10, 11], 20
    else:
        b[0] |= 0x0F
        masked, udp = [1, 2, 3, 7], 40
    for at in masked + [udp + 6, udp + 7]:
        b[at] = 0xFF
    if len(b) > udp + 12:
        b[udp + 12] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(b))


VECTORS = []


def add(name, version, transport, fields, note="", damage=0, valid=True):
    ip_id = len(VECTORS) * 2459 & 0xFFFF if version == 4 else 0
    packet = ip_udp(version, ip_id, transport + bytes(4))[:-4]
    crc = icrc(packet)
    wire = struct.pack("<I", crc ^ damage)
    fields = dict(fields)
    fields["ip"] = dict(version=version, id=ip_id)
    VECTORS.append(
        dict(
            id=len(VECTORS),
            name=name,
            source="computed",
            valid=valid,
            note=note,
            hex=(packet + wire).hex(),
            icrc="%08x" % (crc ^ damage),
            fields=fields,
        )
    )


def message(name, version, opcode, headers, header_fields, payload_bytes, **flags):
    pad = -payload_bytes % 4
    head, fields = bth(opcode, pad=pad, **flags)
    payload = bytes((7 * at + 3) & 0xFF for at in range(payload_bytes))
    all_fields = dict(bth=fields, payload_len=payload_bytes, **header_fields)
    net = 28 if version == 4 else 48
    all_fields["payload_offset"] = net + 12 + len(headers)
    add(name, version, head + headers + payload + bytes(pad), all_fields)


def uc(version):
    for opcode, (name, payload_bytes, imm) in UC.items():
        headers, fields = b"", {}
        if opcode in RETH:
            va, rkey, dma_len = 0x0123456789ABCDEF, 0xDEADBEEF, 0x1234567
            headers += struct.pack(">QII", va, rkey, dma_len)
            fields["reth"] = dict(va=hex(va), rkey=rkey, dma_len=dma_len)
        if imm:
            headers += struct.pack(">I", 0xCAFED00D)
            fields["immdt"] = dict(imm="0xcafed00d")
        message(name, version, opcode, headers, fields, payload_bytes, se=int(imm))


def ud(version):
    deth = struct.pack(">II", 0x80010000, 0x123456)
    fields = dict(deth=dict(qkey=0x80010000, src_qpn=0x123456))
    message("UD_SEND_ONLY", version, 0x64, deth, fields, 256)
    message("UD_SEND_ONLY", version, 0x64, deth, fields, 0)
    imm = deth + struct.pack(">I", 0x01020304)
    fields = dict(fields, immdt=dict(imm="0x1020304"))
    message("UD_SEND_ONLY_WITH_IMM", version, 0x65, imm, fields, 5)


def rest(version):
    aeth = struct.pack(">I", 31 << 24 | 0xFFFFFE)
    fields = dict(aeth=dict(syndrome=31, msn=0xFFFFFE))
    message("SACK", version, 0xC0, aeth, fields, 12)
    for syndrome in [0x20, 0x3F, 0x65, 0x7F, 0x40, 0x9F]:
        aeth = struct.pack(">I", syndrome << 24 | 1)
        fields = dict(aeth=dict(syndrome=syndrome, msn=1))
        message("ACKNOWLEDGE/%#04x" % syndrome, version, 0x11, aeth, fields, 0)
    rkey = struct.pack(">I", 0xFFFFFFFF)
    fields = dict(ieth=dict(rkey=0xFFFFFFFF))
    message("SEND_ONLY_WITH_INVALIDATE", version, 0x17, rkey, fields, 4096, ack=1)
    for psn in [0, 0xFFFFFF]:
        message("SEND_ONLY/%#x" % psn, version, 0x04, b"", {}, 1, psn=psn, qpn=psn)


def broken(version):
    def bad(reason, transport, damage=0):
        add("BROKEN", version, transport, {}, note=reason, damage=damage, valid=False)

    whole = bth(0x04)[0]
    bad("too_short", b"")
    bad("too_short", whole[:8])
    bad("too_short", bth(0x0A)[0] + bytes(12))
    bad("too_short", bth(0x81)[0] + bytes(12))
    bad("misaligned", whole + bytes(3))
    bad("misaligned", bth(0x04, pad=1)[0])
    bad("unknown_opcode", bth(0x15)[0])
    bad("unknown_opcode", bth(0x1C)[0] + bytes(20))
    bad("unknown_opcode", bth(0x40)[0])
    bad("unknown_opcode", bth(0xA4)[0] + bytes(4))
    bad("unknown_opcode", bth(0xFF)[0])
    for tver in [1, 15]:
        bad("transport_version", bth(0x04, tver=tver)[0])
    bad("unexpected_payload", bth(0x0C)[0] + bytes(20))
    bad("unexpected_payload", bth(0x11)[0] + bytes(8))
    bad("unexpected_payload", bth(0x13)[0] + bytes(32))
    for bit in range(0, 32, 5):
        bad("icrc", whole + bytes(16), damage=1 << bit)
    for pkey in [0, 0x7FFE, 0x8000, 0xFFFE]:
        bad("partition_key", bth(0x04, pkey=pkey)[0])


def challenges(version):
    aeth = struct.pack(">I", 0x62 << 24)
    fields = dict(aeth=dict(syndrome=0x62, msn=0))
    message("CHALLENGE", version, 0xC1, aeth, fields, 8)
    message("CHALLENGE_ANSWER", version, 0xC2, aeth, fields, 8)


for version in [4, 6]:
    for part in [uc, ud, rest, broken]:
        part(version)
for version in [4, 6]:
    challenges(version)

ABOUT = (
    "Packets that vectors.json has not: UC, UD, our extensions, edges, broken ones. "
    "Written by vectors_computed.py. hex = from the IP header on. note of a broken one = why."
)
with open("vectors_computed.json", "w") as out:
    out.write('{"about": %s,\n"count": %d,\n"vectors": [\n' % (json.dumps(ABOUT), len(VECTORS)))
    out.write(",\n".join(json.dumps(vector) for vector in VECTORS))
    out.write("\n]}\n")
