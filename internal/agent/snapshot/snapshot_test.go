package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// One member serves all of these, one after the other.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	base := newRig(t)
	for name, test := range map[string]func(*rig){
		"one": testOne, "newest ones": testNewest, "no space": testNoSpace, "no member": testNoMember, "bad requests": testBadRequests,
		"damage": testDamage, "leftovers": testLeftovers, "another cluster": testAnotherCluster, "failure": testFailure, "removed while read": testRemovedWhileRead, "power cuts": testPowerCuts,
	} {
		t.Run(name, func(t *testing.T) {
			r := *base
			r.t, r.state = t, t.TempDir()
			test(&r)
		})
	}
}

func testOne(r *rig) {
	s := r.store()
	for range 2 { // the second time there is nothing to do
		if err := s.Take(r.t.Context(), want("20261124T120000Z", 1)); err != nil {
			r.t.Fatal(err)
		}
	}
	data, err := os.ReadFile(r.path("20261124T120000Z.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	list, err := r.store().List(r.t.Context())
	if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].EtcdVersion, "3.") || list[0].Revision < 2 {
		r.t.Fatalf("got %+v, %v", list, err)
	}
	wanted := protocol.EtcdSnapshotFacts{
		ID: "20261124T120000Z", Cluster: want("", 0).Cluster, CompletedAt: time.Date(2026, 11, 24, 12, 0, 1, 0, time.UTC),
		Revision: list[0].Revision, SizeBytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:]),
		KubernetesVersion: "v1.36.3", EtcdVersion: list[0].EtcdVersion,
	}
	if diff := cmp.Diff(wanted, list[0]); diff != "" {
		r.t.Error(diff)
	}
}

// A snapshot has all Secrets of the cluster.
func TestThreat66_OnlyRootReads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.take("1")
	folder := filepath.Dir(r.path("1.db"))
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(folder): 0o700, folder: 0o700, filepath.Join(folder, "1.db"): 0o600, filepath.Join(folder, "1.json"): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: got %v, %v", path, info.Mode(), err)
		}
	}
}

func testNewest(r *rig) {
	r.take("1", "2", "3")
	r.expectListed("3", "2")
	r.take("0")
	if got := r.files(); !slices.Equal(got, []string{"0.db", "0.json", "3.db", "3.json"}) {
		r.t.Errorf("got %q: the one that was asked for stays, whatever its ID is", got)
	}
}

// At least a fifth of the disk stays free, unless the snapshot is a small part of what is free.
func testNoSpace(r *rig) {
	r.take("1")
	before := r.files()
	r.total, r.free = 5<<20, 1<<20
	expectError(r.t, r.store().Take(r.t.Context(), want("2", 2)), "the disk lacks space")
	info, err := os.Stat(r.path("1.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	if r.free = 1<<20 + info.Size(); r.store().Take(r.t.Context(), want("2", 2)) != nil {
		r.t.Error("there was enough space")
	}
	r.expectListed("2", "1")
	r.total, r.free = 1<<40, 110*info.Size()
	r.take("3")
	r.expectListed("3", "2")
	if len(before) != 2 {
		r.t.Errorf("got %q", before)
	}
}

func testNoMember(r *rig) {
	r.Root = r.t.TempDir()
	expectError(r.t, r.store().Take(r.t.Context(), want("1", 2)), "no member of etcd that kubeadm has set up")
	r.expectListed()
}

func testBadRequests(r *rig) {
	for _, bad := range []protocol.EtcdSnapshot{
		want("", 1), want("../1", 1), want("a/b", 1), want(".hidden", 1), want(strings.Repeat("1", 64), 1), want("1", 0), want("1", 17),
	} {
		expectError(r.t, r.store().Take(r.t.Context(), bad), "is no")
	}
	if got := r.files(); len(got) > 0 {
		r.t.Errorf("got %q", got)
	}
}

// A damaged snapshot is not listed, is taken again if it is asked for, and goes with the next
// good one.
func testDamage(r *rig) {
	r.take("1", "2")
	r.damage("2.db")
	r.expectListed("1")
	r.take("2")
	r.expectListed("2", "1")
	if err := os.Truncate(r.path("1.db"), 100); err != nil {
		r.t.Fatal(err)
	}
	r.expectListed("2")
	if err := os.WriteFile(r.path("2.json"), []byte("{"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.expectListed()
	r.take("3")
	if got := r.files(); !slices.Equal(got, []string{"3.db", "3.json"}) {
		r.t.Errorf("got %q", got)
	}
}

// A restore reads the whole file again: one that was changed without a trace in its size and time
// is still listed.
func TestThreat71_ChangedSinceVerified(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.take("1")
	store := r.store()
	if _, facts, err := store.Verify(t.Context(), "1"); err != nil || facts.ID != "1" {
		t.Fatalf("got %+v, %v", facts, err)
	}
	before, err := os.Stat(r.path("1.db"))
	if err != nil {
		t.Fatal(err)
	}
	r.damage("1.db")
	if err := os.Chtimes(r.path("1.db"), before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	_, _, err = store.Verify(t.Context(), "1")
	expectError(t, err, "its SHA-256 is")
	for _, id := range []string{"2", "../1"} {
		if _, _, err := store.Verify(t.Context(), id); err == nil {
			t.Errorf("the snapshot %q was opened", id)
		}
	}
}

// An upload that has begun goes on when its snapshot is removed, also if that is a large one.
func testRemovedWhileRead(r *rig) {
	s := r.store()
	content := make([]byte, 17<<20)
	sum := sha256.Sum256(content)
	facts := protocol.EtcdSnapshotFacts{ID: "1", Cluster: want("", 0).Cluster, SizeBytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	err := s.Add(r.t.Context(), facts, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	_, file, err := s.Open(r.t.Context(), "1")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := s.Take(r.t.Context(), want("2", 1)); err != nil {
		r.t.Fatal(err)
	}
	r.expectListed("2")
	if n, err := io.Copy(io.Discard, file); err != nil || n != int64(len(content)) {
		r.t.Errorf("got %d bytes, %v", n, err)
	}
}

// What an interrupted attempt has left goes before the next one, which needs the space.
func testLeftovers(r *rig) {
	r.take("1")
	folder := filepath.Dir(r.path("1.db"))
	for _, name := range []string{durable.Temporary(filepath.Join(folder, "2.db")), filepath.Join(folder, "2.db")} {
		if err := os.WriteFile(name, []byte("part"), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.expectListed("1")
	r.take("3")
	if got := r.files(); !slices.Equal(got, []string{"1.db", "1.json", "3.db", "3.json"}) {
		r.t.Errorf("got %q", got)
	}
}

// Snapshots of a former cluster of the host are neither listed nor removed.
func testAnotherCluster(r *rig) {
	r.take("1", "2")
	former := filepath.Dir(r.path("1.db"))
	if err := os.Rename(former, filepath.Join(filepath.Dir(former), "0123456789abcdef")); err != nil {
		r.t.Fatal(err)
	}
	r.expectListed()
	r.take("3", "4", "5")
	r.expectListed("5", "4")
	if got := r.files(); !slices.Equal(got, []string{"1.db", "1.json", "2.db", "2.json", "4.db", "4.json", "5.db", "5.json"}) &&
		!slices.Equal(got, []string{"4.db", "4.json", "5.db", "5.json", "1.db", "1.json", "2.db", "2.json"}) {
		r.t.Errorf("got %q", got)
	}
	// A host that has lost the files of Kubernetes does not know which snapshots are of its cluster.
	authority := filepath.Join(r.Root, "/etc/kubernetes/pki/etcd/ca.crt")
	if err := os.Rename(authority, authority+".lost"); err != nil {
		r.t.Fatal(err)
	}
	r.expectListed("5", "4", "2", "1")
	if err := os.Rename(authority+".lost", authority); err != nil {
		r.t.Fatal(err)
	}
}

// A failure removes nothing.
func testFailure(r *rig) {
	r.take("1", "2")
	disk := durabletest.NewDisk(r.t.TempDir(), rand.New(rand.NewPCG(1, 0)))
	disk.Full = func(string) bool { return true }
	r.system = disk
	expectError(r.t, r.store().Take(r.t.Context(), want("3", 1)), durabletest.ErrFull.Error())
	r.expectListed("2", "1")
}

// After a power cut at any operation the former snapshots or the new ones are listed, and the
// next attempt succeeds.
func testPowerCuts(r *rig) {
	for dieAt := 1; ; dieAt++ {
		r.state = r.t.TempDir()
		disk := durabletest.NewDisk(r.t.TempDir(), rand.New(rand.NewPCG(uint64(dieAt), 0)))
		r.system = disk
		r.take("1", "2")
		life := &durabletest.Life{Disk: disk, DieAt: dieAt, Die: func() {}}
		r.system = life
		err := r.store().Take(r.t.Context(), want("3", 2))
		disk.CutPower()
		r.system = disk
		got := r.listed()
		if old, half := slices.Equal(got, []string{"2", "1"}), slices.Equal(got, []string{"3", "2", "1"}); !old && !half && !slices.Equal(got, []string{"3", "2"}) {
			r.t.Fatalf("after a power cut at operation %d: %q", dieAt, got)
		}
		if err == nil && !slices.Contains(got, "3") {
			r.t.Fatalf("after a success, and a power cut: %q", got)
		}
		r.take("3")
		if got := r.files(); !slices.Equal(got, []string{"2.db", "2.json", "3.db", "3.json"}) {
			r.t.Fatalf("after a power cut at operation %d, and another attempt: %q", dieAt, got)
		}
		if !life.Dead {
			return
		}
	}
}
