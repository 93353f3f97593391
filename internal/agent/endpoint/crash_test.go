package endpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Whatever kills the agent or the power, at whichever operation, and once more
// while it recovers: the next pass ends with the kubelet at the endpoint, with
// the file and the rejection, and a reset with nothing.
func TestDiesAnywhere(t *testing.T) {
	t.Parallel()
	for kind := range 4 {
		after, power := kind&1 != 0, kind&2 != 0
		withdrawn := after != power
		operations := 0
		for at := 1; dies(t, at, after, power, withdrawn); at++ {
			operations = at
		}
		if operations < 30 {
			t.Errorf("there are no more than %d operations to die at", operations)
		}
	}
}

// dies reports whether there was an operation numbered at.
func dies(t *testing.T, at int, after, power, withdrawn bool) bool {
	t.Helper()
	b := newBox(t)
	b.controlPlane(former, "10.0.0.7:6443")
	e := to("10.0.0.2", former, "10.0.0.7:6443")
	e.Reject = "10.0.0.7:6443"
	b.disk.after, b.disk.power = after, power
	live := func(dieAt int) (died bool) {
		b.disk.live(dieAt)
		if k := b.restarted(); k != nil {
			_, _ = k.Apply(t.Context(), e, manifest("a"))
		}
		if b.disk.dead && power {
			b.boot()
		}
		return b.disk.dead
	}
	died := live(at)
	if died && withdrawn {
		b.withdraw(at)
	}
	if died {
		live(at/2 + 1)
		b.disk.live(0)
		report, err := b.restarted().Apply(t.Context(), e, manifest("a"))
		if err != nil || report != (protocol.EndpointReport{Kubeconfigs: current, Rejects: e.Reject}) {
			t.Errorf("died at %d: %+v: %v", at, report, err)
		}
	}
	if b.runs != kubeconfig(current) || b.servers(current) != "admin kubelet super-admin" || b.read(pod) != "a" || b.filter == "" {
		t.Errorf("died at %d (after: %t, power: %t): %s follow, the kubelet runs with\n%s", at, after, power, b.servers(current), b.runs)
	}
	resetDies(t, b, at)
	return died
}

// withdraw has the manager want nothing any more of what was begun.
func (b *box) withdraw(at int) {
	b.t.Helper()
	b.disk.live(0)
	if _, err := b.restarted().Apply(b.t.Context(), nil, []protocol.File{}); err != nil {
		b.t.Errorf("withdrawing after a death at %d: %v", at, err)
	}
	pods, err := os.ReadDir(filepath.Join(b.root, filepath.Dir(pod)))
	if err != nil || len(pods) != 1 || b.filter != "" {
		b.t.Errorf("withdrawing after a death at %d leaves %v, %s: %v", at, pods, b.filter, err)
	}
}

func resetDies(t *testing.T, b *box, at int) {
	t.Helper()
	b.disk.live(at)
	if k := b.restarted(); k != nil {
		_ = k.Remove(t.Context())
	}
	b.disk.live(0)
	k := b.restarted()
	if err := k.Remove(t.Context()); err != nil {
		t.Errorf("resetting after a death at %d: %v", at, err)
	}
	if left, err := k.Leftovers(t.Context()); err != nil || len(left) != 0 || b.exists(pod) || b.filter != "" {
		t.Errorf("resetting after a death at %d leaves %v, %s: %v", at, left, b.filter, err)
	}
}

// boot is what a boot after a power cut does: the kubelet reads what it finds,
// and the packet filter is empty.
func (b *box) boot() {
	b.runs, b.filter = b.read("/etc/kubernetes/kubelet.conf"), ""
}
