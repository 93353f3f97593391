package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CheckSeries returns an error unless metadata.yaml of a checkout has a release series for a version, which is a
// semantic one with a v. clusterctl installs no version without one, and upgrades to none.
func CheckSeries(root, version string) error {
	text, err := os.ReadFile(filepath.Join(root, "metadata.yaml"))
	if err != nil {
		return err
	}
	var metadata struct {
		ReleaseSeries []struct{ Major, Minor int } `yaml:"releaseSeries"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return fmt.Errorf("reading metadata.yaml: %w", err)
	}
	for _, series := range metadata.ReleaseSeries {
		if strings.HasPrefix(version, fmt.Sprintf("v%d.%d.", series.Major, series.Minor)) {
			return nil
		}
	}
	return fmt.Errorf("metadata.yaml has no release series for %s, and clusterctl needs one: add its minor version", version)
}
