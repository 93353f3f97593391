// Package checkouts brings former versions of this repository into the cache, for tests of upgrades.
package checkouts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// First is the commit of v0.1.0.
const First = "3672842"

// Of returns the folder with the files of a commit, which is cached. root is the root folder of this repository, whose
// history must have the commit. Nobody may change the files.
func Of(ctx context.Context, root, commit string) (string, error) {
	cache, err := toolset.CacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "checkouts", commit)
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
		return folder, nil
	}
	fresh := fmt.Sprintf("%s.%d", folder, os.Getpid())
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return "", fmt.Errorf("making the folder of a checkout: %w", err)
	}
	archive := filepath.Join(fresh, ".archive.tar")
	for _, args := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, commit}, {"tar", "-x", "-f", archive, "-C", fresh},
	} {
		if _, err := shell.Run(ctx, args...); err != nil {
			return "", fmt.Errorf("checking out %s, which needs the history of the repository: %w", commit, err)
		}
	}
	if err := os.Remove(archive); err != nil {
		return "", fmt.Errorf("removing the archive of a checkout: %w", err)
	}
	if err := os.Rename(fresh, folder); err != nil {
		return "", fmt.Errorf("placing a checkout in the cache: %w", err)
	}
	return folder, nil
}
