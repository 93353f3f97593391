package linux_test

import (
	"slices"
	"testing"
	"time"
)

const kubeadmReset = "/usr/local/bin/kubeadm reset --force --skip-phases=remove-etcd-member"

// A container runtime creates its socket before it answers requests.
func TestCleanWaitsForContainerRuntime(t *testing.T) {
	const active = "systemctl show --property ActiveState --value containerd.service"
	for _, tt := range []struct {
		name string
		// socket and active are the times at which the socket exists and the unit is
		// active.
		socket, active, want time.Duration
	}{
		{name: "ready", want: 0},
		{name: "starting", active: time.Second, want: time.Second},
		{name: "without a socket at first", socket: 2 * time.Second, want: 2 * time.Second},
		{name: "never ready", active: time.Hour, want: 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, l := newBox(t, map[string]string{"/usr/local/bin/kubeadm": ""})
			loaded(b, "containerd.service")
			b.answers[active] = "activating\n"
			b.onWait = func() {
				if slices.Contains(b.ran, kubeadmReset) {
					t.Error("waited after kubeadm reset")
				}
				if b.waited >= tt.socket && !b.exists("/run/containerd/containerd.sock") {
					b.write("/run/containerd/containerd.sock", "")
				}
				if b.waited >= tt.active {
					b.answers[active] = "active\n"
				}
			}
			b.onWait()
			_ = l.Clean(t.Context(), nil)
			if b.waited != tt.want || !slices.Contains(b.ran, kubeadmReset) {
				t.Errorf("waited %s and ran %q", b.waited, b.ran)
			}
		})
	}
}
