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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
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

// site is a host with a real member of etcd, and what restores it.
type site struct {
	t         *testing.T
	member    etcdmember.Host
	folder    string
	documents state.Files
	store     *snapshot.Store
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, member: etcdmember.New(t), folder: t.TempDir()}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		path := filepath.Join(s.member.Root, staticpods.Path(component))
		if err := os.WriteFile(path, []byte(manifest(component)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.documents, err = state.NewDir(s.folder); err != nil {
		t.Fatal(err)
	}
	s.store = &snapshot.Store{
		Root: s.member.Root, Folder: filepath.Join(s.folder, snapshot.Folder), System: durable.OS{}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Space: func(string) (int64, int64, error) { return 1 << 40, 1 << 40, nil },
	}
	return s
}

// restore restores etcd, which must succeed.
func (s *site) restore(id string, want protocol.EtcdRestore) {
	s.t.Helper()
	op := state.Operation{}
	op.Type, op.ID, op.EtcdRestore = protocol.OperationEtcdRestore, id, &want
	runner := &etcdrestore.Runner{
		Documents: s.documents, Checkpoints: filepath.Join(s.folder, "checkpoints"), Root: s.member.Root, System: durable.OS{}, Snapshots: s.store,
		ControlPlane: realControlPlane{s.t, s.member, func() { s.member.Start(s.t) }}, Commands: tools{}, Free: func(string) (int64, error) { return 1 << 40, nil },
		Plan: func() state.Plan { return state.Plan{Operation: &op.Operation} }, Clock: &clock{now: time.Now()}, Log: slog.New(slog.DiscardHandler),
	}
	result, err := runner.Run(s.t.Context(), op, func(string) {})
	if err != nil || result.State != protocol.StateSucceeded {
		s.t.Fatalf("got %+v, %v", result, err)
	}
}

// With real programs: what was written before the snapshot is there, and nothing else. The
// snapshots that the host has stay usable.
func TestEtcd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cluster := protocol.EtcdCluster{Namespace: "ns", Name: "c"}
	s.member.Put(t, "before", "1")
	if err := s.store.Take(t.Context(), protocol.EtcdSnapshot{ID: "1", Cluster: cluster, Keep: 1}); err != nil {
		t.Fatal(err)
	}
	_, facts, err := s.store.Verify(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second time over data that was restored
		after := fmt.Sprintf("after-%d", i)
		s.member.Put(t, after, "1")
		s.restore(fmt.Sprintf("claim.%d", i), protocol.EtcdRestore{SnapshotID: "1", SHA256: facts.SHA256, Cluster: cluster, ReplaceHealthy: true})
		if !s.member.Has(t, "before") || s.member.Has(t, after) {
			t.Errorf("the key of before is there: %t, that of after: %t", s.member.Has(t, "before"), s.member.Has(t, after))
		}
		// Clients that have seen later revisions than the snapshot has must notice.
		if revision, err := etcd.Revision(t.Context(), s.member.Member(t).Options); err != nil || revision < facts.Revision+1e9 {
			t.Errorf("the revision is %d, %v", revision, err)
		}
	}
}

// With real programs: a member that has lost the majority serves again, with all that was written,
// and takes writes.
func TestEtcdWithoutMajority(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 100 {
		s.member.Put(t, fmt.Sprintf("before-%d", i), "1")
	}
	s.member.LoseMajority(t)
	if err := etcd.Health(t.Context(), s.member.Member(t).Options); err == nil {
		t.Fatal("the member has a majority")
	}
	s.restore("claim.1", protocol.EtcdRestore{OwnData: true, Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}})
	if !s.member.Has(t, "before-0") || !s.member.Has(t, "before-99") {
		t.Error("what was written is lost")
	}
	s.member.Put(t, "after", "1")
}
