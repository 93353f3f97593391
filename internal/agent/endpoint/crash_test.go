package endpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The agent dies or the host loses power at any operation, and again while the
// agent recovers. The next call must apply the kubeconfigs, the file and the
// reject rule completely, and a reset must remove everything.
func TestCrashAtAnyOperation(t *testing.T) {
	t.Parallel()
	for kind := range 4 {
		after, power := kind&1 != 0, kind&2 != 0
		isWithdrawn := after != power
		operations := 0
		for at := 1; crashes(t, at, after, power, isWithdrawn); at++ {
			operations = at
		}
		if operations < 30 {
			t.Errorf("there are only %d operations to die at", operations)
		}
	}
}

// crashes reports whether there was an operation numbered at.
func crashes(t *testing.T, at int, after, power, isWithdrawn bool) bool {
	t.Helper()
	b := newBox(t)
	b.controlPlane(former, "10.0.0.7:6443")
	e := to("10.0.0.2", former, "10.0.0.7:6443")
	e.Reject = "10.0.0.7:6443"
	b.disk.after, b.disk.power = after, power
	run := func(dieAt int) (died bool) {
		b.disk.startProcess(dieAt)
		if a := b.restartAgent(); a != nil {
			_, _ = a.Apply(t.Context(), e, manifest("a"))
		}
		if b.disk.dead && power {
			b.boot()
		}
		return b.disk.dead
	}
	died := run(at)
	if died && isWithdrawn {
		b.withdraw(at)
	}
	if died {
		run(at/2 + 1)
		b.disk.startProcess(0)
		report, err := b.restartAgent().Apply(t.Context(), e, manifest("a"))
		if err != nil || report != (protocol.EndpointReport{Kubeconfigs: current, Rejects: e.Reject}) {
			t.Errorf("died at %d: %+v: %v", at, report, err)
		}
	}
	if b.kubeletConfig != kubeconfig(current) || b.kubeconfigsOf(current) != "admin kubelet super-admin" || b.read(pod) != "a" || b.filter == "" {
		t.Errorf("died at %d (after: %t, power: %t): updated %s, the kubelet runs with\n%s", at, after, power, b.kubeconfigsOf(current), b.kubeletConfig)
	}
	crashDuringReset(t, b, at)
	return died
}

// withdraw applies a plan without an endpoint and files.
func (b *box) withdraw(at int) {
	b.t.Helper()
	b.disk.startProcess(0)
	if _, err := b.restartAgent().Apply(b.t.Context(), nil, []protocol.File{}); err != nil {
		b.t.Errorf("withdrawing after a death at %d: %v", at, err)
	}
	pods, err := os.ReadDir(filepath.Join(b.root, filepath.Dir(pod)))
	if err != nil || len(pods) != 1 || b.filter != "" {
		b.t.Errorf("withdrawing after a death at %d leaves %v, %s: %v", at, pods, b.filter, err)
	}
}

func crashDuringReset(t *testing.T, b *box, at int) {
	t.Helper()
	b.disk.startProcess(at)
	if a := b.restartAgent(); a != nil {
		_ = a.Remove(t.Context())
	}
	b.disk.startProcess(0)
	a := b.restartAgent()
	if err := a.Remove(t.Context()); err != nil {
		t.Errorf("resetting after a death at %d: %v", at, err)
	}
	if left, err := a.Leftovers(t.Context()); err != nil || len(left) != 0 || b.exists(pod) || b.filter != "" {
		t.Errorf("resetting after a death at %d leaves %v, %s: %v", at, left, b.filter, err)
	}
}

// boot imitates the boot after a power cut: the kubelet reads its kubeconfig,
// and the packet filter is empty.
func (b *box) boot() {
	b.kubeletConfig, b.filter = b.read("/etc/kubernetes/kubelet.conf"), ""
}
