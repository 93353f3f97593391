package etcdrestore_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
)

// realControlPlane is a member of etcd alone.
type realControlPlane struct {
	t      *testing.T
	member etcdmember.Host
	start  func()
}

func (c realControlPlane) Halt(context.Context) error {
	c.member.Stop()
	return nil
}

func (c realControlPlane) Start(context.Context) error {
	c.start()
	return nil
}

func (c realControlPlane) Ready(ctx context.Context) error {
	return etcd.Health(ctx, c.member.Member(c.t).Options)
}

// tools runs etcdutl from the folder with the programs of tests.
type tools struct{}

func (tools) Run(ctx context.Context, stdin string, args ...string) (string, error) {
	args[0] = filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), args[0])
	return oscommand.System{}.Run(ctx, stdin, args...)
}

// With real programs: what was written before the snapshot is there, and nothing else. The
// snapshots that the host has stay usable.
func TestEtcd(t *testing.T) {
	t.Parallel()
	member := etcdmember.New(t)
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		path := filepath.Join(member.Root, staticpods.Path(component))
		if err := os.WriteFile(path, []byte(manifest(component)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, log := t.TempDir(), slog.New(slog.DiscardHandler)
	documents, err := state.NewDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	store := &snapshot.Store{
		Root: member.Root, Folder: filepath.Join(folder, snapshot.Folder), System: durable.OS{}, Log: log, Now: time.Now,
		Space: func(string) (int64, int64, error) { return 1 << 40, 1 << 40, nil },
	}
	cluster := protocol.EtcdCluster{Namespace: "ns", Name: "c"}
	member.Put(t, "before", "1")
	if err := store.Take(t.Context(), protocol.EtcdSnapshot{ID: "1", Cluster: cluster, Keep: 1}); err != nil {
		t.Fatal(err)
	}
	_, facts, err := store.Verify(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second time over data that was restored
		after := fmt.Sprintf("after-%d", i)
		member.Put(t, after, "1")
		op := state.Operation{}
		op.Type, op.ID = protocol.OperationEtcdRestore, fmt.Sprintf("claim.%d", i)
		op.EtcdRestore = &protocol.EtcdRestore{SnapshotID: "1", SHA256: facts.SHA256, Cluster: cluster, ReplaceHealthy: true}
		runner := &etcdrestore.Runner{
			Documents: documents, Checkpoints: filepath.Join(folder, "checkpoints"), Root: member.Root, System: durable.OS{}, Snapshots: store,
			ControlPlane: realControlPlane{t, member, func() { member.Start(t) }}, Commands: tools{}, Free: func(string) (int64, error) { return 1 << 40, nil },
			Plan: func() state.Plan { return state.Plan{Operation: &op.Operation} }, Clock: &clock{now: time.Now()}, Log: log,
		}
		result, err := runner.Run(t.Context(), op, func(string) {})
		if err != nil || result.State != protocol.StateSucceeded {
			t.Fatalf("got %+v, %v", result, err)
		}
		if !member.Has(t, "before") || member.Has(t, after) {
			t.Errorf("the key of before is there: %t, that of after: %t", member.Has(t, "before"), member.Has(t, after))
		}
		// Clients that have seen later revisions than the snapshot has must notice.
		if revision, err := etcd.Revision(t.Context(), member.Member(t).Options); err != nil || revision < facts.Revision+1e9 {
			t.Errorf("the revision is %d, %v", revision, err)
		}
	}
}
