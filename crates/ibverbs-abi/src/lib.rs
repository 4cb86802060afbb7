//! The ABI of libibverbs: structures and numbers of `<infiniband/verbs.h>`, in the header's names.
//!
//! For programs that load the library at run time (`catchment-provider-ibverbs`), and for a library
//! that replaces it. Nothing here calls anything: the crate has no code, only `repr(C)` types and
//! numbers. The caller follows the rules of the header: which pointers are valid, and for how long.
//!
//! Guarantees: sizes, offsets and numbers are those of the system's headers, which the test
//! `layout` compares field by field through a C compiler. The ABI has been stable since rdma-core took over
//! in 2016; structures that grow do so at their end, or (`verbs_context`) before their beginning.
//! Where only the first fields matter and the library creates the object, the rest is omitted.
#![forbid(unsafe_code)]
#![allow(
    non_camel_case_types,
    missing_docs,
    reason = "the names of the header, which documents them"
)]

#[cfg(test)]
mod layout;
mod numbers;

pub use numbers::*;

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A GID: 16 bytes in network order. Aligned as the header's union of it with two 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_port_attr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// Created by the library; only its name is read, by a function.
#[repr(C)]
pub struct ibv_device {
    _private: [u8; 0],
}

type Unused = Option<unsafe extern "C" fn()>;

/// Of the functions of a device, those that the header calls without a symbol.
#[repr(C)]
pub struct ibv_context_ops {
    _before_poll: [Unused; 11],
    pub poll_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int>,
    pub req_notify_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    _before_post: [Unused; 12],
    pub post_send: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_send_wr,
            bad_wr: *mut *mut ibv_send_wr,
        ) -> c_int,
    >,
    pub post_recv: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_recv_wr,
            bad_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    _after: [Unused; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    /// [`VERBS_ABI_IS_EXTENDED`] where the context is the last field of a [`verbs_context`].
    pub abi_compat: *mut c_void,
}

/// `__VERBS_ABI_IS_EXTENDED`, as an address.
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// The last fields: it grows at its beginning, and `sz` is the size that a library has.
#[repr(C)]
pub struct verbs_context {
    pub modify_qp_rate_limit:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int>,
    _before_query: [Unused; 13],
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const c_void,
            attr: *mut ibv_device_attr_ex,
            attr_size: usize,
        ) -> c_int,
    >,
    _after_query: [Unused; 10],
    _abi_placeholder3: u64,
    /// Bytes of the library's whole structure.
    pub sz: usize,
    pub context: ibv_context,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_packet_pacing_caps {
    /// In kbit/s, as the maximum.
    pub qp_rate_limit_min: u32,
    pub qp_rate_limit_max: u32,
    /// A bit for each kind of queue pair: `1 << IBV_QPT_RC` and so on.
    pub supported_qpts: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    /// On-demand paging, time stamps, segmentation and receive-side scaling.
    _before_pacing: [u64; 11],
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: ibv_packet_pacing_caps,
    /// Raw packets, tag matching, device memory and atomics of the bus.
    _after_pacing: [u64; 7],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ibv_qp_rate_limit_attr {
    /// In kbit/s; 0 is no limit.
    pub rate_limit: u32,
    pub max_burst_sz: u32,
    pub typical_pkt_sz: u16,
    pub comp_mask: u32,
}

/// Created by the library; nothing of it is read.
#[repr(C)]
pub struct ibv_pd {
    _private: [u8; 0],
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// The first fields; the library creates it.
#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

/// Created by the library; this crate has no fields of it.
#[repr(C)]
pub struct ibv_srq {
    _private: [u8; 0],
}

/// The first fields; the library creates it.
#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// Created by the library; nothing of it is read.
#[repr(C)]
pub struct ibv_ah {
    _private: [u8; 0],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_qp_attr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct send_wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union send_wr_op {
    pub rdma: send_wr_rdma,
    pub atomic: send_wr_atomic,
    pub ud: send_wr_ud,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Network byte order; a key to invalidate is in host byte order.
    pub imm_data: u32,
    pub wr: send_wr_op,
    /// Shared receive queues, memory windows and TCP segmentation.
    pub _unused: [u64; 7],
}

impl ibv_send_wr {
    /// A request of nothing.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        wr: send_wr_op {
            atomic: send_wr_atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 },
        },
        _unused: [0; 7],
    };
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Network byte order; a key that was invalidated is in host byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union async_event_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub port_num: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_async_event {
    pub element: async_event_element,
    pub event_type: c_uint,
}
