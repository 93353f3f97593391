package nodeconfig

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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
)

// Kubelet is the kubeconfig that a kubelet reads when it starts.
const Kubelet = "/etc/kubernetes/kubelet.conf"

// apiServerManifest exists on the control-plane hosts of kubeadm.
const apiServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// maxBytes limits the size of a file. Kubeconfigs have some kilobytes.
const maxBytes = 1 << 20

// Host is the host whose files are edited.
type Host struct {
	// Root replaces "/".
	Root string
	// LocalAddresses are the host's own addresses.
	LocalAddresses []netip.Addr
	// System writes files.
	System durable.System
}

// Edit is a file that names a former endpoint, with its new content.
type Edit struct {
	// Name is the file's path on the host.
	Name string

	path string
	// original identifies the file that Find read.
	original os.FileInfo
	content  []byte
}

// document is a file that may name an endpoint.
type document struct {
	name string
	// replace returns the text with the current endpoint.
	replace func(text []byte) ([]byte, error)
}

// Find returns the files that must be written. found reports whether the host
// has any of the files that may name an endpoint. A file that cannot be read or
// parsed is an error, but Find still returns the edits of the others.
func (h Host) Find(rules rewrite.Rules) (edits []Edit, found bool, err error) {
	documents, err := h.documents(rules)
	failures := []error{err}
	for _, d := range documents {
		edit, exists, err := h.edit(d)
		found = found || exists
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("pointing %s to the endpoint: %w", d.name, err))
		case edit != nil:
			edits = append(edits, *edit)
		}
	}
	return edits, found, errors.Join(failures...)
}

// documents returns the files of kubeadm, k3s and RKE2.
//
// On a control-plane host the kubelet, the controller manager and the scheduler
// may use the host's own API server, at an address that was the endpoint
// before: the controller manager and the scheduler of kubeadm always do, the
// kubelet does with the feature gate ControlPlaneKubeletLocalMode.
func (h Host) documents(rules rewrite.Rules) ([]document, error) {
	var list []document
	for _, name := range []string{"admin.conf", "super-admin.conf", "bootstrap-kubelet.conf"} {
		list = append(list, document{"/etc/kubernetes/" + name, func(text []byte) ([]byte, error) { return rules.Kubeconfig(text, nil) }})
	}
	for _, name := range []string{Kubelet, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"} {
		list = append(list, document{name, func(text []byte) ([]byte, error) { return rules.Kubeconfig(text, h.isLocalAPIServer) }})
	}
	for _, folder := range []string{"/etc/rancher/k3s", "/etc/rancher/rke2"} {
		list = append(list, document{folder + "/config.yaml", rules.Configuration})
		entries, err := os.ReadDir(filepath.Join(h.Root, folder, "config.yaml.d"))
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

// isLocalAPIServer reports whether an address belongs to this host and the host
// runs an API server. A worker that reuses the address of a dead control-plane
// host runs none.
func (h Host) isLocalAPIServer(name string) bool {
	address, err := netip.ParseAddr(name)
	if err != nil || !slices.Contains(h.LocalAddresses, address.Unmap()) {
		return false
	}
	_, err = os.Stat(filepath.Join(h.Root, apiServerManifest))
	return err == nil
}

// edit returns nil for a file that names no former endpoint.
func (h Host) edit(d document) (edit *Edit, exists bool, err error) {
	target, err := h.resolve(d.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	text, info, err := read(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // it was removed in between
	}
	if err != nil {
		return nil, true, err
	}
	content, err := d.replace(text)
	if err != nil || bytes.Equal(content, text) {
		return nil, true, err
	}
	return &Edit{Name: d.name, path: target, original: info, content: content}, true, nil
}

// resolve returns the file to which a name leads through symbolic links. The
// folder itself may be a link to anywhere, but a link in it must not lead out of
// it: files elsewhere may belong to other programs.
func (h Host) resolve(name string) (string, error) {
	full := filepath.Join(h.Root, name)
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
