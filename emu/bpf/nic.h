/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the RDMA NIC (nic.bpf.c) and Python share; Python reads the layout from the object's BTF. All maps are arrays,
 * allocated when they are made: a hash that allocates entries as they come is out of memory in the lab kernel, where
 * time, and with it the allocator's refill, stands still while packets are processed.
 */
#ifndef RAILBED_NIC_H
#define RAILBED_NIC_H

#include <linux/types.h>

#define QPS_MAX 131072		 /* ends of connections; 8,192 NICs with eight connections each */
#define SERVERS_MAX 16384
#define REQUESTS_MAX (1 << 21)
#define RELEASES_MAX (1 << 22)
#define WINDOW_MAX 1024		 /* packets; a power of two */
#define PRIORITY_CONTROL 7	 /* skb->priority, TC_PRIO_CONTROL; of data it is 0 */
#define WINDOW_WORDS (WINDOW_MAX / 64)
#define MTU_MAX_BYTES 4096
#define CRC_STEPS 11		 /* zeros up to MTU_MAX_BYTES, which is 4 << 10 */

/* One for all NICs of a run. Times in kernel ns, rates in bytes a kernel second. */
struct nic_settings {
	__u64 rto_ns;		 /* no progress for this long: repair */
	__u64 cnp_interval_ns;	 /* at most one CNP a queue pair in this time */
	__u64 alpha_period_ns;	 /* DCQCN: alpha decays once a period without CNP */
	__u64 rise_period_ns;	 /* DCQCN: the rate rises once a period */
	__u32 rise_additive_bytes;
	__u32 rise_hyper_bytes;
	__u32 rate_min_bytes;
	__u32 fast_recovery_steps; /* DCQCN: F */
	__u32 alpha_gain_shift;	 /* DCQCN: g = 2^-shift */
	__u32 mtu_bytes;
	__u32 window_packets;	 /* up to WINDOW_MAX */
	__u32 ack_every;	 /* packets for one ACK */
	__u32 reorder_packets;	 /* sr: a gap this far behind what has arrived is taken for a loss before the timer */
	__u32 selective;	 /* 1: transport=sr, 0: gbn */
	__u32 elided;		 /* 1: packets of a whole MTU travel without payload */
	__u32 dcqcn;		 /* 1: CE is answered by CNPs, and rates follow them */
	__u32 paced;		 /* 1: packets carry their departure time for fq; 0: the window follows the rate */
	__u32 icrc;		 /* 1: every frame carries its iCRC, and one with a wrong one is dropped; 0: the iCRC is 0 */
};

/* What a run has come to. */
struct nic_progress {
	__u64 remaining;	 /* requests not yet complete at their receiver; 0 raises the event */
	__u64 first_ns;		 /* first packet sent */
	__u64 last_ns;		 /* last request complete */
	__u64 strangers;	 /* RoCE packets for a queue pair that isn't there */
	__u64 stopped;		 /* Python: 1 ends the ticks */
	__u64 ticks;
};

/*
 * One end of a connection, by its number. `head` is what every packet of it begins with (two bytes of padding, then
 * Ethernet, IPv4, UDP, BTH: struct frame of nic_frame.h). PSNs count on in 32 bits, the wire shows the low 24.
 * Requests of both directions are ranges of nic_requests, in the order in which they are sent.
 */
struct nic_qp {
	__u64 head[7];
	__u32 head_sum;		 /* ones' complement sum of the IPv4 header without length and checksum */
	__u32 ifindex;		 /* its NIC; 0: no such queue pair */
	__u32 send_next, send_end; /* requests: the one that goes out now, and the end of the range */
	__u32 receive_first, receive_next, receive_end;
	__u32 receive_psn_end;	 /* PSN after the last packet of request receive_next */

	__u32 psn_next;		 /* to be sent next */
	__u32 psn_una;		 /* oldest that is not acknowledged */
	__u32 psn_max;		 /* after the latest that was ever sent */
	__u32 repair_next, repair_end; /* sr: PSNs to be sent again, as far as they are not known to have arrived */
	__u32 repair_request;	 /* request of PSN repair_next */
	__u32 repaired_to;	 /* PSNs before this one have had their early repair */
	__u32 sacked_high;	 /* after the latest PSN known to have arrived */

	__u32 psn_expected;	 /* all before it have arrived */
	__u32 early;		 /* sr: packets that have arrived beyond a gap */
	__u32 nak_sent;		 /* gbn: the gap has had its NAK */
	__u32 rate_stage;

	__u32 server;		 /* entry of nic_servers */
	__u32 ready;		 /* 1: in its server's list of those that may have something to send */
	__u32 ready_next;	 /* the next in that list; 0: none */
	__u32 icrc_errors;	 /* frames of any kind that were dropped for their iCRC */

	__u64 progress_ns;	 /* when psn_una last moved, or a repair was sent */
	__u64 cnp_ns;		 /* when the last CNP went out */
	__u64 rate_max_bytes, rate_bytes, rate_target_bytes;
	__u64 departure_ns;	 /* paced: earliest time of the next packet */
	__u64 alpha_ns, rise_ns; /* start of the period that runs */
	__u32 alpha;		 /* 2^16 is 1 */
	__u32 naks_received;

	__u64 sent_packets;	 /* data, repairs included */
	__u64 resent_packets;
	__u64 placed_packets;	 /* data that arrived for the first time */
	__u64 placed_bytes;	 /* payload of these */
	__u32 duplicate_packets; /* data that had arrived before */
	__u32 early_packets;	 /* data that arrived before an older one (RFC 4737's complement) */
	__u32 refused_packets;	 /* out of the window or, gbn, out of order; or not what the request says */
	__u32 misplaced_packets; /* address, length or message number are not the request's */
	__u32 ce_packets;
	__u32 cnps_sent, cnps_received;
	__u32 acks_sent, acks_received;
	__u32 naks_sent;
	__u32 timeouts;
	__u32 sacks_received;
	__u32 reordered_packets; /* new data that arrived after a later one (RFC 4737, Type-P-Reordered) */
	__u32 psn_high;		 /* after the latest that has arrived */
};

/* The queue pairs of a server, which have consecutive numbers, and those of them that wait for their turn. */
struct nic_server {
	__u32 qpn_first, qps;
	__u32 ready_first, ready_last; /* 0: none */
};

/* What has arrived beyond a gap (receiver) and what is known to have (sender); bit PSN mod WINDOW_MAX. */
struct nic_window {
	__u64 seen[WINDOW_WORDS];
	__u64 sacked[WINDOW_WORDS];
};

/* A message. It goes out after `waits` others have arrived at the sender's NIC and those before it on its queue pair. */
struct nic_request {
	__u64 va;		 /* where it goes in the receiver's memory */
	__u64 done_ns;		 /* when its last byte was there; 0 before */
	__u32 qpn;		 /* sending end */
	__u32 bytes;
	__u32 psn_first;
	__u32 packets;
	__u32 waits;
	__u32 release_first, releases; /* range of nic_releases: what its arrival counts down */
	__u32 number;		 /* among those of its connection */
};

struct nic_release {
	__u32 request;
	__u32 reserved;
};

/*
 * CRC-32's register past 4 << i zero bytes: the sum of what becomes of each of its four bytes. Entry i of nic_crc_steps.
 */
struct nic_crc_step {
	__u32 sums[4 * 256];
};

#endif
