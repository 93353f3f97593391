package router

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// kind is what a host is for connections. Lower ones come first.
type kind int

const (
	// ready: a control-plane host whose API server is ready.
	ready kind = iota
	// unready: a control-plane host whose API server is not ready, as far as is known.
	unready
	// fallback: a worker with a tunnel, which exists only while no control-plane host has
	// one.
	fallback
)

// candidate is a host that may carry a connection.
type candidate struct {
	host types.NamespacedName
	// claim is the ID of the host's claim.
	claim string
	kind  kind
	// servedLast: the cluster's last connection went through the host.
	servedLast bool
	// streams is how many connections the host's tunnel carries.
	streams int
}

// sorted returns the candidates in the order in which they are dialed: within a kind, the
// one that served last, then those with the fewest streams. It is pure.
func sorted(candidates []candidate) []candidate {
	return slices.SortedStableFunc(slices.Values(candidates), func(a, b candidate) int {
		if c := cmp.Compare(a.kind, b.kind); c != 0 {
			return c
		}
		if a.servedLast != b.servedLast {
			if a.servedLast {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.streams, b.streams), cmp.Compare(a.host.Name, b.host.Name))
	})
}
