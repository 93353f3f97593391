package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const architecture = runtime.GOARCH

// Builder builds images and caches them.
type Builder struct {
	// Checkout is the root folder of the repository.
	Checkout string
	// Cache is the folder for cached results.
	Cache string
	// Engine runs Docker.
	Engine *engine.Engine
	// Tools builds the programs.
	Tools toolset.Builder
	// Progress reports steps that take long.
	Progress *shell.Progress
}

// Program is a program of this repository.
type Program struct {
	// Package is its folder, such as "./cmd/manager".
	Package string
	// LDFlags are added to the linker's flags.
	LDFlags string
}

// Build compiles a program of this repository statically and returns the file. Go's build cache
// makes it fast if nothing has changed.
func (b Builder) Build(ctx context.Context, p Program) (string, error) {
	file := filepath.Join(b.Cache, "programs", key(b.Checkout, p.Package, p.LDFlags)[:8], filepath.Base(p.Package))
	_, err := shell.Command{
		Args: []string{"go", "build", "-trimpath", "-ldflags", strings.TrimSpace("-s -w " + p.LDFlags), "-o", file, p.Package},
		Dir:  b.Checkout,
		Env:  []string{"CGO_ENABLED=0"},
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("building %s: %w", p.Package, err)
	}
	return file, nil
}

// Archive writes images into a file, unless a file with the same content exists, and returns its
// name.
func (b Builder) Archive(name string, workloads ...Workload) (string, error) {
	parts := []any{architecture}
	for _, w := range workloads {
		parts = append(parts, w.Name, w.Entrypoint, w.Base)
		for _, target := range sortedKeys(w.Files) {
			sum, err := fileSum(w.Files[target])
			if err != nil {
				return "", fmt.Errorf("reading a file of image %s: %w", w.Name, err)
			}
			parts = append(parts, target, sum)
		}
	}
	folder := filepath.Join(b.Cache, name+"-"+key(parts...))
	file := filepath.Join(folder, "images.tar")
	if _, err := os.Stat(folder); err == nil {
		return file, nil
	}
	err := b.place(folder, func(temp string) error {
		return WriteArchive(filepath.Join(temp, "images.tar"), workloads...)
	})
	if err != nil {
		return "", err
	}
	return file, b.pruneArchives(name)
}

// pruneArchives removes all but the newest archives of a name, because each change of a program
// produces another archive.
func (b Builder) pruneArchives(name string) error {
	const keep = 3
	folders, err := filepath.Glob(filepath.Join(b.Cache, name+"-*"))
	if err != nil {
		return fmt.Errorf("looking for old archives: %w", err)
	}
	made := map[string]time.Time{}
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil {
			made[folder] = info.ModTime()
		}
	}
	slices.SortFunc(folders, func(a, b string) int { return made[b].Compare(made[a]) })
	for _, folder := range folders[min(keep, len(folders)):] {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("removing an old archive: %w", err)
		}
	}
	return nil
}

// place calls work to fill a temporary folder, and then renames the folder to its final name.
func (b Builder) place(folder string, work func(temp string) error) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return fmt.Errorf("making the cache: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(folder), "new-")
	if err != nil {
		return fmt.Errorf("making the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := work(temp); err != nil {
		return err
	}
	err = os.Rename(temp, folder)
	if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("placing %s in the cache: %w", filepath.Base(folder), err)
	}
	return nil
}

// key returns a short hash of values.
func key(values ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", values))
	return hex.EncodeToString(sum[:])[:16]
}

// fileSum returns the SHA-256 of a file.
func fileSum(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
