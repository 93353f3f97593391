package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fakeUploader uploads nothing.
type fakeUploader struct {
	mu sync.Mutex
	// attempt is called by Upload; nil succeeds.
	attempt  func(ctx context.Context) error
	attempts []string
}

func (u *fakeUploader) Upload(ctx context.Context, want protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error) {
	u.mu.Lock()
	u.attempts = append(u.attempts, want.ID)
	attempt := u.attempt
	u.mu.Unlock()
	if attempt != nil {
		if err := attempt(ctx); err != nil {
			return protocol.EtcdSnapshotObject{}, err
		}
	}
	return objectOf(want.ID), nil
}

func objectOf(id string) protocol.EtcdSnapshotObject {
	return protocol.EtcdSnapshotObject{ID: id, Object: "folder/" + id, SizeBytes: 1}
}

func (u *fakeUploader) set(attempt func(ctx context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempt = attempt
}

func withUploader(r *rig) *fakeUploader {
	u := &fakeUploader{}
	r.with = func(o *agent.Options) { o.Upload = u.Upload }
	return u
}

func desiredUpload(id string) protocol.Desired {
	return protocol.Desired{Hostname: "host", EtcdSnapshotUpload: &protocol.EtcdSnapshotUpload{ID: id, Recipients: []string{"age1x"}}}
}

// reportedUpload is a condition: the manager knows of this upload, blank for none, and of
// this failure.
func reportedUpload(id string, failure *protocol.EtcdSnapshotUploadFailure) func(*manager) bool {
	want := protocol.EtcdSnapshotUploadReport{Failure: failure}
	if id != "" {
		want.Last = new(objectOf(id))
	}
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if report.EtcdSnapshotUpload != nil {
				return cmp.Equal(*report.EtcdSnapshotUpload, want)
			}
		}
		return false
	}
}

// Each snapshot that the plan wants is uploaded once.
func TestUploads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	u := withUploader(r)
	r.manager.want(nil, desiredUpload("1"))
	stop := r.start()
	r.manager.await(t, "the first one is reported", reportedUpload("1", nil))
	r.manager.want(nil, desiredUpload("2"))
	r.manager.await(t, "the second one is reported", reportedUpload("2", nil))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "2"}; !slices.Equal(u.attempts, want) {
		t.Errorf("got %q, not %q", u.attempts, want)
	}
	r.manager.set(func(m *manager) {
		if !slices.Contains(m.enrolled[0].Hello.Capabilities, protocol.CapabilityEtcdSnapshotUpload) {
			t.Errorf("capabilities: %v", m.enrolled[0].Hello.Capabilities)
		}
	})
}

// A failed attempt is reported and repeated, and what was uploaded before stays reported.
func TestUploadFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	u := withUploader(r)
	r.manager.want(nil, desiredUpload("1"))
	r.start()
	r.manager.await(t, "the first one is reported", reportedUpload("1", nil))
	u.set(func(context.Context) error { return errors.New("no route to host") })
	r.manager.want(nil, desiredUpload("2"))
	r.manager.await(t, "the failure is reported", reportedUpload("1", &protocol.EtcdSnapshotUploadFailure{ID: "2", Message: "no route to host"}))
	u.set(nil)
	r.manager.await(t, "it is repeated", reportedUpload("2", nil))
}

// A destination that takes nothing delays no snapshot on the host, and the agent stops.
func TestUploadDelaysNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := &fakeSnapshotter{began: make(chan string, 10)}
	u := &fakeUploader{}
	r.with = func(o *agent.Options) { o.Upload, o.Snapshotter = u.Upload, s }
	u.attempt = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	desired := desiredSnapshot("2")
	desired.EtcdSnapshotUpload = desiredUpload("1").EtcdSnapshotUpload
	r.manager.want(nil, desired)
	stop := r.start()
	r.manager.await(t, "the next one is taken", reportedSnapshots(nil, "2"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
