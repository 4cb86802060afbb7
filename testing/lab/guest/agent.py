"""The guest's side of the lab: does with the kernel's RDMA device what the host asks for.

Requests and replies are JSON objects over TCP, each behind its length as 4 bytes, big endian. A
request names an operation in `op`; all other members are the arguments of the method of that name.
The reply is `{"ok": result}` or `{"error": text}`. Objects are known by the numbers that the
operations which make them return. The agent knows no test case: what a case does is decided on the
host. When the connection ends, everything made over it is destroyed.
"""

import json
import pathlib
import platform
import socket
import struct
import subprocess
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

PORT = 5555
DEVICE = 'rxe0'
GIDS = 16

# Where packets leave the guest's switch.
TO_GUEST = 'port0'
FROM_GUEST = 'eth0'

TRANSPORTS = {'rc': e.IBV_QPT_RC, 'uc': e.IBV_QPT_UC}
OPCODES = {
    'send': e.IBV_WR_SEND,
    'send_imm': e.IBV_WR_SEND_WITH_IMM,
    'send_inv': e.IBV_WR_SEND_WITH_INV,
    'write': e.IBV_WR_RDMA_WRITE,
    'write_imm': e.IBV_WR_RDMA_WRITE_WITH_IMM,
    'read': e.IBV_WR_RDMA_READ,
    'compare_swap': e.IBV_WR_ATOMIC_CMP_AND_SWP,
    'fetch_add': e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
WITH_IMMEDIATE = ('send_imm', 'write_imm')
ONE_SIDED = ('write', 'write_imm', 'read')
ATOMIC = ('compare_swap', 'fetch_add')
ACCESS = {
    'local_write': e.IBV_ACCESS_LOCAL_WRITE,
    'remote_write': e.IBV_ACCESS_REMOTE_WRITE,
    'remote_read': e.IBV_ACCESS_REMOTE_READ,
    'remote_atomic': e.IBV_ACCESS_REMOTE_ATOMIC,
    'mw_bind': e.IBV_ACCESS_MW_BIND,
}
PATH_MTU = {
    256: e.IBV_MTU_256,
    512: e.IBV_MTU_512,
    1024: e.IBV_MTU_1024,
    2048: e.IBV_MTU_2048,
    4096: e.IBV_MTU_4096,
}
STATES = ('reset', 'init', 'rtr', 'rts', 'sqd', 'sqe', 'err')


def access_flags(names):
    """The flags of the access rights with these names, as one number."""
    flags = 0
    for name in names:
        flags |= ACCESS[name]
    return flags


class Agent:
    """The objects of one connection, and what can be done with them."""

    def __init__(self):
        self.context = Context(name=DEVICE)
        self.objects = {}
        self.last = 0
        self.shaped = {}

    def close(self):
        """Destroys everything, what was made last first."""
        for number in sorted(self.objects, reverse=True):
            self.objects.pop(number).close()
        self.context.close()

    def keep(self, made):
        self.last += 1
        self.objects[self.last] = made
        return self.last

    def hello(self):
        """What this guest is: its kernel, and the addresses of its RDMA device."""
        gids = [str(self.context.query_gid(1, index)) for index in range(GIDS)]
        return {'kernel': platform.release(), 'gids': gids}

    def destroy(self, objects):
        """Destroys these objects, in this order."""
        for number in objects:
            self.objects.pop(number).close()

    # Objects

    def make_pd(self):
        return {'pd': self.keep(PD(self.context))}

    def make_cq(self, entries):
        return {'cq': self.keep(CQ(self.context, entries))}

    def make_mr(self, pd, bytes, access):
        mr = MR(self.objects[pd], bytes, access_flags(access))
        return {'mr': self.keep(mr), 'addr': mr.buf, 'rkey': mr.rkey}

    def make_qp(self, pd, cq, transport, send_wr, recv_wr):
        cap = QPCap(max_send_wr=send_wr, max_recv_wr=recv_wr, max_send_sge=2, max_recv_sge=2)
        cq = self.objects[cq]
        init = QPInitAttr(qp_type=TRANSPORTS[transport], scq=cq, rcq=cq, cap=cap, sq_sig_all=0)
        qp = QP(self.objects[pd], init)
        return {'qp': self.keep(qp), 'qpn': qp.qp_num}

    def bind_window(self, pd, qp, cq, mr, offset, length, access):
        """Binds a memory window of type 2, which a peer's SEND with invalidate ends."""
        mr = self.objects[mr]
        window = MW(self.objects[pd], mw_type=e.IBV_MW_TYPE_2)
        # pyverbs binds with the next key of the window, and does not say so.
        rkey = (window.rkey & 0xffffff00) | ((window.rkey + 1) & 0xff)
        bind = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        bind.set_bind_wr(window, MWBindInfo(mr, mr.buf + offset, length, access_flags(access)))
        self.objects[qp].post_send(bind)
        done = self.poll(cq, 1, 1000)['completions']
        if [entry['status'] for entry in done] != [e.IBV_WC_SUCCESS]:
            raise RuntimeError(f'the bind ended with {done}')
        return {'mw': self.keep(window), 'rkey': rkey}

    def connect(self, qp, local, remote, qpn, rq_psn, sq_psn, path_mtu, access, timeout, retry_cnt,
                rnr_retry, min_rnr_timer, rd_atomic):
        """Takes a queue pair to RTS. `local` and `remote` are GIDs, written as IPv6 addresses."""
        qp = self.objects[qp]
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access_flags(access)
        attr.path_mtu = PATH_MTU[path_mtu]
        attr.dest_qp_num = qpn
        attr.rq_psn = rq_psn
        attr.sq_psn = sq_psn
        attr.max_dest_rd_atomic = rd_atomic
        attr.max_rd_atomic = rd_atomic
        attr.min_rnr_timer = min_rnr_timer
        attr.timeout = timeout
        attr.retry_cnt = retry_cnt
        attr.rnr_retry = rnr_retry
        route = GlobalRoute(dgid=GID(long_form(remote)), sgid_index=self.gid_index(local), hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        qp.to_rts(attr)

    def gid_index(self, address):
        wanted = long_form(address)
        for index in range(GIDS):
            if str(self.context.query_gid(1, index)) == wanted:
                return index
        raise LookupError(f'{DEVICE} has no GID {wanted}')

    def state(self, qp):
        attr, _ = self.objects[qp].query(e.IBV_QP_STATE)
        return {'state': STATES[attr.qp_state]}

    # Work

    def post_recv(self, qp, mr, offset, length, wr_id):
        mr = self.objects[mr]
        self.objects[qp].post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[SGE(mr.buf + offset, length, mr.lkey)]))

    def post_send(self, qp, requests):
        """Posts work requests one after the other; none waits for a completion of another."""
        for request in requests:
            self.post_one(self.objects[qp], **request)

    def post_one(self, qp, opcode, wr_id, mr, offset, length, remote_addr, rkey, imm, first, second,
                 signaled, fence):
        mr = self.objects[mr]
        flags = (e.IBV_SEND_SIGNALED if signaled else 0) | (e.IBV_SEND_FENCE if fence else 0)
        # Immediates and keys to invalidate share a member, and pyverbs hands it on as it is.
        extra = imm if opcode in WITH_IMMEDIATE else rkey if opcode == 'send_inv' else 0
        wr = SendWR(wr_id=wr_id, opcode=OPCODES[opcode], num_sge=1, imm_data=extra, send_flags=flags,
                    sg=[SGE(mr.buf + offset, length, mr.lkey)])
        if opcode in ONE_SIDED:
            wr.set_wr_rdma(rkey, remote_addr)
        elif opcode in ATOMIC:
            wr.set_wr_atomic(rkey, remote_addr, first, second)
        qp.post_send(wr)

    def poll(self, cq, count, timeout_ms):
        """Waits for `count` completions, at most that long, and returns those that came."""
        end = time.monotonic() + timeout_ms / 1000
        found = []
        while len(found) < count:
            number, entries = self.objects[cq].poll(count - len(found))
            found += [completion(entry) for entry in (entries or [])[:number]]
            if time.monotonic() > end:
                break
            if number == 0:
                time.sleep(0.0002)
        return {'completions': found}

    # Memory

    def write_memory(self, mr, offset, data):
        data = bytes.fromhex(data)
        self.objects[mr].write(data, len(data), offset)

    def read_memory(self, mr, offset, length):
        return {'data': self.objects[mr].read(length, offset).hex()}

    def crc_memory(self, mr, offset, length):
        return {'crc': zlib.crc32(self.objects[mr].read(length, offset))}

    # The machine

    def counters(self):
        """The counters of the device by name."""
        folder = pathlib.Path(f'/sys/class/infiniband/{DEVICE}/ports/1/hw_counters')
        values = {file.name: file.read_text() for file in folder.iterdir()}
        return {'counters': {name: int(text) for name, text in values.items() if text.strip().isdigit()}}

    def impair(self, rules, to_guest, from_guest):
        """Replaces what the guest's switch does to packets.

        `rules` are packet filter rules in the language of nft. The other two are options of netem,
        such as `loss 5%`, for either direction; empty ones take nothing away.
        """
        run(['nft', '-f', '-'], 'flush ruleset\n' + rules)
        self.shape(TO_GUEST, to_guest)
        self.shape(FROM_GUEST, from_guest)

    def shape(self, port, options):
        """Two bands: the filter rules put RoCE into the second, class 1:2, which netem impairs."""
        if self.shaped.get(port, '') == options:
            return
        subprocess.run(['tc', 'qdisc', 'del', 'dev', port, 'root'], capture_output=True, check=False)
        if options:
            priorities = ' '.join(['0'] * 16)
            run(['tc', '-batch', '-'],
                f'qdisc add dev {port} root handle 1: prio bands 2 priomap {priorities}\n'
                f'qdisc add dev {port} parent 1:2 netem {options}\n')
        self.shaped[port] = options

    def lost(self):
        """Packets that the filter dropped, by its counter `lost`, and netem, for each direction."""
        listed = json.loads(run(['nft', '-j', 'list', 'counters'], ''))['nftables']
        chosen = sum(entry['counter']['packets'] for entry in listed if 'counter' in entry)
        return {'chosen': chosen, 'to_guest': self.dropped(TO_GUEST), 'from_guest': self.dropped(FROM_GUEST)}

    def dropped(self, port):
        """Packets that netem has dropped at this port."""
        if not self.shaped.get(port):
            return 0
        queues = json.loads(run(['tc', '-s', '-j', 'qdisc', 'show', 'dev', port], ''))
        return sum(queue['drops'] for queue in queues if queue['kind'] == 'netem')

    def log(self):
        """What the kernel has said, its last lines."""
        return {'lines': run(['dmesg'], '').splitlines()[-40:]}


def completion(entry):
    names = ('wr_id', 'status', 'opcode', 'byte_len', 'imm_data', 'wc_flags', 'vendor_err')
    return {name: getattr(entry, name) for name in names}


def long_form(address):
    """An IPv6 address the way pyverbs prints GIDs: eight groups of four digits."""
    digits = socket.inet_pton(socket.AF_INET6, address).hex()
    return ':'.join(digits[at:at + 4] for at in range(0, 32, 4))


def run(words, text):
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'{words} failed: {done.stderr}')
    return done.stdout


def receive(connection, length):
    data = bytearray()
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def answer(agent, request):
    arguments = json.loads(request)
    operation = arguments.pop('op')
    try:
        return {'ok': getattr(agent, operation)(**arguments) or {}}
    except Exception as error:  # The host decides what an error means, whatever it is.
        return {'error': f'{operation}: {error!r} {traceback.format_exc(limit=-1)}'}


def serve(connection):
    agent = Agent()
    try:
        while True:
            (length,) = struct.unpack('>I', receive(connection, 4))
            reply = json.dumps(answer(agent, receive(connection, length))).encode()
            connection.sendall(struct.pack('>I', len(reply)) + reply)
    except (EOFError, ConnectionError):
        pass
    finally:
        agent.close()


def main():
    listener = socket.create_server(('0.0.0.0', PORT))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            serve(connection)


main()
