package linux_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

// endpointCleaner is an EndpointCleaner with a virtual address and a static Pod.
type endpointCleaner struct {
	// box is nil if Leftovers fails.
	box       *box
	leftovers []string
	// err is the error of Remove.
	err error
	// killed are the processes that had been killed at the first Remove.
	killed []int
	// removals counts the calls of Remove.
	removals int
}

func (v *endpointCleaner) Remove(context.Context) error {
	if v.removals == 0 {
		v.killed = slices.Clone(v.box.killed)
	}
	v.removals++
	if v.err == nil {
		v.leftovers = nil
	}
	return v.err
}

func (v *endpointCleaner) Leftovers(context.Context) ([]string, error) {
	if v.box == nil {
		return nil, v.err
	}
	return v.leftovers, nil
}

// nodeWithEndpoint returns a control-plane node with a virtual address
// and a static Pod.
func nodeWithEndpoint(t *testing.T) (*endpointCleaner, *box, *linux.Platform) {
	t.Helper()
	b, _ := node(t)
	v := &endpointCleaner{box: b, leftovers: []string{"address 192.0.2.100/32 on eth0", "file /etc/kubernetes/manifests/etcd.yaml"}}
	loaded(b, "kubelet.service")
	b.answers["systemctl stop kubelet.service"] = ""
	return v, b, linux.New(linux.Options{
		Root: b.root, Commands: b, Clock: b, Kernel: b, Endpoint: v,
		Interfaces: func() ([]platform.NetworkInterface, error) { return b.interfaces, nil },
	})
}

// A running kube-vip would add its address again, so Stop kills it first.
func TestStopAndCleanRemoveEndpoint(t *testing.T) {
	v, _, l := nodeWithEndpoint(t)
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.removals != 1 || !slices.Contains(v.killed, 21) || v.leftovers != nil {
		t.Errorf("removed %d times after %v were killed, leftovers %q", v.removals, v.killed, v.leftovers)
	}
	if err := l.Clean(t.Context(), nil); err != nil || v.removals != 2 {
		t.Errorf("removed %d times: %v", v.removals, err)
	}
}

// The reboot removes most leftovers of the endpoint, so they do not prevent it. A
// host with leftovers after the reboot is not clean.
func TestLeftoversOfEndpoint(t *testing.T) {
	v, _, l := nodeWithEndpoint(t)
	v.err = errors.New("ip: command not found")
	if err := l.Stop(t.Context()); err != nil {
		t.Errorf("Stop prevents the reboot: %v", err)
	}
	if err := l.Clean(t.Context(), nil); err == nil || !strings.Contains(err.Error(), v.err.Error()) {
		t.Errorf("Clean returned %v", err)
	}
	found, err := l.Cleanliness(t.Context())
	if err != nil || found.Clean || !slices.Contains(found.Leftovers, "address 192.0.2.100/32 on eth0") {
		t.Errorf("got %+v, %v", found, err)
	}
	v.box = nil
	if _, err := l.Cleanliness(t.Context()); !errors.Is(err, v.err) {
		t.Errorf("the leftovers of the endpoint are unknown, but the error is %v", err)
	}
}

func TestListsLeftoverOnce(t *testing.T) {
	_, _, l := nodeWithEndpoint(t)
	found, err := l.Cleanliness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, leftover := range found.Leftovers {
		count[leftover]++
	}
	if count["address 192.0.2.100/32 on eth0"] != 1 || count["file /etc/kubernetes/manifests/etcd.yaml"] != 1 {
		t.Errorf("found %q", found.Leftovers)
	}
}

// An API server may advertise the address of a bridge.
func TestLocalAddresses(t *testing.T) {
	b, l := newBox(t, nil)
	b.interfaces = []platform.NetworkInterface{nic("br0", "192.0.2.9/24"), nic("eth0", "192.0.2.1/24", "192.0.2.100/32", "fe80::1/64", "2001:db8::1/64")}
	want := []string{"192.0.2.1", "2001:db8::1", "192.0.2.9", "192.0.2.100"}
	if diff := cmp.Diff(want, l.LocalAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
