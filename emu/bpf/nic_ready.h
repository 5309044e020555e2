/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps, and each server's list of queue pairs that may have something to send: first come, first served. */
#ifndef RAILBED_NIC_READY_H
#define RAILBED_NIC_READY_H

#include "declare.h"
#include "packet.h"
#include "nic.h"

ARRAY(nic_settings, struct nic_settings, 1);
ARRAY(nic_progress, struct nic_progress, 1);
ARRAY(nic_servers, struct nic_server, SERVERS_MAX);
ARRAY(nic_qps, struct nic_qp, QPS_MAX);
ARRAY(nic_windows, struct nic_window, QPS_MAX);
ARRAY(nic_requests, struct nic_request, REQUESTS_MAX);
ARRAY(nic_releases, struct nic_release, RELEASES_MAX);

/* Put it at the end of the list, if it isn't on it. */
__noinline int make_ready(__u32 qpn)
{
	struct nic_qp *last, *qp = LOOKUP(nic_qps, qpn);
	struct nic_server *server = qp ? LOOKUP(nic_servers, qp->server) : 0;

	if (!server || qp->ready)
		return 0;
	qp->ready = 1;
	qp->ready_next = 0;
	last = server->ready_first ? LOOKUP(nic_qps, server->ready_last) : 0;
	if (last)
		last->ready_next = qpn;
	else
		server->ready_first = qpn;
	server->ready_last = qpn;
	return 0;
}

/* The first of the list, now off it; 0 if there is none. */
__noinline __u32 take_ready(__u32 at)
{
	struct nic_server *server = LOOKUP(nic_servers, at);
	__u32 qpn = server ? server->ready_first : 0;
	struct nic_qp *qp = qpn ? LOOKUP(nic_qps, qpn) : 0;

	if (!qp)
		return 0;
	server->ready_first = qp->ready_next;
	qp->ready = 0;
	return qpn;
}

/* Whose turn it is after `qpn`: the queue pairs of a server send in turns, as NICs arbitrate. */
__noinline __u32 next_turn(__u32 at, __u32 qpn)
{
	struct nic_server *server = LOOKUP(nic_servers, at);

	if (!server || !server->ready_first)
		return qpn;
	make_ready(qpn);
	return take_ready(at);
}

#endif
