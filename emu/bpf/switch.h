/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the leaves' programs (switch.bpf.c) and Python share; Python reads the layout from the object's BTF. A leaf is a
 * switch with servers; its number is its prefix's place in the NICs' network, so that an address tells the leaf. An
 * uplink's slot is its place among its leaf's ports to other switches. Maps are allocated when they are made (nic.h).
 */
#ifndef RAILBED_SWITCH_H
#define RAILBED_SWITCH_H

#include <linux/types.h>

#define PORTS_MAX 65536
#define LEAVES_MAX 512
#define UPLINKS_MAX 128	   /* of one leaf */
#define GROUPS_MAX 8192
#define PAIRS_MAX 4096	   /* of leaves that are kept apart; beyond 64 leaves some share an entry */
#define FLOWS_MAX (1 << 17)
#define FLOWLETS_MAX (1 << 17)

/* One for all leaves of a run. */
struct switch_settings {
	__u32 network;	       /* the NICs' network, host byte order; leaf d has the addresses (network + d << shift) ... */
	__u32 prefix_shift;
	__u32 leaves;
	__u32 elided_bytes;    /* frames of this length count full_bytes; 0: none do */
	__u32 full_bytes;
	__u32 reserved;
	__u64 flowlet_gap_ns;  /* kernel ns */
	__u64 frame_ns;	       /* of a whole frame on an uplink: waits that differ by less are alike */
};

/* By ifindex. */
struct switch_port {
	__u32 leaf;	       /* number + 1 of the leaf that has this port towards a server; 0: no such port */
	__u32 reserved;
};

/* A leaf's state, by its number. Arrays are by slot. */
struct switch_leaf {
	__u64 busy_ns[UPLINKS_MAX];    /* kernel time at which what was sent up by now has left the link */
	__u64 sent_bytes[UPLINKS_MAX]; /* given to the uplink, frames without payload at full length */
	__u64 sent_packets[UPLINKS_MAX];
	__u64 random;		       /* state of its generator */
	__u64 turn;		       /* round robin: packets so far */
	__u64 unknown;		       /* packets that the kernel forwarded for want of a path */
	__u32 hash_seed;
	__u32 reserved;
};

/* An uplink, by leaf * UPLINKS_MAX + slot. */
struct switch_uplink {
	__u64 head[2];	       /* two bytes of padding, the peer's hardware address, its own, EtherType */
	__u64 limit_ns;	       /* what its buffer holds, in time on the link */
	__u32 ifindex;
	__u32 mult, shift;     /* time of a byte: mult / 2^shift ns, as the kernel's shaper has it */
	__u32 reserved;
};

/* From leaf to leaf, by source * LEAVES_MAX + target: the group to choose from, + 1; 0: the kernel forwards. */
struct switch_reach {
	__u32 group;
	__u32 reserved;
};

/* What a leaf has sent to one other leaf, by (source * leaves + target) mod PAIRS_MAX. */
struct switch_pair {
	__u64 sent_bytes[UPLINKS_MAX]; /* by slot */
};

/* Uplinks of equal cost, as in a switch's ECMP group table; also as a set, by bit. */
struct switch_group {
	__u64 members[UPLINKS_MAX / 64];
	__u32 count;
	__u32 slots[UPLINKS_MAX];
	__u32 reserved;
};

/* A flow's path, from the controller. */
struct switch_flow {
	__u64 packets;
	__u32 slot;
	__u32 reserved;
};

/* Where a flow's latest packet went, and when. */
struct switch_flowlet {
	__u64 last_ns;
	__u64 flowlets;
	__u32 slot;
	__u32 reserved;
};

#endif
