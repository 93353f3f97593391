package nodeupgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	importTimeout = 10 * time.Minute
	// reserve is the space that an upgrade leaves free, in bytes.
	reserve = 256 << 20
)

// stage has the bundle unpacked, and its images imported into containerd.
func (u *upgrade) stage(ctx context.Context) error {
	if err := u.retryOnce(ctx); err != nil {
		return err
	}
	folder, m, err := u.staged(ctx)
	if err != nil {
		return err
	}
	found, err := u.Inspector.Kubernetes(ctx)
	if err != nil {
		return fmt.Errorf("looking for the container runtime: %w", err)
	}
	if found.ContainerRuntime.Name != protocol.RuntimeContainerd {
		// Other runtimes pull what they lack.
		return nil
	}
	ctr := "ctr"
	if f, ok := m.Program(ctr); ok {
		ctr = filepath.Join(folder, f.Name)
	}
	socket := cmp.Or(found.ContainerRuntime.Socket, "/run/containerd/containerd.sock")
	for _, f := range m.Files {
		if f.Kind != bundle.KindImage {
			continue
		}
		u.progress(stepStage + ": importing " + f.Name)
		if err := u.command(ctx, importTimeout, ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", filepath.Join(folder, f.Name)); err != nil {
			return fmt.Errorf("importing %s: %w", f.Name, err)
		}
	}
	return nil
}

// retryOnce has the first attempt begin at once. The host may have tried before
// without success: whoever requests the upgrade may have corrected the cause, and is told at once
// if not.
func (u *upgrade) retryOnce(ctx context.Context) error {
	if u.at.Retried {
		return nil
	}
	if err := u.Stager.Retry(ctx); err != nil {
		return fmt.Errorf("beginning a new attempt to stage the bundle: %w", err)
	}
	u.at.Retried = true
	return u.Save()
}

// examination is the step check.
type examination struct{ *upgrade }

// run returns an error unless the Node can be upgraded and is well. It records the
// version and the programs of the host.
func (e examination) run(ctx context.Context) error {
	if err := e.checkRole(); err != nil {
		return err
	}
	if err := e.checkAuthorities(); err != nil {
		return err
	}
	if err := e.checkPatches(); err != nil {
		return err
	}
	folder, m, err := e.staged(ctx)
	if err != nil {
		return err
	}
	if _, err := e.bundled(folder, m, "kubeadm"); err != nil {
		return err
	}
	if err := e.await(ctx, readyTimeout, 0, func(ctx context.Context) error { return e.findPrograms(ctx, m) }); err != nil {
		return err
	}
	if err := e.checkSpace(m); err != nil {
		return err
	}
	if err := e.await(ctx, readyTimeout, 0, e.isWell); err != nil {
		return err
	}
	return e.checkVersions()
}

// checkRole returns an error unless the host is what the request says. kubeadm looks at the
// manifests.
func (e examination) checkRole() error {
	if !e.isControlPlane() {
		if staticpods.Found(e.Root) {
			return errors.New("the host runs a control plane, and the request is for a worker")
		}
		return nil
	}
	if _, err := staticpods.Read(e.Root); err != nil {
		return fmt.Errorf("looking for the control plane of this host: %w", err)
	}
	return nil
}

// checkAuthorities returns an error unless kubeadm can renew the certificates of a control plane.
func (e examination) checkAuthorities() error {
	if !e.isControlPlane() {
		return nil
	}
	for _, authority := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		path := filepath.Join(e.Root, "/etc/kubernetes/pki", authority)
		_, certificateErr := os.Stat(path + ".crt")
		_, keyErr := os.Stat(path + ".key")
		if certificateErr == nil && errors.Is(keyErr, fs.ErrNotExist) {
			return fmt.Errorf("the key /etc/kubernetes/pki/%s.key is not on the host, so kubeadm can't renew certificates: upgrade this host by hand", authority)
		}
	}
	return nil
}

// checkPatches returns an error unless the folder of kubeadm's patches is on the host.
func (e examination) checkPatches() error {
	folder := e.want.PatchesDirectory
	if folder == "" {
		return nil
	}
	if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
		return fmt.Errorf("%.256q is no absolute path of a folder of kubeadm's patches: correct the KubeadmConfig", folder)
	}
	if info, err := os.Stat(filepath.Join(e.Root, folder)); err != nil || !info.IsDir() {
		return fmt.Errorf("the folder %s of kubeadm's patches is not on the host: put it there, because kubeadm would remove what the patches have changed", folder)
	}
	return nil
}

// findPrograms records where the programs are that the bundle replaces. It refuses those of
// a package.
func (e examination) findPrograms(ctx context.Context, m bundle.Manifest) error {
	found, err := e.Inspector.Kubernetes(ctx)
	if err != nil {
		return fmt.Errorf("looking for the programs of Kubernetes: %w", err)
	}
	e.at.Programs = nil
	for _, candidate := range []struct {
		name string
		on   protocol.Program
	}{{"kubeadm", found.Kubeadm}, {"kubectl", found.Kubectl}, {"kubelet", found.Kubelet}} {
		name, on := candidate.name, candidate.on
		_, isBundled := m.Program(name)
		switch {
		case on.Path == "" && name == "kubelet":
			return sequence.Final{Err: errors.New("the host has no kubelet")}
		case !isBundled && name == "kubelet":
			return sequence.Final{Err: errors.New("the bundle has no kubelet: build it with that program")}
		case on.Path == "" || !isBundled:
			continue
		case on.Origin == protocol.OriginPackage:
			return sequence.Final{Err: fmt.Errorf("%s belongs to a package of the operating system, which an upgrade in place would break: upgrade that package, or replace the Machine", on.Path)}
		case on.Origin == "":
			return fmt.Errorf("the package database does not say whether %s belongs to a package", on.Path)
		case e.IsReadOnly(filepath.Join(e.Root, filepath.Dir(on.Path))):
			return sequence.Final{Err: fmt.Errorf("%s is on a file system that can't be written to: upgrade the operating system's image, or replace the Machine", on.Path)}
		}
		e.at.Programs = append(e.at.Programs, program{Name: name, Path: on.Path})
	}
	return nil
}

// checkSpace returns an error if the disks lack space: kubeadm copies the data of etcd, the
// checkpoint has a snapshot of it and the programs, and the new programs are written beside
// the old ones.
func (e examination) checkSpace(m bundle.Manifest) error {
	need := int64(reserve)
	folders := []string{filepath.Dir(e.Checkpoints), filepath.Join(e.Root, "/etc/kubernetes")}
	for _, p := range e.at.Programs {
		f, _ := m.Program(p.Name)
		need += 2 * f.Size
		folders = append(folders, filepath.Dir(filepath.Join(e.Root, p.Path)))
	}
	if e.isControlPlane() {
		member, found, err := etcd.Local(e.Root)
		if err != nil {
			return err
		}
		if found {
			size, err := sizeOf(filepath.Join(e.Root, member.Data))
			if err != nil {
				return fmt.Errorf("looking at the data of etcd: %w", err)
			}
			need += 2 * size
		}
	}
	for _, folder := range folders {
		free, err := e.Free(folder)
		if err != nil {
			return err
		}
		if free < need {
			return fmt.Errorf("the disk lacks space: %s has %d MiB free, and the upgrade needs %d MiB: make room", folder, free>>20, need>>20)
		}
	}
	return nil
}

// sizeOf returns the size of all files below a folder. Files that vanish meanwhile don't
// count.
func sizeOf(folder string) (int64, error) {
	var total int64
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total, err
}

// isWell returns an error unless the kubelet, the API server and etcd are well. It records
// the versions.
func (e examination) isWell(ctx context.Context) error {
	if err := e.Cluster.KubeletHealthy(ctx); err != nil {
		return err
	}
	node, err := e.Cluster.Node(ctx)
	if err != nil {
		return err
	}
	if !node.Ready {
		return fmt.Errorf("the Node %s is not ready", node.Name)
	}
	e.at.From = node.Version
	if !e.isControlPlane() {
		e.at.Server, err = e.Cluster.ServerVersion(ctx)
		return err
	}
	if e.at.Server, err = e.Cluster.LocalServer(ctx); err != nil {
		return err
	}
	return e.health().etcd(ctx)
}

// checkVersions refuses what Kubernetes does not support: a way down, and a kubelet that is
// newer than its API server.
func (e examination) checkVersions() error {
	target, err := parseVersion(e.want.Bundle.Version)
	if err != nil {
		return err
	}
	from, err := parseVersion(e.at.From)
	if err != nil {
		return fmt.Errorf("the kubelet's version: %w", err)
	}
	server, err := parseVersion(e.at.Server)
	if err != nil {
		return fmt.Errorf("the API server's version: %w", err)
	}
	switch {
	case target.isOlder(from):
		return fmt.Errorf("the Node has %s, and %s is older: Kubernetes can't be downgraded", e.at.From, e.want.Bundle.Version)
	case e.isControlPlane() && target.isOlder(server):
		return fmt.Errorf("the API server has %s, and %s is older: Kubernetes can't be downgraded", e.at.Server, e.want.Bundle.Version)
	case !e.isControlPlane() && server.isOlder(target) && server.isMinor(target):
		return fmt.Errorf("the API server has %s, and a kubelet must not be newer: upgrade the control plane first", e.at.Server)
	}
	return nil
}

// checkpoint keeps what may have to be put back.
func (u *upgrade) checkpoint(ctx context.Context) error {
	var snapshot func(ctx context.Context, path string) error
	if u.isControlPlane() {
		member, found, err := etcd.Local(u.Root)
		if err != nil {
			return err
		}
		if found {
			member.Dial = u.Cluster.Dial
			// The step before has checked the space for all that is kept.
			snapshot = func(ctx context.Context, path string) error {
				info, err := etcd.SaveFile(ctx, member.Options, u.System, path, math.MaxInt64)
				if err == nil {
					u.Log.Info("Saved a snapshot of etcd", "bytes", info.Bytes, "sha256", info.SHA256)
				}
				return err
			}
		}
	}
	// Upgrades that fail again and again must not fill the disk.
	former, err := u.store().Latest(u.name())
	if err == nil {
		err = u.store().Prune(u.name(), former)
	}
	if err != nil {
		return err
	}
	paths := make([]string, 0, len(u.at.Programs))
	for _, p := range u.at.Programs {
		paths = append(paths, p.Path)
	}
	_, err = u.store().Take(ctx, u.name(), paths, snapshot)
	return err
}

// bundled returns where a program of the bundle is on the disk.
func (u *upgrade) bundled(folder string, m bundle.Manifest, name string) (path string, err error) {
	f, ok := m.Program(name)
	if !ok {
		return "", fmt.Errorf("the bundle has no %s: build it with that program", name)
	}
	return filepath.Join(folder, f.Name), nil
}

// command runs a command with a time limit.
func (u *upgrade) command(ctx context.Context, timeout time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := u.Commands.Run(ctx, "", args...)
	return err
}
