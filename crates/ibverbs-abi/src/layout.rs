//! The structures and numbers of this crate match the system's headers: a C program that prints
//! them is compiled and run.
use crate::{
    NUMBERS, VERBS_ABI_IS_EXTENDED, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_global_route, ibv_mr,
    ibv_packet_pacing_caps, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_rate_limit_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, verbs_context,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// An expression to print in C, and its value in this crate.
struct Fact {
    expression: String,
    ours: u64,
}

/// Offsets of fields; `whole` structures have the same size too.
macro_rules! facts {
    ($($kind:ident $name:ident $(= $c:literal)? { $($field:ident $(. $inner:ident)* : $bytes:expr),* $(,)? })*) => {{
        let mut facts = Vec::new();
        $(
            let c = facts!(@name $name $(= $c)?);
            if stringify!($kind) == "whole" {
                facts.push(Fact {
                    expression: format!("sizeof({c})"),
                    ours: size_of::<$name>() as u64,
                });
            }
            $(
                let field = concat!(stringify!($field) $(, ".", stringify!($inner))*);
                facts.push(Fact {
                    expression: format!("offsetof({c}, {field})"),
                    ours: offset_of!($name, $field $(. $inner)*) as u64,
                });
                facts.push(Fact {
                    expression: format!("sizeof((({c} *)0)->{field})"),
                    ours: $bytes,
                });
            )*
        )*
        facts
    }};
    (@name $name:ident) => { concat!("struct ", stringify!($name)) };
    (@name $name:ident = $c:literal) => { $c };
}

/// Attributes of devices, ports and memory.
fn device_facts() -> Vec<Fact> {
    facts! {
        whole ibv_gid = "union ibv_gid" { raw: 16 }
        whole ibv_gid_entry { gid: 16, gid_index: 4, port_num: 4, gid_type: 4, ndev_ifindex: 4 }
        whole ibv_device_attr {
            fw_ver: 64, node_guid: 8, sys_image_guid: 8, max_mr_size: 8, page_size_cap: 8,
            vendor_id: 4, vendor_part_id: 4, hw_ver: 4, max_qp: 4, max_qp_wr: 4,
            device_cap_flags: 4, max_sge: 4, max_sge_rd: 4, max_cq: 4, max_cqe: 4, max_mr: 4,
            max_pd: 4, max_qp_rd_atom: 4, max_ee_rd_atom: 4, max_res_rd_atom: 4,
            max_qp_init_rd_atom: 4, max_ee_init_rd_atom: 4, atomic_cap: 4, max_ee: 4, max_rdd: 4,
            max_mw: 4, max_raw_ipv6_qp: 4, max_raw_ethy_qp: 4, max_mcast_grp: 4,
            max_mcast_qp_attach: 4, max_total_mcast_qp_attach: 4, max_ah: 4, max_fmr: 4,
            max_map_per_fmr: 4, max_srq: 4, max_srq_wr: 4, max_srq_sge: 4, max_pkeys: 2,
            local_ca_ack_delay: 1, phys_port_cnt: 1,
        }
        whole ibv_port_attr {
            state: 4, max_mtu: 4, active_mtu: 4, gid_tbl_len: 4, port_cap_flags: 4, max_msg_sz: 4,
            bad_pkey_cntr: 4, qkey_viol_cntr: 4, pkey_tbl_len: 2, lid: 2, sm_lid: 2, lmc: 1,
            max_vl_num: 1, sm_sl: 1, subnet_timeout: 1, init_type_reply: 1, active_width: 1,
            active_speed: 1, phys_state: 1, link_layer: 1, flags: 1, port_cap_flags2: 2,
        }
        whole ibv_context {
            device: 8, ops: 256, ops.poll_cq: 8, ops.req_notify_cq: 8, ops.post_send: 8,
            ops.post_recv: 8, cmd_fd: 4, async_fd: 4, num_comp_vectors: 4,
            mutex: size_of::<libc::pthread_mutex_t>() as u64, abi_compat: 8,
        }
        whole ibv_packet_pacing_caps {
            qp_rate_limit_min: 4, qp_rate_limit_max: 4, supported_qpts: 4,
        }
        whole ibv_device_attr_ex {
            orig_attr: 232, comp_mask: 4, max_wq_type_rq: 4, packet_pacing_caps: 12,
        }
        whole ibv_mr {
            context: 8, pd: 8, addr: 8, length: 8, handle: 4, lkey: 4, rkey: 4,
        }
        whole ibv_comp_channel { context: 8, fd: 4, refcnt: 4 }
    }
}

/// Attributes of queues, and their requests.
fn queue_facts() -> Vec<Fact> {
    facts! {
        part ibv_cq { context: 8, channel: 8, cq_context: 8, handle: 4, cqe: 4 }
        part ibv_qp {
            context: 8, qp_context: 8, pd: 8, send_cq: 8, recv_cq: 8, srq: 8, handle: 4, qp_num: 4,
            state: 4, qp_type: 4,
        }
        whole ibv_qp_cap {
            max_send_wr: 4, max_recv_wr: 4, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 4,
        }
        whole ibv_qp_init_attr {
            qp_context: 8, send_cq: 8, recv_cq: 8, srq: 8, cap: 20, qp_type: 4, sq_sig_all: 4,
        }
        whole ibv_global_route {
            dgid: 16, flow_label: 4, sgid_index: 1, hop_limit: 1, traffic_class: 1,
        }
        whole ibv_ah_attr {
            grh: 24, dlid: 2, sl: 1, src_path_bits: 1, static_rate: 1, is_global: 1, port_num: 1,
        }
        whole ibv_qp_attr {
            qp_state: 4, cur_qp_state: 4, path_mtu: 4, path_mig_state: 4, qkey: 4, rq_psn: 4,
            sq_psn: 4, dest_qp_num: 4, qp_access_flags: 4, cap: 20, ah_attr: 32, alt_ah_attr: 32,
            pkey_index: 2, alt_pkey_index: 2, en_sqd_async_notify: 1, sq_draining: 1,
            max_rd_atomic: 1, max_dest_rd_atomic: 1, min_rnr_timer: 1, port_num: 1, timeout: 1,
            retry_cnt: 1, rnr_retry: 1, alt_port_num: 1, alt_timeout: 1, rate_limit: 4,
        }
        whole ibv_qp_rate_limit_attr {
            rate_limit: 4, max_burst_sz: 4, typical_pkt_sz: 2, comp_mask: 4,
        }
        whole ibv_sge { addr: 8, length: 4, lkey: 4 }
        whole ibv_send_wr {
            wr_id: 8, next: 8, sg_list: 8, num_sge: 4, opcode: 4, send_flags: 4, imm_data: 4,
            wr.rdma.remote_addr: 8, wr.rdma.rkey: 4, wr.atomic.remote_addr: 8,
            wr.atomic.compare_add: 8, wr.atomic.swap: 8, wr.atomic.rkey: 4, wr.ud.ah: 8,
            wr.ud.remote_qpn: 4, wr.ud.remote_qkey: 4,
        }
        whole ibv_recv_wr { wr_id: 8, next: 8, sg_list: 8, num_sge: 4 }
        whole ibv_wc {
            wr_id: 8, status: 4, opcode: 4, vendor_err: 4, byte_len: 4, imm_data: 4, qp_num: 4,
            src_qp: 4, wc_flags: 4, pkey_index: 2, slid: 2, sl: 1, dlid_path_bits: 1,
        }
        whole ibv_async_event {
            element: 8, element.cq: 8, element.qp: 8, element.port_num: 4, event_type: 4,
        }
    }
}

/// Distances from the end of the context, of which only the address is known.
fn extension_facts() -> Vec<Fact> {
    let fact = |field: &str, ours: usize| Fact {
        expression: format!(
            "sizeof(struct verbs_context) - offsetof(struct verbs_context, {field})"
        ),
        ours: (size_of::<verbs_context>() - ours) as u64,
    };
    vec![
        fact("modify_qp_rate_limit", offset_of!(verbs_context, modify_qp_rate_limit)),
        fact("query_device_ex", offset_of!(verbs_context, query_device_ex)),
        fact("sz", offset_of!(verbs_context, sz)),
        fact("context", offset_of!(verbs_context, context)),
        Fact {
            expression: "(uintptr_t)__VERBS_ABI_IS_EXTENDED".to_owned(),
            ours: VERBS_ABI_IS_EXTENDED as u64,
        },
    ]
}

fn facts() -> Vec<Fact> {
    let numbers = NUMBERS
        .iter()
        .map(|(name, ours)| Fact { expression: (*name).to_owned(), ours: u64::from(*ours) });
    let structures = device_facts().into_iter().chain(queue_facts()).chain(extension_facts());
    structures.chain(numbers).collect()
}

/// A C program that prints every expression with its value.
fn program(facts: &[Fact]) -> String {
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for Fact { expression, .. } in facts {
        writeln!(
            text,
            "printf(\"%s|%llu\\n\", \"{expression}\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    text.push_str("return 0;\n}\n");
    text
}

/// Compiles and runs a C program.
fn run(folder: &Path, program: &str) -> String {
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .args([&source, Path::new("-o"), &binary])
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; the test needs a C compiler"));
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        compiled.status.success(),
        "the test needs the headers of libibverbs (Debian: apt install libibverbs-dev):\n{said}"
    );
    String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap()
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let facts = facts();
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &program(&facts));
    let theirs: BTreeMap<&str, u64> = output
        .lines()
        .map(|line| line.split_once('|').unwrap())
        .map(|(expression, value)| (expression, value.parse().unwrap()))
        .collect();
    assert_eq!(theirs.len(), facts.len());
    for Fact { expression, ours } in &facts {
        assert_eq!(theirs[expression.as_str()], *ours, "{expression}");
    }
}
