package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// ReleaseFile returns a file of the release that a lab has, as clusterctl generate yaml makes manifests of it, with values for
// its variables in addition to the environment. Machines ignore swap, as in GenerateCluster.
func ReleaseFile(ctx context.Context, l *Lab, name string, variables map[string]string) (string, error) {
	release, err := l.sources.findRelease()
	if err != nil {
		return "", err
	}
	if release.folder == "" {
		return "", errors.New("there is no release of this provider")
	}
	out, err := l.clusterctl(ctx, environment(variables), "generate", "yaml", "--from", filepath.Join(release.folder, name))
	if err != nil {
		return "", fmt.Errorf("generating manifests of %s: %w", name, err)
	}
	if out, err = allowSwap(out); err != nil {
		return "", fmt.Errorf("generating manifests of %s: %w", name, err)
	}
	return out, nil
}

// environment returns variables as programs get them.
func environment(variables map[string]string) []string {
	var all []string
	for name, value := range variables {
		all = append(all, name+"="+value)
	}
	return all
}
