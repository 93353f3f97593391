package etcdrestore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Remove is Nodes. Those whose names begin with "ready" stay.
func (m *machine) Remove(_ context.Context, providerIDs []string) (removed, left []string, err error) {
	if !m.isRunning {
		m.t.Error("Nodes are deleted although there is no API server")
	}
	if m.nodesErr != nil {
		return []string{"x"}, nil, m.nodesErr
	}
	var rest []string
	for _, node := range m.nodes {
		switch {
		case slices.Contains(providerIDs, "elemental://ns/"+node):
			rest = append(rest, node)
		case strings.HasPrefix(node, "ready"):
			left = append(left, node)
		default:
			removed = append(removed, node)
		}
	}
	m.nodes = slices.Concat(rest, left)
	return removed, left, nil
}

// Nodes that only the snapshot has are deleted, and the result says what is left to do. A failure is none
// of the restore.
func TestNodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(m *machine)
		says   string
		left   []string
	}{
		"deleted":           {func(*machine) {}, "; deleted Nodes of deleted Machines: b, c", []string{"a"}},
		"nothing":           {func(m *machine) { m.nodes = []string{"a"} }, "the snapshot 1; its former data", []string{"a"}},
		"many":              {func(m *machine) { m.nodes = strings.Fields("a b c d e f g h") }, ": b, c, d, e, f and 2 more; its former data", []string{"a"}},
		"one runs":          {func(m *machine) { m.nodes = append(m.nodes, "ready-1") }, "; Nodes that are Ready although no host of the cluster has them: ready-1", []string{"a", "ready-1"}},
		"it fails":          {func(m *machine) { m.nodesErr = errors.New("listing the Nodes: refused") }, "; deleted Nodes of deleted Machines: x; Nodes of deleted Machines may be left, delete them: listing the Nodes: refused", []string{"a", "b", "c"}},
		"hosts are unknown": {func(m *machine) { m.op.EtcdRestore.ProviderIDs = nil }, "the snapshot 1; its former data", []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1)
			m.op.EtcdRestore.ProviderIDs = []string{"elemental://ns/a"}
			m.nodes = []string{"a", "b", "c"}
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateSucceeded || !strings.Contains(result.Message, test.says) {
				t.Errorf("got %+v, %v", result, err)
			}
			m.expect(restored)
			if !slices.Equal(m.nodes, test.left) {
				t.Errorf("the Nodes are %q", m.nodes)
			}
		})
	}
}

// The way back leaves the Nodes alone: they are those of the former data.
func TestWayBackKeepsNodes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.op.EtcdRestore.ProviderIDs = []string{"elemental://ns/a"}
	m.nodes, m.isBroken[restored] = []string{"a", "b"}, true
	if result, _, err := m.live(0); err != nil || result.State != protocol.StateFailed {
		t.Errorf("got %+v, %v", result, err)
	}
	if !slices.Equal(m.nodes, []string{"a", "b"}) {
		t.Errorf("the Nodes are %q", m.nodes)
	}
}
