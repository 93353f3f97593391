package linux_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a host in a directory.
type box struct {
	t          *testing.T
	root       string
	interfaces []platform.NetworkInterface
	// answers are the outputs of programs by command line. Other programs fail.
	answers map[string]string
	ran     []string
	// stdin contains the standard input of programs by command line.
	stdin  map[string]string
	waited time.Duration
	// onWait is called at the end of each Wait.
	onWait func()
	// unmounted are the mount points that were unmounted.
	unmounted []string
	// stuck is a mount point that cannot be unmounted.
	stuck  string
	killed []int
	// name is the host name.
	name string
	// goesDown is true if a reboot works; it ends the next Wait.
	goesDown bool
}

func newBox(t *testing.T, files map[string]string) (*box, *linux.Platform) {
	t.Helper()
	b := &box{t: t, root: t.TempDir(), answers: map[string]string{}, stdin: map[string]string{}}
	b.write("/proc/self/mountinfo", "1 0 0:1 / / rw\n")
	for name, content := range files {
		b.write(name, content)
	}
	return b, linux.New(linux.Options{
		Root: b.root, Commands: b, Clock: b, Kernel: b, Interfaces: func() ([]platform.NetworkInterface, error) { return b.interfaces, nil },
	})
}

func (b *box) write(name, content string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	mode := os.FileMode(0o644)
	if strings.Contains(name, "/bin/") {
		mode = 0o755
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
}

// link creates a symbolic link to a path of the box.
func (b *box) link(name, target string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.root, target), path); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) read(name string) string {
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (b *box) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.root, name))
	return err == nil
}

// Run implements oscommand.Runner.
func (b *box) Run(_ context.Context, stdin string, args ...string) (string, error) {
	line := strings.Join(args, " ")
	b.ran = append(b.ran, line)
	if stdin != "" {
		b.stdin[line] = stdin
	}
	out, ok := b.answers[line]
	if !ok && args[0] == "systemctl" && args[1] == "show" {
		return "not-found\n", nil
	}
	if !ok {
		return "", fmt.Errorf("running %s: %w", line, errors.ErrUnsupported)
	}
	return out, nil
}

func (b *box) Now() time.Time { return time.Unix(0, 0).Add(b.waited) }

func (b *box) Wait(ctx context.Context, d time.Duration) error {
	b.waited += d
	if b.onWait != nil {
		b.onWait()
	}
	if b.goesDown {
		return context.Canceled
	}
	return ctx.Err()
}

func (b *box) SetHostname(name string) error {
	b.name = name
	b.write("/proc/sys/kernel/hostname", name+"\n")
	return nil
}

// Unmount removes the line from mountinfo, as the kernel does.
func (b *box) Unmount(path string) error {
	name := strings.TrimPrefix(path, b.root)
	if name == b.stuck {
		return errors.New("device or resource busy")
	}
	b.unmounted = append(b.unmounted, name)
	var kept strings.Builder
	for line := range strings.Lines(b.read("/proc/self/mountinfo")) {
		if fields := strings.Fields(line); len(fields) < 5 || fields[4] != name {
			kept.WriteString(line)
		}
	}
	b.write("/proc/self/mountinfo", kept.String())
	return nil
}

func (b *box) Kill(pid int) error {
	b.killed = append(b.killed, pid)
	return os.RemoveAll(filepath.Join(b.root, "proc", fmt.Sprint(pid)))
}

// process adds a process to /proc.
func (b *box) process(pid, parent int, name, command string) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	b.write(dir+"comm", name+"\n")
	b.write(dir+"cmdline", strings.ReplaceAll(command, " ", "\x00")+"\x00")
	// The process started one second after the boot.
	b.write(dir+"stat", fmt.Sprintf("%d (%s x)) S %d 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0\n", pid, name, parent))
}

func network(text string) *net.IPNet {
	ip, mask, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: mask.Mask}
}

func nic(name string, addresses ...string) platform.NetworkInterface {
	listed := platform.NetworkInterface{Name: name, MAC: "02:00:00:00:00:01", Up: true}
	for _, address := range addresses {
		listed.Addresses = append(listed.Addresses, network(address))
	}
	return listed
}

func removeAll(b *box, name string) error { return os.RemoveAll(filepath.Join(b.root, name)) }
