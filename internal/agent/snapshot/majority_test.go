package snapshot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// A member without a majority still streams its data, which may be old. That is no snapshot, and the former ones stay.
func TestMemberWithoutMajority(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.take("1")
	r.LoseMajority(t)
	if err := r.store().Take(t.Context(), want("2", 1)); err == nil || !strings.Contains(err.Error(), "no majority of the members has answered") {
		t.Errorf("got error %v", err)
	}
	r.expectListed("1")
}

// transfer is a system on which the time passes while a snapshot comes from etcd.
type transfer struct {
	durable.OS
	passed *time.Duration
}

func (s transfer) Create(path string) (durable.File, error) {
	*s.passed += 3 * time.Minute
	return s.OS.Create(path)
}

// The time of a snapshot is that before the transfer, which may take minutes: what is written meanwhile is not in it.
func TestTimeOfSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var passed time.Duration
	r.system = transfer{passed: &passed}
	s := r.store()
	began := s.Now().Truncate(time.Second)
	now := s.Now
	s.Now = func() time.Time { return now().Add(passed) }
	if err := s.Take(t.Context(), want("1", 1)); err != nil {
		t.Fatal(err)
	}
	list, err := r.store().List(t.Context())
	if err != nil || passed == 0 || !list[0].CompletedAt.Equal(began) {
		t.Errorf("got %+v, %v, and the transfer began at %s and ended %s later", list, err, began, passed)
	}
}
