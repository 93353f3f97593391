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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// podFolders are where kubelets of kubeadm, k3s and RKE2 find static Pods. No
// file is written elsewhere: a manager has no need, and a mistake can't hurt.
func podFolders() []string {
	return []string{
		"/etc/kubernetes/manifests",
		"/var/lib/rancher/k3s/agent/pod-manifests",
		"/var/lib/rancher/rke2/agent/pod-manifests",
	}
}

// foreignPods are the static Pods of kubeadm and RKE2 themselves.
func foreignPods() []string {
	return []string{
		"etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml",
		"cloud-controller-manager.yaml", "kube-proxy.yaml",
	}
}

// checkFile says why a file is not written.
func checkFile(f protocol.File) error {
	folder, name := path.Split(f.Path)
	switch {
	case path.Clean(f.Path) != f.Path || !slices.Contains(podFolders(), strings.TrimSuffix(folder, "/")) || strings.HasPrefix(name, "."):
		return fmt.Errorf("not writing %q: files go to %s only", f.Path, strings.Join(podFolders(), ", "))
	case slices.Contains(foreignPods(), name):
		return fmt.Errorf("not writing %s: it is the distribution's own", f.Path)
	case len(f.Content) > protocol.MaxFileBytes:
		return fmt.Errorf("not writing %s: it has more than %d bytes", f.Path, protocol.MaxFileBytes)
	case fs.FileMode(f.Mode)&^fs.ModePerm != 0:
		return fmt.Errorf("not writing %s: mode %o is more than permissions", f.Path, f.Mode)
	}
	return nil
}

// keepFiles writes what is missing or differs and removes what is not desired
// any more; nil leaves all as it is. A path is recorded before its file is there.
func (k *Keeper) keepFiles(at *record, files []protocol.File) error {
	if files == nil {
		return nil
	}
	if len(files) > protocol.MaxFiles {
		return fmt.Errorf("not writing files: there are more than %d", protocol.MaxFiles)
	}
	var failures []error
	var good []protocol.File
	var paths []string
	for _, f := range files {
		err := checkFile(f)
		switch {
		case err != nil:
			failures = append(failures, err)
		case slices.Contains(paths, f.Path):
			failures = append(failures, fmt.Errorf("not writing %s twice", f.Path))
		default:
			good, paths = append(good, f), append(paths, f.Path)
		}
	}
	former := slices.DeleteFunc(slices.Clone(at.Files), func(name string) bool { return slices.Contains(paths, name) })
	slices.Sort(paths)
	if all := slices.Concat(paths, former); !slices.Equal(all, at.Files) {
		at.Files = all
		if err := k.document().Save(*at); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	for _, f := range good {
		failures = append(failures, k.write(f))
	}
	if len(former) == 0 {
		return errors.Join(failures...)
	}
	var left []string
	for _, name := range former {
		if err := k.removeFile(name); err != nil {
			failures, left = append(failures, err), append(left, name)
		}
	}
	at.Files = slices.Concat(paths, left)
	return errors.Join(append(failures, k.document().Save(*at))...)
}

// write writes a file unless it is there as it is to be.
func (k *Keeper) write(f protocol.File) error {
	name, mode := k.path(f.Path), fs.FileMode(f.Mode)
	info, err := os.Lstat(name)
	if err == nil && info.Mode() == mode && info.Size() == int64(len(f.Content)) {
		if content, err := os.ReadFile(name); err == nil && string(content) == f.Content {
			return nil
		}
	}
	if err := k.makeFolder(filepath.Dir(name)); err != nil {
		return fmt.Errorf("making the folder of %s: %w", f.Path, err)
	}
	k.o.Log.Info("Writing a file that the manager wants here", "path", f.Path)
	return durable.Replace(k.o.System, name, []byte(f.Content), func(file durable.File) error { return file.Chmod(mode) })
}

// makeFolder makes a folder that only root may enter, as kubeadm does.
func (k *Keeper) makeFolder(folder string) error {
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := k.makeFolder(filepath.Dir(folder)); err != nil {
		return err
	}
	if err := k.o.System.Mkdir(folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return k.o.System.SyncDir(filepath.Dir(folder))
}

func (k *Keeper) removeFile(name string) error {
	k.o.Log.Info("Removing a file that the manager does not want here any more", "path", name)
	file := k.path(name)
	for _, one := range []string{file, durable.Temporary(file)} {
		if err := k.o.System.Remove(one); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	if err := k.o.System.SyncDir(filepath.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
