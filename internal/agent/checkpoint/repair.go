package checkpoint

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
)

// Repair puts back each file that kubeadm or a power cut left damaged: manifests that are
// missing or no Pods, certificates without the key that belongs to them, kubeconfigs
// without credentials, and empty files. It returns the paths of what it put back. Files
// that kubeadm has replaced whole stay.
func (c *Checkpoint) Repair() (restored []string, err error) {
	for _, path := range c.Paths() {
		damaged := c.damaged(path)
		for _, one := range damaged {
			changed, err := c.Restore(one)
			if err != nil {
				return restored, err
			}
			if changed {
				restored = append(restored, one)
			}
		}
	}
	return restored, nil
}

// damaged returns the file if it is damaged, with what belongs to it.
func (c *Checkpoint) damaged(path string) []string {
	host := c.store.on(path)
	switch {
	case filepath.Dir(path) == staticpods.Folder && strings.HasSuffix(path, ".yaml"):
		data, err := os.ReadFile(host)
		if err == nil {
			_, err = staticpods.Parse(data)
		}
		if err != nil {
			return []string{path}
		}
	case strings.HasSuffix(path, ".crt"):
		key := strings.TrimSuffix(path, ".crt") + ".key"
		if !c.Has(key) {
			break
		}
		if _, err := tls.LoadX509KeyPair(host, c.store.on(key)); err != nil {
			return []string{path, key}
		}
		return nil
	case filepath.Dir(path) == kubernetes && strings.HasSuffix(path, ".conf"):
		if _, err := kube.Load(host); err != nil {
			return []string{path}
		}
	case slices.Contains(singles(), path) && filepath.Ext(path) == ".yaml":
		var config map[string]any
		data, err := os.ReadFile(host)
		if err == nil {
			err = kube.Decode(data, &config)
		}
		if err != nil || len(config) == 0 {
			return []string{path}
		}
	}
	if info, err := os.Stat(host); err != nil || info.Size() == 0 && c.wasFilled(path) {
		return []string{path}
	}
	return nil
}

// wasFilled reports whether the file had content at the checkpoint.
func (c *Checkpoint) wasFilled(path string) bool {
	info, err := os.Stat(filepath.Join(c.folder, filesFolder, path))
	return err == nil && info.Size() > 0
}
