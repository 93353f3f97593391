package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// podFolders contain the static Pods of kubeadm, k3s and RKE2. Files of a plan
// go nowhere else, so that a wrong plan cannot damage the host.
func podFolders() []string {
	return []string{
		"/etc/kubernetes/manifests",
		"/var/lib/rancher/k3s/agent/pod-manifests",
		"/var/lib/rancher/rke2/agent/pod-manifests",
	}
}

// distributionPods are the static Pods that kubeadm and RKE2 write themselves.
func distributionPods() []string {
	return []string{
		"etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml",
		"cloud-controller-manager.yaml", "kube-proxy.yaml",
	}
}

// checkFile returns an error for a file that must not be written.
func checkFile(f protocol.File) error {
	folder, name := path.Split(f.Path)
	switch {
	case path.Clean(f.Path) != f.Path || !slices.Contains(podFolders(), strings.TrimSuffix(folder, "/")) || strings.HasPrefix(name, "."):
		return fmt.Errorf("not writing %q: files go to %s only", f.Path, strings.Join(podFolders(), ", "))
	case slices.Contains(distributionPods(), name):
		return fmt.Errorf("not writing %s: it is the distribution's own", f.Path)
	case len(f.Content) > protocol.MaxFileBytes:
		return fmt.Errorf("not writing %s: it has more than %d bytes", f.Path, protocol.MaxFileBytes)
	case fs.FileMode(f.Mode)&^fs.ModePerm != 0:
		return fmt.Errorf("not writing %s: mode %o is more than permissions", f.Path, f.Mode)
	}
	return nil
}

// applyFiles writes files that are missing or differ, and removes those that
// are no longer desired; nil changes nothing. It records a path before it
// writes the file.
func (a *Applier) applyFiles(current *record, files []protocol.File) error {
	if files == nil {
		return nil
	}
	if len(files) > protocol.MaxFiles {
		return fmt.Errorf("not writing files: there are more than %d", protocol.MaxFiles)
	}
	var failures []error
	var accepted []protocol.File
	var paths []string
	for _, f := range files {
		err := checkFile(f)
		switch {
		case err != nil:
			failures = append(failures, err)
		case slices.Contains(paths, f.Path):
			failures = append(failures, fmt.Errorf("not writing %s twice", f.Path))
		default:
			accepted, paths = append(accepted, f), append(paths, f.Path)
		}
	}
	obsolete := slices.DeleteFunc(slices.Clone(current.Files), func(name string) bool { return slices.Contains(paths, name) })
	slices.Sort(paths)
	if all := slices.Concat(paths, obsolete); !slices.Equal(all, current.Files) {
		current.Files = all
		if err := a.document().Save(*current); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	for _, f := range accepted {
		failures = append(failures, a.writeFile(f))
	}
	if len(obsolete) == 0 {
		return errors.Join(failures...)
	}
	var remaining []string
	for _, name := range obsolete {
		if err := a.removeFile(name); err != nil {
			failures, remaining = append(failures, err), append(remaining, name)
		}
	}
	current.Files = slices.Concat(paths, remaining)
	return errors.Join(append(failures, a.document().Save(*current))...)
}

// writeFile writes a file if its content or mode differs.
func (a *Applier) writeFile(f protocol.File) error {
	name, mode := a.path(f.Path), fs.FileMode(f.Mode)
	info, err := os.Lstat(name)
	if err == nil && info.Mode() == mode && info.Size() == int64(len(f.Content)) {
		if content, err := os.ReadFile(name); err == nil && string(content) == f.Content {
			return nil
		}
	}
	if err := a.makeFolder(filepath.Dir(name)); err != nil {
		return fmt.Errorf("making the folder of %s: %w", f.Path, err)
	}
	a.o.Log.Info("Writing a file that the manager wants here", "path", f.Path)
	return durable.Replace(a.o.System, name, []byte(f.Content), func(file durable.File) error { return file.Chmod(mode) })
}

// makeFolder creates a folder that only root may enter, as kubeadm does.
func (a *Applier) makeFolder(folder string) error {
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := a.makeFolder(filepath.Dir(folder)); err != nil {
		return err
	}
	if err := a.o.System.Mkdir(folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return a.o.System.SyncDir(filepath.Dir(folder))
}

func (a *Applier) removeFile(name string) error {
	a.o.Log.Info("Removing a file that the manager no longer wants here", "path", name)
	file := a.path(name)
	for _, obsolete := range []string{file, durable.Temporary(file)} {
		if err := a.o.System.Remove(obsolete); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	if err := a.o.System.SyncDir(filepath.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
