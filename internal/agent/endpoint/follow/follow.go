package follow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
)

// Kubelet is the kubeconfig that a kubelet reads when it starts.
const Kubelet = "/etc/kubernetes/kubelet.conf"

// apiServer tells a control-plane host of kubeadm.
const apiServer = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// maxBytes bounds a file that is read. Kubeconfigs have some kilobytes.
const maxBytes = 1 << 20

// Node is where to look.
type Node struct {
	// Root stands for "/".
	Root string
	// Own are the host's addresses.
	Own []netip.Addr
	// System writes files.
	System durable.System
}

// Edit is a file that names a former endpoint.
type Edit struct {
	// Name is the file's path on the host.
	Name string

	path    string
	former  os.FileInfo
	content []byte
}

// document is a file that may name an endpoint, and how that is replaced.
type document struct {
	name    string
	replace func(text []byte) ([]byte, error)
}

// Look finds the files that have to be written. found tells whether there is any
// that could. A file that can't be read or understood is an error, and hides
// none of the others.
func (n Node) Look(rules rewrite.Rules) (edits []Edit, found bool, err error) {
	documents, err := n.documents(rules)
	failures := []error{err}
	for _, one := range documents {
		edit, exists, err := n.look(one)
		found = found || exists
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("pointing %s to the endpoint: %w", one.name, err))
		case edit != nil:
			edits = append(edits, *edit)
		}
	}
	return edits, found, errors.Join(failures...)
}

// documents are the files of kubeadm, k3s and RKE2.
//
// On a control-plane host the kubelet, the controller manager and the scheduler
// may use the host's own API server, by an address that was the endpoint once:
// kubeadm has the last two do so always, and the first with its feature gate
// ControlPlaneKubeletLocalMode.
func (n Node) documents(rules rewrite.Rules) ([]document, error) {
	var list []document
	for _, name := range []string{"admin.conf", "super-admin.conf", "bootstrap-kubelet.conf"} {
		list = append(list, document{"/etc/kubernetes/" + name, func(text []byte) ([]byte, error) { return rules.Kubeconfig(text, nil) }})
	}
	for _, name := range []string{Kubelet, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"} {
		list = append(list, document{name, func(text []byte) ([]byte, error) { return rules.Kubeconfig(text, n.isLocal) }})
	}
	for _, folder := range []string{"/etc/rancher/k3s", "/etc/rancher/rke2"} {
		list = append(list, document{folder + "/config.yaml", rules.Configuration})
		entries, err := os.ReadDir(filepath.Join(n.Root, folder, "config.yaml.d"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return list, fmt.Errorf("listing the configuration of %s: %w", path.Base(folder), err)
		}
		for _, entry := range entries {
			if slices.Contains([]string{".yaml", ".yml"}, path.Ext(entry.Name())) {
				list = append(list, document{folder + "/config.yaml.d/" + entry.Name(), rules.Configuration})
			}
		}
	}
	return list, nil
}

// isLocal reports whether a host is this one and has an API server. A worker
// that was given the address of a dead host has none.
func (n Node) isLocal(name string) bool {
	address, err := netip.ParseAddr(name)
	if err != nil || !slices.Contains(n.Own, address.Unmap()) {
		return false
	}
	_, err = os.Stat(filepath.Join(n.Root, apiServer))
	return err == nil
}

func (n Node) look(one document) (edit *Edit, exists bool, err error) {
	target, err := n.resolve(one.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	text, info, err := read(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // it was removed meanwhile
	}
	if err != nil {
		return nil, true, err
	}
	content, err := one.replace(text)
	if err != nil || bytes.Equal(content, text) {
		return nil, true, err
	}
	return &Edit{Name: one.name, path: target, former: info, content: content}, true, nil
}

// resolve returns the file that a name leads to. The folder may be anywhere, but
// a link in it must not lead out of it: whatever is there belongs to somebody
// else.
func (n Node) resolve(name string) (string, error) {
	full := filepath.Join(n.Root, name)
	folder, err := filepath.EvalSymlinks(filepath.Dir(full))
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(full)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(target, strings.TrimSuffix(folder, "/")+"/") {
		return "", fmt.Errorf("it is a link to %s, outside of its folder: replace it by a file", target)
	}
	return target, nil
}

// read reads a regular file.
func read(name string) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is no file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxBytes {
		return nil, nil, fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	return text, info, nil
}
