package staging_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The power is lost at each operation of a download. The next process completes it.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	data := sample(t, version, 300_000)
	want := pinned(data, version, protocol.SourceManager)
	for _, garbage := range []bool{false, true} {
		cuts := 0
		for ; ; cuts++ {
			r := newRig(t)
			r.manager = whole(data)
			r.disk.left = cuts + 1
			_, _, err := r.start().Stage(t.Context(), want, quiet)
			if err == nil {
				break
			}
			if !errors.Is(err, errPower) {
				t.Fatal(err)
			}
			r.disk.restore(t, garbage)
			if _, _, err := r.start().Stage(t.Context(), want, quiet); err != nil {
				t.Errorf("cut %d, garbage %t: %v", cuts, garbage, err)
			}
			if got := r.names(); len(got) != 1 || got[0] != want.SHA256 {
				t.Errorf("cut %d, garbage %t: the folder has %v", cuts, garbage, got)
			}
		}
		if cuts < 10 {
			t.Errorf("the power was lost at %d operations only", cuts)
		}
	}
}

// A host needs the same memory for a large bundle as for a small one. The test is not
// parallel, so that nothing else allocates meanwhile.
func TestConstantMemory(t *testing.T) {
	const size, allowed = 40 << 20, 16 << 20
	r, data := newRig(t), sample(t, version, size)
	r.manager = whole(data)
	s, want := r.start(), pinned(data, version, protocol.SourceManager)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if _, _, err := s.Stage(t.Context(), want, quiet); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > allowed {
		t.Errorf("allocated %d bytes to stage %d", allocated, size)
	} else {
		t.Logf("allocated %d bytes to stage %d", allocated, size)
	}
}
