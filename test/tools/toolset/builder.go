package toolset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Builder builds tools into a cache.
type Builder struct {
	// Modules is the folder that holds one folder per tool set (test/tools in the checkout).
	Modules string
	// Cache is the folder the programs are kept in.
	Cache string
	// Progress gets lines when a build starts, while it runs, and when it ends.
	Progress io.Writer
}

// CacheDir returns $ELEMENTAL_CACHE or, if it is not set, a folder in the user's cache.
func CacheDir() (string, error) {
	if dir := os.Getenv("ELEMENTAL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder (set ELEMENTAL_CACHE): %w", err)
	}
	return filepath.Join(dir, "cluster-api-provider-elemental"), nil
}

// Folder builds the tools that are not cached and returns a folder with exactly the given tools, for KUBEBUILDER_ASSETS or
// PATH. It fails if two tools have one name. Several processes may call it at the same time.
func (b Builder) Folder(ctx context.Context, tools ...Tool) (string, error) {
	sets := map[string]string{}
	for _, t := range tools {
		if other := sets[t.Name]; other != "" {
			return "", fmt.Errorf("%s is in the tool sets %s and %s: ask for one of them at a time", t.Name, other, t.Set)
		}
		sets[t.Name] = t.Set
	}
	var goVersion strings.Builder
	if _, err := command(b.Modules, &goVersion, "version").Run(ctx); err != nil {
		return "", fmt.Errorf("asking go for its version: %w", err)
	}
	all := sha256.New()
	files := map[string]string{}
	for _, t := range tools {
		file, err := b.build(ctx, t, goVersion.String())
		if err != nil {
			return "", fmt.Errorf("building %s: %w", t.Name, err)
		}
		files[t.Name] = file
		_, _ = fmt.Fprintln(all, file)
	}
	folder := filepath.Join(b.Cache, "tools", "bin", hex.EncodeToString(all.Sum(nil))[:16])
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	return folder, b.link(folder, files)
}

// link makes folder with a hard link to each file, under its name.
func (b Builder) link(folder string, files map[string]string) error {
	parent := filepath.Dir(folder)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return fmt.Errorf("making the folder for programs: %w", err)
	}
	temp, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return fmt.Errorf("making the folder for programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	for name, file := range files {
		if err := os.Link(file, filepath.Join(temp, name)); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	// A concurrent process may have placed the folder, with the same content.
	if err := os.Rename(temp, folder); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("placing the folder for programs: %w", err)
	}
	return nil
}

// build returns the cached program. It builds the program if it is not cached.
func (b Builder) build(ctx context.Context, t Tool, goVersion string) (string, error) {
	args, key, err := b.plan(t, goVersion)
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.Cache, "tools", "store", t.Name+"-"+key, t.Name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	// One build at a time on this machine: linking Kubernetes takes gigabytes of memory.
	unlock, err := lock(ctx, filepath.Join(b.Cache, "tools", "lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for another build: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, b.compile(ctx, t, args, file)
}

// plan returns the arguments for go, without the output, and a hash of all inputs.
func (b Builder) plan(t Tool, goVersion string) (args []string, key string, err error) {
	dir := filepath.Join(b.Modules, t.Set)
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, "", fmt.Errorf("reading the module: %w", err)
	}
	gosum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, "", fmt.Errorf("reading the checksums: %w", err)
	}
	var version string
	if t.Module != "" {
		if version, err = requiredVersion(string(gomod), t.Module); err != nil {
			return nil, "", err
		}
	}
	ldflags, err := t.ldflags(version)
	if err != nil {
		return nil, "", err
	}
	args = []string{"build", "-trimpath", "-ldflags", ldflags, "-tags", t.Tags, t.Package}
	hash := sha256.New()
	for _, part := range []string{
		string(gomod), string(gosum), strings.Join(args, "\x00"), goVersion, runtime.GOOS, runtime.GOARCH,
	} {
		_, _ = fmt.Fprintf(hash, "%d\x00%s", len(part), part)
	}
	return args, hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// unfinished is the prefix of folders in which a program is built.
const unfinished = "new-"

// compile builds a program in a new folder and renames that to file's folder. The caller holds the lock.
func (b Builder) compile(ctx context.Context, t Tool, args []string, file string) error {
	target := filepath.Dir(file)
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("making the cache: %w", err)
	}
	// No other build runs, because of the lock: a killed build left these.
	left, err := filepath.Glob(filepath.Join(filepath.Dir(target), unfinished+"*"))
	if err != nil {
		return fmt.Errorf("looking for unfinished programs: %w", err)
	}
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("removing an unfinished program: %w", err)
		}
	}
	temp, err := os.MkdirTemp(filepath.Dir(target), unfinished)
	if err != nil {
		return fmt.Errorf("making the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()

	defer b.report(t.Name)()
	args = append([]string{args[0], "-o", filepath.Join(temp, t.Name)}, args[1:]...)
	build := command(filepath.Join(b.Modules, t.Set), nil, args...)
	if t.C {
		build.Env = append(build.Env, "CGO_ENABLED=1")
	}
	if _, err := build.Run(ctx); err != nil {
		return err
	}
	if err := os.Rename(temp, target); err != nil {
		return fmt.Errorf("placing the program: %w", err)
	}
	return nil
}

// report writes progress until done is called.
func (b Builder) report(name string) (done func()) {
	start := time.Now()
	elapsed := func() time.Duration { return time.Since(start).Round(time.Second) }
	_, _ = fmt.Fprintf(b.Progress, "building %s\n", name)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = fmt.Fprintf(b.Progress, "building %s: %s so far\n", name, elapsed())
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		_, _ = fmt.Fprintf(b.Progress, "building %s: took %s\n", name, elapsed())
	}
}

// command returns a go command in dir that ignores the caller's Go settings. Its output goes to stdout, if not nil.
func command(dir string, stdout io.Writer, args ...string) shell.Command {
	return shell.Command{
		Args: append([]string{"go"}, args...), Dir: dir, Stdout: stdout,
		Env: []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off"},
	}
}

// lock waits for an exclusive lock on a file, which it creates if missing.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
