package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

func TestApply(t *testing.T) {
	b := newBox(t)
	if got, err := b.endpoint().Keep(t.Context()); got != "" || err != nil || b.leftovers() != "" {
		t.Errorf("without an endpoint: %q, %v, left %s", got, err, b.leftovers())
	}
	b.apply("10.0.0.2:6443", "[FD00:0::3]:6443")
	if got := b.hosts(); got != first+line {
		t.Errorf("/etc/hosts is\n%s", got)
	}
	want := forwarder.Config{Host: name, Port: 16443, Backends: []string{"10.0.0.2:6443", "[fd00::3]:6443"}}
	if got := b.last(); got.Host != want.Host || got.Port != want.Port || !slices.Equal(got.Backends, want.Backends) {
		t.Errorf("forwards %+v", got)
	}
	if got := b.leftovers(); got != "name "+name+" in /etc/hosts, process elemental-agent endpoint" {
		t.Errorf("left %s", got)
	}
	before, err := os.Stat(filepath.Join(b.root, "/etc/hosts"))
	if err != nil {
		t.Fatal(err)
	}
	b.apply("10.0.0.2:6443")
	if after, err := os.Stat(filepath.Join(b.root, "/etc/hosts")); err != nil || !os.SameFile(before, after) {
		t.Error("wrote /etc/hosts again")
	}
}

// After a restart of the host, nothing is needed but the record, until a reset removes it.
func TestKeepUntilRemoved(t *testing.T) {
	b := newBox(t)
	b.apply("10.0.0.2:6443")
	b.write("/etc/hosts", first)
	b.running = false
	if got, err := b.endpoint().Keep(t.Context()); got != served || err != nil || b.hosts() != first+line || !b.Running() {
		t.Errorf("kept %q, %v\n%s", got, err, b.hosts())
	}
	if got := b.last(); !slices.Equal(got.Backends, []string{"10.0.0.2:6443"}) {
		t.Errorf("forwards %+v", got)
	}
	for range 2 {
		if err := b.endpoint().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.hosts() != first || b.Running() || b.leftovers() != "" {
			t.Errorf("left %s\n%s", b.leftovers(), b.hosts())
		}
	}
	if got, err := b.endpoint().Keep(t.Context()); got != "" || err != nil || b.Running() {
		t.Errorf("kept %q, %v", got, err)
	}
}

func TestHostsFile(t *testing.T) {
	for what, test := range map[string]struct{ before, after string }{
		"empty":                         {"", line},
		"without an end of line":        {"127.0.0.1 localhost", "127.0.0.1 localhost\n" + line},
		"of a former cluster":           {strings.Replace(line, name, "other.example", 1) + first, first + line},
		"with our line twice":           {line + first + line, first + line},
		"with our line at another host": {strings.Replace(line, "127.0.0.1", "10.0.0.9", 1) + first, first + line},
		"with other people's comments":  {"# elemental-agent\n10.0.0.9 x # " + name + "\n", "# elemental-agent\n10.0.0.9 x # " + name + "\n" + line},
		"with the same mapping":         {"127.0.0.1 " + name + "\n", "127.0.0.1 " + name + "\n" + line},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBox(t)
			b.write("/etc/hosts", test.before)
			b.apply()
			if got := b.hosts(); got != test.after {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

// Names are the same in any case, but the report has the plan's.
func TestCapitals(t *testing.T) {
	b := newBox(t)
	e := endpoint()
	e.Host = "Shop.example.com"
	if got, err := b.endpoint().Apply(t.Context(), e); got != "Shop.example.com:16443" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestModeOfTheHostsFileStays(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(b.root, "/etc/hosts")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	b.apply()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

// A file that is mounted cannot be replaced.
func TestMountedHostsFile(t *testing.T) {
	b := newBox(t)
	b.write("/proc/self/mountinfo", "1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:1 /x /etc/hosts rw - ext4 /dev/sda rw\n")
	before, err := os.Stat(filepath.Join(b.root, "/etc/hosts"))
	if err != nil {
		t.Fatal(err)
	}
	b.apply()
	after, err := os.Stat(filepath.Join(b.root, "/etc/hosts"))
	if err != nil || !os.SameFile(before, after) || b.hosts() != first+line {
		t.Errorf("%v\n%s", err, b.hosts())
	}
}

// What cannot be done is said, damages nothing, and does not keep the forwarder from its
// work.
func TestHostsFileThatCannotBeChanged(t *testing.T) {
	for what, test := range map[string]struct {
		prepare func(b *box)
		says    string
	}{
		"the name is mapped": {func(b *box) { b.write("/etc/hosts", first+"10.0.0.9 x "+strings.ToUpper(name)+"\n") }, "10.0.0.9"},
		"a link": {func(b *box) {
			b.write("/elsewhere", first)
			path := filepath.Join(b.root, "/etc/hosts")
			if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(b.root, "/elsewhere"), path)); err != nil {
				b.t.Fatal(err)
			}
		}, "link"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBox(t)
			test.prepare(b)
			before := b.hosts()
			got, err := b.endpoint().Apply(t.Context(), endpoint())
			if got != "" || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, %v", got, err)
			}
			if b.hosts() != before || !b.Running() {
				t.Errorf("running %v\n%s", b.Running(), b.hosts())
			}
		})
	}
}

func TestForwarderThatDoesNotStart(t *testing.T) {
	b := newBox(t)
	b.broken = errors.New("127.0.0.1:16443 is taken by nginx")
	if got, err := b.endpoint().Apply(t.Context(), endpoint()); got != "" || !errors.Is(err, b.broken) {
		t.Errorf("got %q, %v", got, err)
	}
	// A reset that cannot end it says so, and what is there.
	b.running = true
	if err := b.endpoint().Remove(t.Context()); !errors.Is(err, b.broken) {
		t.Errorf("got %v", err)
	}
	b.running = true
	if got := b.leftovers(); got != "process elemental-agent endpoint" {
		t.Errorf("left %s", got)
	}
}

// A plan maps one DNS name to the loopback address, and nothing else.
func TestThreat58_OtherLines(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]protocol.Endpoint{
		"two lines":          {Host: name + "\n10.0.0.9 registry.example.com"},
		"two names":          {Host: name + " registry.example.com"},
		"a tab":              {Host: name + "\tregistry.example.com"},
		"a comment":          {Host: name + "#"},
		"an address":         {Host: "10.0.0.9"},
		"an IPv6 address":    {Host: "fd00::9"},
		"a single label":     {Host: "localhost"},
		"a local name":       {Host: "x.LocalHost"},
		"an empty label":     {Host: "shop..example.com"},
		"too long":           {Host: strings.Repeat("x.", 127) + "xx"},
		"nothing":            {Host: ""},
		"no port":            {Host: name, Port: -1},
		"too large a port":   {Host: name, Port: 65536},
		"itself":             {Host: name, Local: &protocol.LocalEndpoint{Backends: []string{"127.0.0.1:16443"}}},
		"a wildcard":         {Host: name, Local: &protocol.LocalEndpoint{Backends: []string{"0.0.0.0:6443"}}},
		"a name as backend":  {Host: name, Local: &protocol.LocalEndpoint{Backends: []string{"example.com:6443"}}},
		"a backend's port 0": {Host: name, Local: &protocol.LocalEndpoint{Backends: []string{"10.0.0.2:0"}}},
		"a zone":             {Host: name, Local: &protocol.LocalEndpoint{Backends: []string{"[fe80::1%eth0]:6443"}}},
		"too many backends":  {Host: name, Local: &protocol.LocalEndpoint{Backends: slices.Repeat([]string{"10.0.0.2:6443"}, protocol.MaxBackends+1)}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if e.Port == 0 {
				e.Port = 16443
			}
			if e.Local == nil {
				e.Local = &protocol.LocalEndpoint{}
			}
			b := newBox(t)
			got, err := b.endpoint().Apply(t.Context(), e)
			if err == nil || got != "" || b.hosts() != first || b.Running() || b.leftovers() != "" {
				t.Errorf("got %q, %v, left %s\n%s", got, err, b.leftovers(), b.hosts())
			}
		})
	}
}

// running is an Endpoint that runs.
func (b *box) run() (changes <-chan struct{}) {
	ctx, cancel := context.WithCancel(b.t.Context())
	noticed, over := make(chan struct{}, 100), make(chan struct{})
	k := b.endpoint()
	go func() {
		defer close(over)
		k.Run(ctx, func() { noticed <- struct{}{} })
	}()
	b.t.Cleanup(func() {
		cancel()
		<-over
	})
	return noticed
}

// await waits for a condition that becomes true without the clock.
func (b *box) await(what string, condition func() bool) {
	b.t.Helper()
	limit := time.After(time.Minute)
	for !condition() {
		select {
		case <-limit:
			b.t.Fatalf("timed out waiting until %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// shorten changes a file in place, by one call: a check in between would otherwise see a file that
// is half written.
func (b *box) shorten(path string, length int) {
	b.t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(file.Truncate(int64(length)), file.Close()); err != nil {
		b.t.Fatal(err)
	}
}

func TestKeepsTheLineAndTheForwarder(t *testing.T) {
	b := newBox(t)
	b.apply()
	changes := b.run()
	<-changes
	path := filepath.Join(b.root, "/etc/hosts")
	for range 2 {
		b.write("/etc/hosts.new", first)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		b.await("the line is in the new file", func() bool { return b.hosts() == first+line })
		b.shorten(path, len(first))
		b.await("the line is back", func() bool { return b.hosts() == first+line })
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		b.await("the file is back", func() bool { return b.hosts() == line })
	}
	b.kill <- struct{}{}
	b.await("the forwarder is back", b.Running)
	// What is not noticed is found in the end.
	_ = b.Stop(t.Context())
	b.ticks <- struct{}{}
	b.await("the forwarder is back", b.Running)
	// The manager hears of a failure.
	for len(changes) > 0 {
		<-changes
	}
	b.mu.Lock()
	b.broken = errors.New("taken")
	b.mu.Unlock()
	select {
	case b.kill <- struct{}{}:
		<-changes
	case <-changes: // an event of /etc/hosts was late, and its check has found the failure
	}
	b.mu.Lock()
	b.broken = nil
	b.mu.Unlock()
	b.ticks <- struct{}{}
	<-changes
}

func TestTargetsOfTheTunnel(t *testing.T) {
	b := newBox(t)
	k := b.endpoint()
	dial := func(target string) error {
		b.dialled = ""
		_, err := k.DialTarget(t.Context(), target)
		return err
	}
	if err := dial(protocol.TargetAPIServer); err == nil || b.dialled != "" {
		t.Errorf("a host without anything: %v, dialled %q", err, b.dialled)
	}
	b.apply("10.0.0.2:6443")
	if err := dial(protocol.TargetAPIServer); err == nil || b.dialled != "forwarder 127.0.0.1:16443" {
		t.Errorf("a worker: %v, dialled %q", err, b.dialled)
	}
	b.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{command: [--advertise-address=10.0.0.7, --secure-port=6444]}]}")
	if err := dial(protocol.TargetAPIServer); err == nil || b.dialled != "10.0.0.7:6444" {
		t.Errorf("a control plane: %v, dialled %q", err, b.dialled)
	}
}

// The manager reaches nothing else through a tunnel.
func TestThreat11_OtherTargets(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"kubelet", "10.0.0.9:22", "127.0.0.1:22", "localhost", ""} {
		b := newBox(t)
		b.apply("10.0.0.2:6443")
		if _, err := b.endpoint().DialTarget(t.Context(), target); !errors.Is(err, tunnel.ErrForbidden) || b.dialled != "" {
			t.Errorf("%q: %v, dialled %q", target, err, b.dialled)
		}
	}
}
