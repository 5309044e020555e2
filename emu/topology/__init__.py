"""What the cluster is: servers, switches, links, and the plan (names, addresses, routes, queues) they follow from. Pure."""
