package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// patience bounds the wait for something that will happen at once, also on a busy machine.
const patience = 10 * time.Second

// text is the content of snapshots that are added.
const text = "a snapshot of etcd"

// add adds a snapshot. meanwhile is called when half of it has come.
func (r *rig) add(s *snapshot.Store, id string, meanwhile func()) error {
	r.t.Helper()
	sum := sha256.Sum256([]byte(text))
	facts := protocol.EtcdSnapshotFacts{ID: id, Cluster: want("", 0).Cluster, SizeBytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
	var running sync.WaitGroup
	defer running.Wait()
	return s.Add(r.t.Context(), facts, func(to io.Writer) error {
		half := len(text) / 2
		if _, err := io.WriteString(to, text[:half]); err != nil {
			return err
		}
		done := make(chan struct{})
		running.Go(func() {
			defer close(done)
			meanwhile()
		})
		select {
		case <-done:
		case <-time.After(patience):
			return errors.New("something waits for a snapshot that is added")
		}
		_, err := io.WriteString(to, text[half:])
		return err
	})
}

// Nothing waits for a snapshot that is added slowly, and what it has so far is neither listed nor
// removed as something that an interrupted attempt has left.
func testAddSlowly(r *rig) {
	s := r.store()
	err := r.add(s, "1", func() {
		if err := s.Take(r.t.Context(), want("2", 1)); err != nil {
			r.t.Error(err)
		}
		if list, err := s.List(r.t.Context()); err != nil || len(list) != 1 || list[0].ID != "2" {
			r.t.Errorf("got %+v, %v", list, err)
		}
		if err := r.add(s, "1", func() {}); err == nil {
			r.t.Error("the same snapshot is added twice at once")
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.expectListed("2", "1")
	if got := r.files(); !slices.Equal(got, []string{"1.db", "1.json", "2.db", "2.json"}) {
		r.t.Errorf("got %q", got)
	}
}

// What has not come yet of a snapshot that is added needs space too.
func testAddNeedsSpace(r *rig) {
	r.take("1")
	info, err := os.Stat(r.path("1.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.total = 5 << 20
	s := r.store()
	err = r.add(s, "3", func() {
		r.free = 1<<20 + info.Size() + int64(len(text))/2 - 1
		expectError(r.t, s.Take(r.t.Context(), want("2", 2)), "make room")
		r.free++
		if err := s.Take(r.t.Context(), want("2", 2)); err != nil {
			r.t.Error(err)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.expectListed("3", "2", "1")
}

// A snapshot that the host has taken meanwhile stays.
func testAddTooLate(r *rig) {
	s := r.store()
	err := r.add(s, "1", func() {
		if err := s.Take(r.t.Context(), want("1", 2)); err != nil {
			r.t.Error(err)
		}
	})
	expectError(r.t, err, "this host has another snapshot 1")
	r.expectListed("1")
	if got := r.files(); !slices.Equal(got, []string{"1.db", "1.json"}) {
		r.t.Errorf("got %q", got)
	}
}

// After a power cut at any operation a snapshot that is added counts or does not, and the next attempt
// leaves nothing of the interrupted one.
func testAddPowerCuts(r *rig) {
	for dieAt := 1; ; dieAt++ {
		r.state = r.t.TempDir()
		disk := durabletest.NewDisk(r.t.TempDir(), rand.New(rand.NewPCG(uint64(dieAt), 0)))
		life := &durabletest.Life{Disk: disk, DieAt: dieAt, Die: func() {}}
		r.system = life
		err := r.add(r.store(), "1", func() {})
		disk.CutPower()
		r.system = disk
		got := r.listed()
		if len(got) > 0 && !slices.Equal(got, []string{"1"}) || err == nil && len(got) == 0 {
			r.t.Fatalf("after a power cut at operation %d: %q, %v", dieAt, got, err)
		}
		if err := r.add(r.store(), "1", func() {}); err != nil {
			r.t.Fatal(err)
		}
		if got := r.files(); !slices.Equal(got, []string{"1.db", "1.json"}) {
			r.t.Fatalf("after a power cut at operation %d, and another attempt: %q", dieAt, got)
		}
		if !life.Dead {
			return
		}
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	base := newRig(t)
	for name, test := range map[string]func(*rig){
		"slowly": testAddSlowly, "space": testAddNeedsSpace, "too late": testAddTooLate, "power cuts": testAddPowerCuts,
	} {
		t.Run(name, func(t *testing.T) {
			r := *base
			r.t, r.state = t, t.TempDir()
			test(&r)
		})
	}
}
