package storage

import (
	"context"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// realPrograms runs the programs in /sbin of this machine: the PATH of an ordinary user lacks them.
type realPrograms struct{}

func (realPrograms) Run(ctx context.Context, c host.Command) (string, error) {
	c.Args[0] = filepath.Join("/sbin", c.Args[0])
	return oscommand.System{}.Run(ctx, c.Stdin, c.Args...)
}

// The content is read from the device: neither udev nor a cache knows a file system that
// was made a moment ago.
func TestSignaturesAreReadFromTheDevice(t *testing.T) {
	t.Parallel()
	h := host.New("/", realPrograms{}, nil)
	device := filepath.Join(t.TempDir(), "device")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run("truncate", "--size=16M", device)
	if found, err := signatures(t.Context(), h, device); err != nil || len(found) != 0 {
		t.Errorf("empty device: got %v, %v", found, err)
	}
	run("/sbin/mkfs.ext4", "-q", "-F", "-L", `a "b"`, device)
	want := []signature{{Type: "ext4", Label: `a "b"`, Usage: "filesystem"}}
	if found, err := signatures(t.Context(), h, device); err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("got %v, %v, want %v", found, err, want)
	}
	if _, err := signatures(t.Context(), h, device+"-missing"); err == nil {
		t.Error("a device that cannot be read seems to be empty")
	}
}
