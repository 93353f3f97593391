package endpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	pod       = "/etc/kubernetes/manifests/kube-vip.yaml"
	rejecting = "ip daddr 10.0.0.7 tcp dport 6443 reject with tcp reset"
)

func vip() *protocol.Endpoint { return &protocol.Endpoint{Host: "10.0.0.9", Port: 6443, VIP: true} }

func manifest(content string) []protocol.File {
	return []protocol.File{{Path: pod, Mode: 0o600, Content: content}}
}

func TestRejects(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(current)
	e := to("10.0.0.2", "10.0.0.7:6443")
	if b.apply(e, nil); b.filter != "" || len(b.ran) != 0 {
		t.Errorf("ran %v", b.ran)
	}
	e.Reject = "10.0.0.7:6443"
	if report := b.apply(e, nil); report.Rejects != e.Reject || !strings.Contains(b.filter, rejecting) || !strings.Contains(b.filter, "saddr { 10.0.0.7, 127.0.0.1 } accept") {
		t.Errorf("%+v, %s", report, b.filter)
	}
	b.filter = "" // the host rebooted
	if report := b.apply(e, nil); report.Rejects != e.Reject || !strings.Contains(b.filter, rejecting) {
		t.Errorf("%+v, %s", report, b.filter)
	}
	for _, next := range []*protocol.Endpoint{nil, to("10.0.0.2", former)} {
		b.apply(e, nil)
		if report := b.apply(next, nil); report.Rejects != "" || b.filter != "" {
			t.Errorf("%+v, %s", report, b.filter)
		}
	}
}

// A host that is the endpoint must not cut off its cluster.
func TestDoesNotRejectTheEndpoint(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	e := to("2001:db8::7")
	e.Reject = "[2001:DB8:0::7]:6443"
	if report, err := b.applier().Apply(t.Context(), e, nil); err == nil || report.Rejects != "" || !strings.Contains(report.Message, "which is the endpoint") || b.filter != "" {
		t.Errorf("%+v, %s: %v", report, b.filter, err)
	}
}

func TestRejectionThatFails(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	e := to("10.0.0.2", "10.0.0.7:6443")
	e.Reject = "10.0.0.7:6443"
	b.broken["nft"] = errors.New("Operation not permitted")
	if report, err := b.applier().Apply(t.Context(), e, nil); err == nil || report.Rejects != "" || !strings.Contains(report.Message, "Operation not permitted") {
		t.Errorf("%+v: %v", report, err)
	}
	delete(b.broken, "nft")
	b.apply(e, nil)
	b.broken["nft"] = errors.New("Operation not permitted")
	if report, err := b.applier().Apply(t.Context(), nil, nil); err == nil || report.Rejects != e.Reject {
		t.Errorf("%+v: %v", report, err)
	}
	delete(b.broken, "nft")
	if report := b.apply(nil, nil); report.Rejects != "" || b.filter != "" {
		t.Errorf("%+v, %s", report, b.filter)
	}
}

// A host without an API server cannot publish, but everything else is applied.
func TestPublishingThatFails(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	e := to("10.0.0.2", former)
	e.Publish = true
	report, err := b.applier().Apply(t.Context(), e, manifest("a"))
	if err == nil || report.Workload != "" || report.Kubeconfigs != current || !strings.Contains(report.Message, "no API server") || b.read(pod) != "a" {
		t.Errorf("%+v: %v", report, err)
	}
	// A cluster of k3s has none of kubeadm's objects.
	b.write("/var/lib/rancher/k3s/server/token", "")
	if report := b.apply(e, manifest("a")); report.Workload != current {
		t.Errorf("%+v", report)
	}
	e.Publish = false
	if report := b.apply(e, manifest("a")); report.Workload != "" {
		t.Errorf("%+v", report)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for range 2 {
		if err := b.applier().Prepare(t.Context(), vip(), manifest("one")); err != nil || b.read(pod) != "one" {
			t.Fatalf("%q: %v", b.read(pod), err)
		}
	}
	b.apply(vip(), manifest("two"))
	info, err := os.Lstat(filepath.Join(b.root, pod))
	if err != nil || info.Mode() != 0o600 || b.read(pod) != "two" {
		t.Errorf("%q, %v: %v", b.read(pod), info.Mode(), err)
	}
	if err := os.Chmod(filepath.Join(b.root, pod), 0o644); err != nil {
		t.Fatal(err)
	}
	b.write(pod, "edited")
	b.apply(vip(), manifest("two"))
	if info, err = os.Lstat(filepath.Join(b.root, pod)); err != nil || info.Mode() != 0o600 || b.read(pod) != "two" {
		t.Errorf("%q, %v: %v", b.read(pod), info.Mode(), err)
	}
	if b.apply(nil, nil); b.read(pod) != "two" {
		t.Error("nil files removed a file")
	}
	const other = "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml"
	b.write("/etc/kubernetes/manifests/mine.yaml", "")
	b.apply(vip(), []protocol.File{{Path: other, Mode: 0o640, Content: "three"}})
	if b.exists(pod) || b.read(other) != "three" {
		t.Error("the former file exists, or the new one does not")
	}
	b.apply(vip(), []protocol.File{})
	if b.exists(other) || !b.exists("/etc/kubernetes/manifests/mine.yaml") {
		t.Error("only the agent's file must be removed")
	}
}

func TestRejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	good := manifest("good")[0]
	for name, bad := range map[string]protocol.File{
		"elsewhere":       {Path: "/etc/shadow", Mode: 0o600},
		"out of a folder": {Path: "/etc/kubernetes/manifests/../admin.conf", Mode: 0o600},
		"below":           {Path: "/etc/kubernetes/manifests/a/b.yaml", Mode: 0o600},
		"the folder":      {Path: "/etc/kubernetes/manifests", Mode: 0o600},
		"no name":         {Path: "/etc/kubernetes/manifests/", Mode: 0o600},
		"hidden":          {Path: "/etc/kubernetes/manifests/.x.yaml", Mode: 0o600},
		"relative":        {Path: "etc/kubernetes/manifests/x.yaml", Mode: 0o600},
		"kubeadm's own":   {Path: "/etc/kubernetes/manifests/etcd.yaml", Mode: 0o600},
		"set-user-ID":     {Path: "/etc/kubernetes/manifests/x.yaml", Mode: 0o4755},
		"too large":       {Path: "/etc/kubernetes/manifests/x.yaml", Mode: 0o600, Content: strings.Repeat("x", protocol.MaxFileBytes+1)},
		"twice":           good,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.write("/etc/kubernetes/manifests/etcd.yaml", "")
			report, err := b.applier().Apply(t.Context(), nil, []protocol.File{good, bad})
			if err == nil || !strings.Contains(report.Message, bad.Path) {
				t.Errorf("%+v: %v", report, err)
			}
			entries, err := os.ReadDir(filepath.Join(b.root, "/etc/kubernetes/manifests"))
			if err != nil || len(entries) != 2 || b.read(pod) != "good" || b.exists("/etc/shadow") {
				t.Errorf("there are %v: %v", entries, err)
			}
		})
	}
	b := newBox(t)
	if err := b.applier().Prepare(t.Context(), nil, make([]protocol.File, protocol.MaxFiles+1)); err == nil {
		t.Error("no error for too many files")
	}
}

func TestRemovesVIP(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to      *protocol.Endpoint
		files   []protocol.File
		address string
		stays   bool
	}{
		"a host":                             {to("10.0.0.2"), []protocol.File{}, "10.0.0.9/32", false},
		"another VIP":                        {&protocol.Endpoint{Host: "10.0.0.10", Port: 6443, VIP: true}, manifest("b"), "10.0.0.9/32", false},
		"none":                               {nil, []protocol.File{}, "10.0.0.9/32", false},
		"the same":                           {vip(), manifest("a"), "10.0.0.9/32", true},
		"unknown endpoint":                   {nil, nil, "10.0.0.9/32", true},
		"an address in a network":            {to("10.0.0.2"), []protocol.File{}, "10.0.0.9/24", true},
		"another address":                    {to("10.0.0.2"), []protocol.File{}, "10.0.0.8/32", true},
		"an address on loopback, as for BGP": {to("10.0.0.2"), []protocol.File{}, "10.0.0.9/32", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.apply(vip(), manifest("a"))
			nic := "eth0"
			if strings.Contains(name, "loopback") {
				nic = "lo"
			}
			for range 2 { // a kube-vip that is about to end may add it again
				b.nics[nic] = append(slices.Clone(b.nics[nic]), test.address)
				if _, err := b.applier().Apply(t.Context(), test.to, test.files); err != nil {
					t.Fatal(err)
				}
				if got := slices.Contains(b.nics[nic], test.address); got != test.stays {
					t.Errorf("%s has %v", nic, b.nics[nic])
				}
			}
			if _, err := b.applier().Apply(t.Context(), test.to, test.files); err != nil {
				t.Fatal(err)
			}
			b.apply(test.to, test.files)
		})
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	e := vip()
	e.Reject = "10.0.0.7:6443"
	b.apply(e, manifest("a"))
	b.nics["eth0"] = append(b.nics["eth0"], "10.0.0.9/32")
	left, err := b.applier().Leftovers(t.Context())
	want := []string{"address 10.0.0.9 on interface eth0", "file " + pod, "packet filter table " + table}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("leftovers %v: %v", left, err)
	}
	for _, program := range []string{"ip", "nft"} {
		b.broken[program] = errors.New("timed out")
	}
	if err := b.applier().Remove(t.Context()); err == nil || strings.Count(err.Error(), "timed out") != 2 || b.exists(pod) {
		t.Errorf("got %v", err)
	}
	if left, err = b.applier().Leftovers(t.Context()); err != nil || len(left) != 2 {
		t.Errorf("leftovers %v: %v", left, err)
	}
	clear(b.broken)
	for range 2 {
		if err := b.applier().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := b.applier().Leftovers(t.Context()); err != nil || len(left) != 0 || b.filter != "" || len(b.nics["eth0"]) != 2 {
			t.Errorf("leftovers %v: %v", left, err)
		}
	}
	if b.exists("/var/lib/elemental/endpoint.json") || b.restarts != 0 {
		t.Error("the record still exists")
	}
}

// The table is found even if the state directory was lost.
func TestRemoveWithoutRecord(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if err := b.applier().Remove(t.Context()); err != nil || len(b.ran) != 0 {
		t.Errorf("ran %v: %v", b.ran, err)
	}
	b.filter = "table " + table + " { }"
	if left, err := b.applier().Leftovers(t.Context()); err != nil || len(left) != 1 {
		t.Errorf("leftovers %v: %v", left, err)
	}
	if err := b.applier().Remove(t.Context()); err != nil || b.filter != "" {
		t.Errorf("the table is still there: %s: %v", b.filter, err)
	}
}

func TestMessageIsBounded(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	files := make([]protocol.File, protocol.MaxFiles)
	for i := range files {
		files[i].Path = strings.Repeat("ü", 500)
	}
	report, err := b.applier().Apply(t.Context(), nil, files)
	if err == nil || len(report.Message) > protocol.MaxMessageBytes || len(report.Message) < protocol.MaxMessageBytes-8 || !strings.HasSuffix(report.Message, "…") {
		t.Errorf("%d bytes: %v", len(report.Message), err)
	}
}

// A reset removes the redirection of an upgrade that did not end. Nothing else touches it.
func TestRemovesRedirection(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.redirection = "table " + redirect.Name + " { }"
	b.apply(to("10.0.0.1"), nil)
	if left, err := b.applier().Leftovers(t.Context()); err != nil || !slices.Equal(left, []string{"packet filter table " + redirect.Name}) {
		t.Errorf("left %q: %v", left, err)
	}
	for range 2 {
		if err := b.applier().Remove(t.Context()); err != nil || b.redirection != "" {
			t.Errorf("the table is still there: %s: %v", b.redirection, err)
		}
	}
	if left, err := b.applier().Leftovers(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left %q: %v", left, err)
	}
}
