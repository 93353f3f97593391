package build

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// answerTime is how long a program may take to print its version.
const answerTime = 30 * time.Second

// ErrOtherMachine is wrapped by the error of CheckVersions where the programs are for
// another kind of machine than this one.
var ErrOtherMachine = errors.New("the programs can't be executed on this machine")

// CheckVersions executes the required programs, and returns an error unless they print
// the bundle's version of Kubernetes.
func (b *Bundle) CheckVersions(ctx context.Context) error {
	if want := "linux/" + b.Manifest.Architecture; runtime.GOOS+"/"+runtime.GOARCH != want {
		return fmt.Errorf("%w: they are for %s, and it is %s/%s", ErrOtherMachine, want, runtime.GOOS, runtime.GOARCH)
	}
	for _, name := range bundle.Required() {
		f, _ := b.Manifest.Program(name)
		if err := b.checkVersion(ctx, name, b.path(f)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bundle) checkVersion(ctx context.Context, name, path string) error {
	args := map[string][]string{
		"kubeadm": {"version", "--output", "short"}, "kubectl": {"version", "--client"}, "kubelet": {"--version"},
	}[name]
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("asking %s for its version, by %s %s: %w: put a program into the folder that works on this machine", name, path, strings.Join(args, " "), err)
	}
	const shown = 200
	text := strings.TrimSpace(string(out))
	if slices.Contains(strings.Fields(text), b.Manifest.KubernetesVersion) {
		return nil
	}
	return fmt.Errorf("%s prints %.*q, and the bundle is for %s: replace the program, or correct --version", path, shown, text, b.Manifest.KubernetesVersion)
}
