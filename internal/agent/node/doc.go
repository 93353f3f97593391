// Package node sets spec.providerID and labels of the Node that runs on this host. The
// agent calls it after a bootstrap, and when the plan names what the agent has not set
// yet.
//
// It uses the kubelet's own credentials and API server, and needs two requests for each.
// So the manager needs no access to the workload cluster, and bootstrap templates
// need not know the host. The package must not change anything else of a Node.
package node
