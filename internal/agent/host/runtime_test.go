package host_test

import (
	"slices"
	"testing"
	"time"
)

const kubeadmReset = "/usr/local/bin/kubeadm reset --force --skip-phases=remove-etcd-member"

// A runtime has its socket before it answers there.
func TestCleanAwaitsTheContainerRuntime(t *testing.T) {
	const active = "systemctl show --property ActiveState --value containerd.service"
	for _, tt := range []struct {
		name string
		// socket and active are when there is one, and when the unit is active.
		socket, active, want time.Duration
	}{
		{name: "that is ready", want: 0},
		{name: "that is about to answer", active: time.Second, want: time.Second},
		{name: "whose socket is missing", socket: 2 * time.Second, want: 2 * time.Second},
		{name: "that does not start", active: time.Hour, want: 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, l := newBox(t, map[string]string{"/usr/local/bin/kubeadm": ""})
			loaded(b, "containerd.service")
			b.answers[active] = "activating\n"
			b.passes = func() {
				if slices.Contains(b.ran, kubeadmReset) {
					t.Error("went on waiting")
				}
				if b.waited >= tt.socket && !b.exists("/run/containerd/containerd.sock") {
					b.write("/run/containerd/containerd.sock", "")
				}
				if b.waited >= tt.active {
					b.answers[active] = "active\n"
				}
			}
			b.passes()
			_ = l.Clean(t.Context(), nil)
			if b.waited != tt.want || !slices.Contains(b.ran, kubeadmReset) {
				t.Errorf("waited %s and ran %q", b.waited, b.ran)
			}
		})
	}
}
