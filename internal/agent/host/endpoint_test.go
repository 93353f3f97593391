package host_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

// virtual is what was done on a box for an endpoint: a VIP and a static Pod.
type virtual struct {
	box  *box
	left []string
	// stuck is why it can't be taken back.
	stuck error
	// killed are the containers that were dead when it was taken back first.
	killed  []int
	removed int
}

func (v *virtual) Remove(context.Context) error {
	if v.removed == 0 {
		v.killed = slices.Clone(v.box.killed)
	}
	v.removed++
	if v.stuck == nil {
		v.left = nil
	}
	return v.stuck
}

func (v *virtual) Leftovers(context.Context) ([]string, error) {
	if v.box == nil {
		return nil, v.stuck
	}
	return v.left, nil
}

func endpointOn(t *testing.T) (*virtual, *box, *host.Linux) {
	t.Helper()
	b, _ := node(t)
	v := &virtual{box: b, left: []string{"address 192.0.2.100/32 on eth0", "file /etc/kubernetes/manifests/etcd.yaml"}}
	loaded(b, "kubelet.service")
	b.answers["systemctl stop kubelet.service"] = ""
	return v, b, host.New(host.Options{
		Root: b.root, Commands: b, Clock: b, Kernel: b, Endpoint: v,
		Interfaces: func() ([]host.Interface, error) { return b.interfaces, nil },
	})
}

// A kube-vip that lives puts its address on again, so it is dead before.
func TestResetTakesTheEndpointBack(t *testing.T) {
	v, _, l := endpointOn(t)
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.removed != 1 || !slices.Contains(v.killed, 21) || v.left != nil {
		t.Errorf("removed %d times with %v dead, left %q", v.removed, v.killed, v.left)
	}
	if err := l.Clean(t.Context(), nil); err != nil || v.removed != 2 {
		t.Errorf("removed %d times: %v", v.removed, err)
	}
}

// The reboot takes most of it, so nothing that stays keeps the host up; but a
// host that has something of it after that is not clean.
func TestResetTellsWhatStaysOfTheEndpoint(t *testing.T) {
	v, _, l := endpointOn(t)
	v.stuck = errors.New("ip: command not found")
	if err := l.Stop(t.Context()); err != nil {
		t.Errorf("doesn't reboot: %v", err)
	}
	if err := l.Clean(t.Context(), nil); err == nil || !strings.Contains(err.Error(), v.stuck.Error()) {
		t.Errorf("the reset ended with %v", err)
	}
	found, err := l.Cleanliness(t.Context())
	if err != nil || found.Clean || !slices.Contains(found.Leftovers, "address 192.0.2.100/32 on eth0") {
		t.Errorf("found %+v, %v", found, err)
	}
	v.box = nil
	if _, err := l.Cleanliness(t.Context()); !errors.Is(err, v.stuck) {
		t.Errorf("clean without having looked: %v", err)
	}
}

func TestNamesALeftoverOnce(t *testing.T) {
	_, _, l := endpointOn(t)
	found, err := l.Cleanliness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, one := range found.Leftovers {
		named[one]++
	}
	if named["address 192.0.2.100/32 on eth0"] != 1 || named["file /etc/kubernetes/manifests/etcd.yaml"] != 1 {
		t.Errorf("found %q", found.Leftovers)
	}
}

// An API server may advertise the address of a bridge.
func TestOwnAddresses(t *testing.T) {
	b, l := newBox(t, nil)
	b.interfaces = []host.Interface{nic("br0", "192.0.2.9/24"), nic("eth0", "192.0.2.1/24", "192.0.2.100/32", "fe80::1/64", "2001:db8::1/64")}
	want := []string{"192.0.2.1", "2001:db8::1", "192.0.2.9", "192.0.2.100"}
	if diff := cmp.Diff(want, l.Own()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
