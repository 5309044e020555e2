/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs and Python share. Described here once: Python reads the layout from the BTF of the compiled object
 * (emu/bpf/layout.py). Every map is keyed by ifindex, which the fabric makes unique over all its namespaces, so that one
 * loaded program serves them all. Only integers and arrays of integers, ordered so that there is no padding.
 */
#ifndef RAILBED_MAPS_H
#define RAILBED_MAPS_H

#include "declare.h"
#include <linux/types.h>

#define DEPTH_BUCKETS 64

/*
 * Ports' maps take memory as ports appear: a depth is 1 KB. NICs' maps are preallocated, because the lab kernel's time
 * stands still while it works, so that its BPF allocator, refilled from an interrupt, is empty after four entries.
 */
#define PORTS_MAX 65536
#define NICS_MAX 16384 /* 2.5 MB */

/* ECN law of one switch port; a port without an entry is left alone. */
struct port_config {
	__u64 rng_state;    /* the port's seed; moves on with every draw */
	__u32 kmin_bytes;   /* below: no mark */
	__u32 kmax_bytes;   /* from here on: every packet; equal to kmin_bytes for a step */
	__u32 pmax;         /* probability reached at kmax_bytes, in units of 2^-32 */
	__u32 bucket_bytes; /* width of one bucket of port_depth */
};

/*
 * What arrived at the port, before its queue: packets = ect + ce + not_ect. A marked packet may still be tail-dropped,
 * so packets that leave as CE are not counted here but at the NIC.
 */
struct port_counters {
	__u64 packets;               /* IPv4 and IPv6 */
	__u64 bytes;                 /* of these, Ethernet header included, FCS not */
	__u64 ect_packets;           /* arrived as ECT(0) or ECT(1) */
	__u64 ce_packets;            /* arrived as CE */
	__u64 not_ect_packets;       /* arrived as Not-ECT */
	__u64 other_packets;         /* not IP (ARP): passed, and in no other counter */
	__u64 marked_packets;        /* the law chose them; includes those that were CE already, as in sch_red */
	__u64 remarked_packets;      /* of the marked, those that were CE already */
	__u64 early_dropped_packets; /* the law chose them, but Not-ECT can't be marked, so they were dropped */
	__u64 depth_max_bytes;       /* longest queue that a packet found */
};

/* Bucket i: packets that found a queue of i*bucket_bytes to (i+1)*bucket_bytes - 1; the last bucket has no upper end. */
struct port_depth {
	__u64 seen[DEPTH_BUCKETS];   /* IPv4 and IPv6 packets */
	__u64 chosen[DEPTH_BUCKETS]; /* of these, marked or dropped early */
};

/* How a NIC's counter behaves; without an entry RoCE is consumed. */
struct nic_config {
	__u32 pass_roce; /* 1: RoCE goes on to the host's stack, which answers "port unreachable" if nobody listens */
};

/* What a NIC received: packets = roce_data + cnp + other; of the IP packets each is one of ce, ect, not_ect. */
struct nic_counters {
	__u64 packets;           /* every frame */
	__u64 bytes;             /* of these, Ethernet header included, FCS not */
	__u64 ce_packets;
	__u64 ect_packets;       /* ECT(0) or ECT(1) */
	__u64 not_ect_packets;
	__u64 roce_data_packets; /* RoCEv2 with payload: SEND, RDMA WRITE, RDMA READ response */
	__u64 roce_data_bytes;   /* of these, Ethernet header included, FCS not */
	__u64 cnp_packets;       /* RoCEv2 congestion notification */
	__u64 other_packets;     /* ACKs and requests without payload, and everything that is not RoCEv2 */
	__u64 first_ns;          /* arrival of the first RoCE data packet, CLOCK_MONOTONIC; 0 before it */
	__u64 last_ns;           /* arrival of the latest one */
};

#define PER_PORT_MAP(name, value_type) MAP(BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, name, __u32, value_type, PORTS_MAX)
#define PER_NIC_MAP(name, value_type) MAP(BPF_MAP_TYPE_HASH, 0, name, __u32, value_type, NICS_MAX)

#endif
