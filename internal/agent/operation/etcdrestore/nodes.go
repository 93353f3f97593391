package etcdrestore

import (
	"context"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
)

// Nodes deletes Nodes of hosts that no longer belong to the cluster; see nodes.Remover.
type Nodes interface {
	// Remove deletes the Nodes of hosts that have other providerIDs than these, and returns the names of
	// those that it has deleted, and of those that are Ready and stay. It may be repeated.
	Remove(ctx context.Context, providerIDs []string) (removed, left []string, err error)
}

// maxNames bounds how many Nodes a message names.
const maxNames = 5

// formerNodes is the part of a restore that deletes Nodes. It does nothing if the manager does not name the
// hosts of the cluster.
type formerNodes struct{ *restore }

// remove is the step nodes. Its failure is no failure of the restore: a Node too many does less harm than
// the way back.
func (s formerNodes) remove(ctx context.Context) error {
	if len(s.want.ProviderIDs) == 0 {
		return nil
	}
	removed, left, err := s.Nodes.Remove(ctx, s.want.ProviderIDs)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(removed) > 0 {
		s.at.NodesNote = fmt.Sprintf("; deleted Nodes of deleted Machines: %s", join(removed))
	}
	switch {
	case err != nil:
		s.Log.Warn("Nodes of hosts that no longer belong to the cluster may be left", "error", err)
		s.at.NodesNote += "; Nodes of deleted Machines may be left, delete them: " + sequence.Short(err)
	case len(left) > 0:
		s.at.NodesNote += fmt.Sprintf("; Nodes that are Ready although no host of the cluster has them: %s", join(left))
	}
	return nil
}

// join joins the first names.
func join(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
