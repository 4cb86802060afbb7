"""The kernel's end of a connection, by pyverbs; it executes the same orders as `catchment-lab end`.

An order is a line of JSON on stdin and an answer is one on stdout, as `src/end/mod.rs` has them. This
end sets what our verbs leave to the provider: first PSNs, path MTU, rights, the unreliable service,
memory windows. It knows no test case: what a case does is decided on the host.
"""

import json
import socket
import sys
import time
import traceback
import zlib

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE = 'rxe0'
GIDS = 16
ENTRIES = 1024
QUEUED = 256
# READs and atomics in flight, either way.
READS = 16

SERVICES = {'rc': e.IBV_QPT_RC, 'uc': e.IBV_QPT_UC}
OPCODES = {
    'send': e.IBV_WR_SEND,
    'send_imm': e.IBV_WR_SEND_WITH_IMM,
    'send_invalidate': e.IBV_WR_SEND_WITH_INV,
    'write': e.IBV_WR_RDMA_WRITE,
    'write_imm': e.IBV_WR_RDMA_WRITE_WITH_IMM,
    'read': e.IBV_WR_RDMA_READ,
    'compare_swap': e.IBV_WR_ATOMIC_CMP_AND_SWP,
    'fetch_add': e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
ATOMIC = ('compare_swap', 'fetch_add')
STATES = ('Reset', 'Init', 'Rtr', 'Rts', 'Sqd', 'Sqe', 'Err')
STATUSES = {
    0: 'Success', 1: 'LocalLength', 4: 'LocalProtection', 5: 'Flushed', 9: 'RemoteInvalidRequest',
    10: 'RemoteAccess', 11: 'RemoteOperation', 12: 'TransportRetryExceeded', 13: 'RnrRetryExceeded',
}
COMPLETED = {
    0: 'Send', 1: 'Write', 2: 'Read', 3: 'CompareSwap', 4: 'FetchAdd', 128: 'Recv', 129: 'RecvWriteImm',
}
WITH_IMM = 2
# Verbs have 8 for an invalidated key; Linux 6.1 says 4.
WITH_KEY = 4 | 8


class End:
    """A queue pair with its memory, and what can be done with them."""

    def __init__(self):
        self.context = Context(name=DEVICE)
        self.made = []

    def keep(self, made):
        self.made.append(made)
        return made

    def leave(self):
        """Destroys everything, the newest first."""
        while self.made:
            self.made.pop().close()

    def make(self, kind):
        self.leave()
        _, self.options = parts(kind)
        wanted = self.options
        self.pd = self.keep(PD(self.context))
        self.cqs = [self.keep(CQ(self.context, ENTRIES)) for _ in ('sends', 'receives')]
        self.mr = self.keep(MR(self.pd, wanted['memory_bytes'], wanted['memory_access']))
        cap = QPCap(max_send_wr=QUEUED, max_recv_wr=QUEUED, max_send_sge=2, max_recv_sge=2)
        init = QPInitAttr(qp_type=SERVICES[wanted['service']], scq=self.cqs[0], rcq=self.cqs[1], cap=cap,
                          sq_sig_all=0)
        self.qp = self.keep(QP(self.pd, init))
        return {'endpoint': '', 'qpn': self.qp.qp_num, 'addr': self.mr.buf, 'rkey': self.mr.rkey}

    def to_rts(self, local, remote, qpn):
        wanted = self.options
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = wanted['access']
        attr.path_mtu = wanted['path_mtu'].bit_length() - 8
        attr.dest_qp_num = qpn
        attr.rq_psn = wanted['psn']
        attr.sq_psn = wanted['guest_psn']
        attr.max_dest_rd_atomic = READS
        attr.max_rd_atomic = READS
        attr.min_rnr_timer = wanted['min_rnr_timer']
        attr.timeout = wanted['timeout']
        attr.retry_cnt = wanted['retry_cnt']
        attr.rnr_retry = wanted['rnr_retry']
        route = GlobalRoute(dgid=GID(long_form(remote)), sgid_index=self.gid_index(local), hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)

    def gid_index(self, address):
        wanted = long_form(address)
        for index in range(GIDS):
            if str(self.context.query_gid(1, index)) == wanted:
                return index
        raise LookupError(f'{DEVICE} has no GID {wanted}')

    def bind_window(self, bytes):
        """Binds a memory window of type 2 to the first bytes; returns its key."""
        window = self.keep(MW(self.pd, mw_type=e.IBV_MW_TYPE_2))
        # pyverbs binds with the next key of the window, and does not say so.
        rkey = (window.rkey & 0xffffff00) | ((window.rkey + 1) & 0xff)
        bind = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        bind.set_bind_wr(window, MWBindInfo(self.mr, self.mr.buf, bytes, e.IBV_ACCESS_REMOTE_WRITE))
        self.qp.post_send(bind)
        done = self.wait(False, 1, 1000)
        if [entry['status'] for entry in done] != ['Success']:
            raise RuntimeError(f'the bind ended with {done}')
        return rkey

    def state(self):
        attr, _ = self.qp.query(e.IBV_QP_STATE)
        return STATES[attr.qp_state]

    def receive(self, wr_id, offset, bytes):
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[self.sge(offset, bytes)]))

    def send(self, requests):
        for request in requests:
            self.qp.post_send(self.request(**request))

    def request(self, wr_id, work, offset, bytes, signaled):
        name, operands = parts(work)
        operands = operands if isinstance(operands, list) else [operands]
        # Immediates and keys to invalidate share a member, and pyverbs hands it on as it is.
        shared = 0
        if name == 'send_invalidate':
            shared = operands[0]
        elif name.endswith('_imm'):
            shared = socket.htonl(operands[-1])
        wr = SendWR(wr_id=wr_id, opcode=OPCODES[name], num_sge=1, imm_data=shared,
                    send_flags=e.IBV_SEND_SIGNALED if signaled else 0, sg=[self.sge(offset, bytes)])
        if name in ATOMIC:
            place, first, second = (*operands, 0)[:3]
            wr.set_wr_atomic(place['rkey'], place['addr'], first, second)
        elif not name.startswith('send'):
            wr.set_wr_rdma(operands[0]['rkey'], operands[0]['addr'])
        return wr

    def sge(self, offset, bytes):
        return SGE(self.mr.buf + offset, bytes, self.mr.lkey)

    def wait(self, receives, count, limit_ms):
        end = time.monotonic() + limit_ms / 1000
        found = []
        while len(found) < count:
            number, entries = self.cqs[receives].poll(count - len(found))
            found += [completion(entry) for entry in (entries or [])[:number]]
            if time.monotonic() > end:
                break
            if number == 0:
                time.sleep(0.0002)
        return found

    def put(self, offset, hex):
        data = bytes.fromhex(hex)
        self.mr.write(data, len(data), offset)

    def take(self, offset, bytes):
        return self.mr.read(bytes, offset).hex()

    def crc(self, offset, bytes):
        return zlib.crc32(self.mr.read(bytes, offset))


def completion(entry):
    received = entry.opcode >= 128
    immediate = received and entry.wc_flags & WITH_IMM
    key = received and not immediate and entry.wc_flags & WITH_KEY
    return {
        'wr_id': entry.wr_id,
        'status': STATUSES.get(entry.status, f'Other({entry.status})'),
        'reason': '',
        'opcode': COMPLETED.get(entry.opcode, f'Other({entry.opcode})'),
        'bytes': entry.byte_len,
        'imm': socket.ntohl(entry.imm_data) if immediate else None,
        'invalidated': entry.imm_data if key else None,
        'source_qpn': None,
    }


def long_form(address):
    """An IPv6 address the way pyverbs prints GIDs: eight groups of four digits."""
    digits = socket.inet_pton(socket.AF_INET6, address).hex()
    return ':'.join(digits[at:at + 4] for at in range(0, 32, 4))


def parts(variant):
    """The name of a variant of a Rust enum, and what it holds."""
    if isinstance(variant, str):
        return variant, {}
    ((name, held),) = variant.items()
    return name, held


def obey(end, order):
    name, held = parts(order)
    act = getattr(end, name)
    if isinstance(held, dict) and name != 'make':
        return act(**held)
    return act(held)


def answer(end, line):
    try:
        return {'Ok': obey(end, json.loads(line))}
    except Exception as error:  # The host decides what an error means, whatever it is.
        return {'Err': f'{error!r} {traceback.format_exc(limit=-1)}'}


def main():
    end = End()
    for line in sys.stdin:
        print(json.dumps(answer(end, line)), flush=True)
    end.leave()


main()
