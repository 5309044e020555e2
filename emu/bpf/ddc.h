/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the cell fabric (ddc.bpf.c) and Python share; Python reads the layout from the object's BTF. All maps are arrays,
 * allocated when they are made (nic.h says why). A leaf is an NCP and has a number; so has every switch, and every NIC:
 * its place among the NICs' /31 networks. Times are kernel ns.
 */
#ifndef RAILBED_DDC_H
#define RAILBED_DDC_H

#include <linux/types.h>

#define PORTS_MAX 65536
#define NICS_MAX 65536
#define SWITCHES_MAX 1024
#define LEAVES_MAX 512
#define GROUPS_MAX 4096
#define LINKS_MAX 128		 /* of one group */
#define PAIRS_MAX (1 << 20)
#define SLOTS_MAX 8192		 /* packets that are being put together or wait for an older one; a power of two */
#define CELLS_MAX 64		 /* of one packet */
#define PACKET_MAX 4224		 /* bytes of IP: a path MTU of 4,096 and its headers */
#define CELL_MIN 128
#define CELL_MAX 2112		 /* bytes of IP in one cell */

/* One for all switches of a run. */
struct ddc_settings {
	__u64 credit_rtt_ns;	 /* from a packet's arrival to its credit, if nobody else wants the port */
	__u64 timeout_ns;	 /* a packet that holds others back for so long is lost */
	__u32 network;		 /* first address of the NICs' network, host byte order */
	__u32 nics;
	__u32 cell_bytes;	 /* of the packet, in each cell */
	__u32 elided_bytes;	 /* an IP packet of this length counts full_bytes; 0: none does */
	__u32 full_bytes;
	__u32 reserved;
};

/* By ifindex, every port of a switch. */
struct ddc_port {
	__u64 cells;		 /* sent out of it */
	__u32 at;		 /* number of its switch, + 1; 0: not a switch's port */
	__u32 reserved;
};

/* A switch, by number; of a spine only the counters of cells are used. */
struct ddc_switch {
	__u64 packets_in;	 /* cut into cells */
	__u64 bytes_in;		 /* of these, on a link */
	__u64 packets_local;	 /* between two servers of this leaf: with credit, but in one piece */
	__u64 cells_out;	 /* made of packets_in */
	__u64 cells_in;		 /* received, each of which is one of the following or part of a packet */
	__u64 cells_late;	 /* of a packet that was given up */
	__u64 cells_twice;
	__u64 cells_no_room;
	__u64 cells_no_path;	 /* also on a spine */
	__u64 packets_out;	 /* put together and delivered */
	__u64 packets_lost;	 /* given up after timeout_ns: a cell was lost */
	__u64 held_max;		 /* packets that waited for an older one at once, of one pair */
	__u32 leaf;		 /* its number as a leaf, + 1; 0: none */
	__u32 voq_ifindex;
};

/* An egress port, by the number of the NIC behind it. `head` is two bytes of padding and the Ethernet header there. */
struct ddc_nic {
	__u64 head[2];
	__u64 clock_ns;		 /* credits are given away up to this time */
	__u64 byte_ns;		 /* time of one byte at credit speed, in 2^-20 ns */
	__u64 packets;		 /* that got a credit */
	__u64 bytes;		 /* of these, on the link */
	__u64 wait_ns;		 /* that these waited at the ingress, all together */
	__u64 wait_max_ns;
	__u32 ifindex;		 /* 0: there is no such NIC */
	__u32 leaf;
};

/* What is between an ingress leaf and an egress port: by leaf * nics + NIC. */
struct ddc_pair {
	__u64 gap_ns;		 /* since when a complete packet waits for an older one */
	__u32 sent;		 /* number of the next packet, at the ingress */
	__u32 next;		 /* number of the packet that is to be delivered next */
	__u32 held;		 /* complete packets that wait for an older one */
	__u32 armed;		 /* 1: a reminder is on its way */
};

/* Equal ports towards a leaf, in turn. */
struct ddc_group {
	__u64 turn;
	__u32 count;
	__u32 ports[LINKS_MAX];
	__u32 reserved;
};

/* By switch * LEAVES_MAX + leaf: the group to choose from, + 1. */
struct ddc_route {
	__u32 group;
	__u32 reserved;
};

/* A packet that arrives in cells. */
struct ddc_slot {
	__u64 key;		 /* pair and number; 0: free */
	__u64 arrived;		 /* cells, by bit */
	__u64 since_ns;
	__u32 bytes;		 /* of IP, once it is complete; 0 before */
	__u32 reserved;
};

/* Its bytes: two of padding, an Ethernet header, then IP. */
struct ddc_buffer {
	__u64 words[(16 + PACKET_MAX + CELL_MAX) / 8];
};

#endif
