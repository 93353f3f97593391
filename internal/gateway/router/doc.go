// Package router connects the gateway to the API servers of clusters whose hosts have
// tunnels. It finds the cluster by the name of its endpoint, which must be of type Tunnel, or
// by its own name for users who were let in. It chooses the host that carries the
// connection, dials through the host's tunnel, and ends connections whose host may no longer
// carry them.
//
// Which cluster a name belongs to follows from objects that only the management cluster's
// users write. A host has no say in it.
package router
